"""Kafka's own request log: real brokers write it, and its replay says what the live system said."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from broker_fixtures import installed, serving
from import_kit import MADE, made_of
from proxy_kit import until
from request_log_kit import VERSIONS, logging_broker, traffic
from wire_client import WireClient, errors

from streaming.contract.topics import Topics
from weir.cli import main

pytestmark = pytest.mark.soak
RATE = 0.5
POLICIES = f"""\
version: 1
quotas:
  - entity: {{user: ANONYMOUS, client-id: tried}}
    controller_mutation_rate: {RATE}
    controller_mutation_burst: 10
    shadow: true
  - entity: {{user: ANONYMOUS, client-id: old}}
    controller_mutation_rate: {RATE}
    controller_mutation_burst: 4
    shadow: true
  - entity: {{user: ANONYMOUS, client-id: modest}}
    controller_mutation_rate: {RATE}
    controller_mutation_burst: 100
"""
ASKED = 6


def imported(log: Path, folder: Path) -> list[dict[str, Any]]:
    """The events of a log."""
    out, dead = folder / "events.jsonl", folder / "dead.jsonl"
    words = ("--out", str(out), "--dead-letters", str(dead))
    assert main(["import", "kafka-request-log", str(log), *words]) == 0
    assert dead.read_bytes() == b""
    return [orjson.loads(line) for line in out.read_bytes().splitlines()]


@pytest.mark.parametrize("version", VERSIONS)
def test_brokers_of_all_versions(tmp_path: Path, version: str) -> None:
    """The log that the units' samples are of, made anew."""
    with logging_broker(tmp_path / "kafka", version) as kafka:
        traffic(kafka)
    made, written, read = made_of(imported(tmp_path / "kafka" / "kafka.log", tmp_path))
    assert made == MADE
    assert written == {"quota/user=alice"} and read == {"quota/user=bob"}


def ask(client: WireClient, name: str, version: int) -> None:
    """Topics made, grown and deleted; all of it passes."""
    for number in range(ASKED):
        topic = f"{name}-{number}"
        answers = [
            client.create({topic: 3, f"{topic}-b": 1}, version=version),
            client.grow(topic, 4, version=3 if version >= 6 else 1),
            client.delete([topic], version=5 if version >= 6 else 3),
        ]
        assert not any(code for answer in answers for code in errors(answer).values())


def test_a_replayed_log_says_what_was_decided_live(tmp_path: Path) -> None:
    """Request by request the same outcome and the same refused items; balances differ by the clocks alone."""
    policies, out = tmp_path / "policies.yaml", tmp_path / "replayed.jsonl"
    policies.write_text(POLICIES)
    with logging_broker(tmp_path / "kafka", "4.3") as kafka, installed(kafka, Topics()) as cluster:
        words = ("--kafka", cluster.kafka.bootstrap)
        assert main(["policy", "apply", str(policies), *words]) == 0
        with serving(cluster, id="live") as proxy:
            for name in ("tried", "old", "modest"):
                cluster.await_quota(proxy, "ANONYMOUS", name, RATE)
                with WireClient(proxy.bootstrap, name) as client:
                    ask(client, name, 4 if name == "old" else 7)
            asked = {
                name: [e["id"] for e in cluster.decider.events if e.get("client_id") == name]
                for name in ("tried", "old", "modest")
            }
            wanted = {event for events in asked.values() for event in events}
            until(lambda: wanted <= {d.get("id") for d in cluster.decider.decisions}, what="all decided")
    live = {decision["id"]: decision for decision in cluster.decider.decisions}
    imported(tmp_path / "kafka" / "kafka.log", tmp_path)
    events = str(tmp_path / "events.jsonl")
    assert main(["replay", "--policies", str(policies), "--events", events, "--out", str(out)]) == 0
    replayed = [orjson.loads(line) for line in out.read_bytes().splitlines()]
    for name, ids in asked.items():
        mine = [d for d in replayed if d.get("subject") == f"user=ANONYMOUS,client-id={name}"]
        assert len(mine) == len(ids) == 3 * ASKED
        apart = [ours["ts"] - live[each]["ts"] for ours, each in zip(mine, ids, strict=True)]
        for ours, each in zip(mine, ids, strict=True):
            theirs = live[each]
            assert [ours[key] for key in ("outcome", "rejected")] == [
                theirs[key] for key in ("outcome", "rejected")
            ]
            assert abs(ours["tokens"] - theirs["tokens"]) <= RATE * 2 * max(map(abs, apart)) / 1000 + 1e-9
        assert max(map(abs, apart)) < 1_000
        outcomes = {decision["outcome"] for decision in mine}
        assert outcomes == {
            "tried": {"allow", "reject"}, "old": {"allow", "throttle"}, "modest": {"allow"}
        }[name]  # fmt: skip
