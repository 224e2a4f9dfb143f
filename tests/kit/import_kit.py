"""What becomes of real brokers' request logs, and lines of such a log, made up."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

RECORDS_BYTES: Final = 20_000
"""What alice writes, and bob reads, at least."""
MADE: Final = [
    ("alice", "terraform", "CreateTopics", False, False, {"a": 3, "b": 2}),
    ("alice", "terraform", "CreateTopics", False, True, {"dry": 4}),
    ("alice", "terraform", "CreatePartitions", False, False, {"a": 2}),
    ("alice", "terraform", "DeleteTopics", False, False, {"b": 2}),
    ("ANONYMOUS", "adminclient-1", "CreateTopics", True, False, {"j": 2}),
    ("ANONYMOUS", "adminclient-1", "CreatePartitions", True, False, {"j": 1}),
    ("ANONYMOUS", "adminclient-1", "DeleteTopics", True, False, {"j": 3}),
    ("ANONYMOUS", "wire", "CreateTopics", True, False, {"w": 2}),
    ("ANONYMOUS", "wire", "DeleteTopics", True, False, {"w": 2}),
    ("ANONYMOUS", "wire", "CreateTopics", False, False, {"v": 2}),
    ("ANONYMOUS", "wire", "DeleteTopics", False, False, {"v": 2}),
]
"""Of `request_log_kit.traffic`: user, client, API, strict, dry run, and mutations by topic."""


def made_of(events: Iterable[Mapping[str, Any]]) -> tuple[list[Any], set[str], set[str]]:
    """What events say was asked of partitions, which groups have written, and which have read."""
    made, bytes_in, bytes_out = [], Counter[str](), Counter[str]()
    for event in events:
        if event["type"] == "request":
            fields = [event[key] for key in ("user", "client_id", "api", "strict", "validate_only")]
            names = {each["name"].removeprefix("acme.orders."): each["mutations"] for each in event["items"]}
            made.append((*fields, names))
            continue
        for group, counts in event["usage"].items():
            bytes_in[group] += counts["publishedBytes"]
            bytes_out[group] += counts["dispatchedBytes"]
    totals = (bytes_in, bytes_out)
    written, read = ({g for g, size in each.items() if size > RECORDS_BYTES} for each in totals)
    return made, written, read


def line(key: int, time: str = "2026-11-26 10:00:00,500", **fields: Any) -> str:
    """A line as Kafka writes it."""
    logged = {
        "isForwarded": False, "totalTimeMs": 20.4, "principal": "User:alice", "listener": "PLAINTEXT",
        "connection": "10.0.0.1:9092-10.0.0.9:40000-0-0", "request": {}, "response": {},
        "requestHeader": {"requestApiKey": key, "requestApiVersion": 7, "clientId": "c"},
    } | fields  # fmt: skip
    # Kafka's own order: the header comes early.
    ordered = {"isForwarded": logged.pop("isForwarded"), "requestHeader": logged.pop("requestHeader")}
    text = orjson.dumps(ordered | logged).decode()
    return f"[{time}] DEBUG Completed request:{text} (kafka.request.logger)"


def produce(size: int, time: str, **fields: Any) -> str:
    """A Produce of one partition."""
    data = [{"name": "acme.orders.a", "partitionData": [{"index": 0, "recordsSizeInBytes": size}]}]
    return line(0, time, request={"topicData": data}, **fields)


def delete(name: str, code: int = 0) -> str:
    """A DeleteTopics."""
    answer = [{"name": name, "errorCode": code}]
    return line(20, request={"topicNames": [name]}, response={"responses": answer})


def create(code: int, partitions: int = 3, told: int = -1, **more: Any) -> str:
    """A CreateTopics of one topic."""
    asked = [{"name": "t", "numPartitions": partitions, "assignments": []}]
    answer = [{"name": "t", "errorCode": code, "numPartitions": told}]
    return line(19, request={"topics": asked, **more}, response={"topics": answer})
