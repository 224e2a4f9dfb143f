"""Rules of the example for a Kafka REST API, before a small server that answers as one does."""

from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest
from http_kit import Front, Seen, reply

from enforcer.http.settings import HttpSettings
from streaming.policy.settings import read_settings

EXAMPLE = Path(__file__).resolve().parents[4] / "conf/examples/http_kafka_rest.yaml"
TOPICS = "/v3/clusters/c1/topics"


class KafkaRest:
    """Topics of one cluster over REST, version 3."""

    def __init__(self, front: Front) -> None:
        self.topics: dict[str, int] = {}
        self.front = front
        front.pulsar.answers[f"POST {TOPICS}"] = self.create
        for name in ("t1", "t2"):
            for method in ("GET", "PATCH", "DELETE"):
                front.pulsar.answers[f"{method} {TOPICS}/{name}"] = self.one

    def create(self, seen: Seen) -> httpx2.Response:
        """201 with what was made."""
        asked = orjson.loads(seen.body)
        given = asked.get("partitions_count")
        # As Kafka: assignments say it all, and none or a negative number is the broker's num.partitions.
        one = given if isinstance(given, int) and given > 0 else 1
        count = len(asked.get("replicas_assignments") or ()) or one
        if not asked.get("validate_only"):
            self.topics[asked["topic_name"]] = count
        return reply(201, {"topic_name": asked["topic_name"], "partitions_count": count})

    def one(self, seen: Seen) -> httpx2.Response:
        """One topic, shown, grown or deleted."""
        name = seen.target.rpartition("/")[2]
        if name not in self.topics:
            return reply(404, {"error_code": 40403})
        if seen.method == "PATCH":
            if "partitions_count" not in orjson.loads(seen.body):
                return reply(400, {"error_code": 40002})
            self.topics[name] = orjson.loads(seen.body)["partitions_count"]
        if seen.method == "DELETE":
            del self.topics[name]
            return reply(204)
        return reply(200, {"topic_name": name, "partitions_count": self.topics[name]})


def costs(front: Front) -> list[tuple[str, Any]]:
    """Operation and items of each event."""
    return [
        (event["api"], {item["name"]: item["mutations"] for item in event["items"]})
        for event in front.desk.of_type("request")
    ]


async def test_a_kafka_rest_api() -> None:
    """Created, grown, deleted, tried, refused."""
    settings = read_settings(HttpSettings, "http", str(EXAMPLE)).model_dump()
    front = Front(rate=1, burst=100, **settings)
    rest = KafkaRest(front)
    new = {"topic_name": "t1", "partitions_count": 5}
    assert (await front.ask("POST", TOPICS, {**new, "validate_only": True})).status == 201
    assert (await front.ask("POST", TOPICS, new)).status == 201
    assert (await front.ask("POST", TOPICS, {"topic_name": "t2"})).status == 201
    assert (await front.ask("PATCH", f"{TOPICS}/t1", {"partitions_count": 8})).status == 200
    assert (await front.ask("PATCH", f"{TOPICS}/t1", {})).status == 400
    assert (await front.ask("DELETE", f"{TOPICS}/t1")).status == 204
    assert (await front.ask("DELETE", f"{TOPICS}/t1")).status == 404
    assert rest.topics == {"t2": 1}
    assert costs(front) == [
        ("CreateTopics", {"t1": 5}), ("CreateTopics", {"t1": 5}), ("CreateTopics", {"t2": 1}),
        ("CreatePartitions", {"t1": 3}), ("DeleteTopics", {"t1": 8}),
    ]  # fmt: skip
    assert [event["validate_only"] for event in front.desk.of_type("request")] == [True] + [False] * 4
    assert front.desk.of_type("refund") == []
    await front.ask("POST", TOPICS, {"topic_name": "t1", "partitions_count": 500})
    assert (await front.ask("POST", TOPICS, new)).status == 429


@pytest.mark.parametrize(
    ("said", "made"),
    [
        ({"replicas_assignments": {str(number): [1] for number in range(50)}}, 50),
        ({"replicas_assignments": {"0": [1], "1": [1]}, "partitions_count": 1}, 2),
        ({"replicas_assignments": {}}, 1), ({"replicas_assignments": {}, "partitions_count": 4}, 4),
        ({"partitions_count": None}, 1), ({"partitions_count": -1}, 1), ({"partitions_count": ""}, 1),
    ],
)  # fmt: skip
async def test_every_way_to_say_how_many_is_charged(said: dict[str, Any], made: int) -> None:
    """Partitions one by one with their brokers, and the default in other words: 1, or 0, was charged."""
    settings = read_settings(HttpSettings, "http", str(EXAMPLE)).model_dump()
    front = Front(rate=1, burst=100, **settings)
    rest = KafkaRest(front)
    assert (await front.ask("POST", TOPICS, {"topic_name": "t1", **said})).status == 201
    assert rest.topics == {"t1": made} and costs(front) == [("CreateTopics", {"t1": made})]


async def test_what_cannot_be_counted_is_charged_once_it_may_be_done() -> None:
    """Of who may grow a topic and not look at it; a dry run is never done."""
    settings = read_settings(HttpSettings, "http", str(EXAMPLE)).model_dump()
    settings["rules"] = [{**rule, "dry_run_field": "validate_only"} for rule in settings["rules"]]
    front, path = Front(rate=1, burst=100, **settings), f"{TOPICS}/t1"
    front.pulsar.answers[f"GET {path}"] = lambda _seen: reply(403, {})
    front.pulsar.answers[f"PATCH {path}"] = lambda _seen: reply(200, {})
    await front.ask("PATCH", path, {"partitions_count": 8, "validate_only": True})
    assert costs(front) == []
    await front.ask("PATCH", path, {"partitions_count": 8})
    assert costs(front) == [("CreatePartitions", {"t1": 8})]

    def late(_seen: Seen) -> httpx2.Response:
        raise httpx2.ReadTimeout("no")

    front.pulsar.answers[f"PATCH {path}"] = late
    assert (await front.ask("PATCH", path, {"partitions_count": 9})).status == 504
    assert costs(front)[1:] == [("CreatePartitions", {"t1": 9})]
