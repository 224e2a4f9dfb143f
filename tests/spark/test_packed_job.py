"""Packed requests and reports through `weir job` on a real broker, among single ones."""

from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from bench_kit import PACKED, Bench, bench
from job_broker_kit import TOPICS, WAIT_S
from law_kit import quota, request
from pack_kit import Event, packed
from stack_kit import until

from streaming.columns.records import Records
from streaming.laws.law import StepContext
from streaming.laws.name_hashes import partition_of
from streaming.laws.shard import step
from weir.logs.topic_reader import Record

PARTITIONS = 2
SEVERAL = "job:\n  profile: throughput\n  shuffle_partitions: 2\n  shards: 4\n"


def by_partition(events: list[Event]) -> list[list[Event]]:
    """Events where their subjects belong."""
    found: list[list[Event]] = [[] for _ in range(PARTITIONS)]
    places = partition_of(pa.array([str(event["subject"]) for event in events]), PARTITIONS)
    for event, place in zip(events, places.tolist(), strict=True):
        found[place].append(event)
    return found


def asked(count: int) -> list[Event]:
    """Requests of some users without a time of their own, one of which cannot be used."""
    events = [request(f"r{n}", 0, 3, user=f"u{n % 9}", subject=f"user=u{n % 9}") for n in range(count)]
    for event in events:
        del event["ts"]
    events[count // 2] |= {"items": [{"name": "t", "mutations": -1}]}
    return [*events]


def write(busy: Bench, events: list[Event]) -> None:
    """Policies, then the events: a third one by one, a third packed, and so on; rubbish between."""
    busy.tell({f"quotas[user=u{user}]": quota(1 + user) for user in range(9)})
    for partition, own in enumerate(by_partition(events)):
        third = len(own) // 3
        for piece in (own[:third], own[third:]):
            for event in piece[: third // 2]:
                busy.write(TOPICS.requests, {**event}, str(event["subject"]))
            for value in packed(piece[third // 2 :]):
                busy.write(TOPICS.requests, value, partition=partition, headers=PACKED)
        busy.write(TOPICS.requests, b"rubbish", partition=partition, headers=PACKED)
        usage: Event = {"type": "dispatch_usage", "topic": "persistent://a/b/t", "subscription": "s"}
        usage = {**usage, "broker": f"b{partition}", "msgs": 1, "bytes": 1, "entries": 1, "backlog": True}
        for value in packed([usage, usage]):
            busy.write(TOPICS.usage, value, partition=partition, headers=PACKED)


def whole(busy: Bench, topic: str, wanted: int) -> list[Record]:
    """Everything on a topic, once it has so many rows."""
    until(lambda: len(busy.records(topic)) >= wanted, what=f"{wanted} rows on {topic}", limit_s=WAIT_S)
    return busy.records(topic)


def in_one_step(busy: Bench) -> dict[str, bytes]:
    """Admissions by id of the law's own step over everything, in one shard and batch."""
    rows = [
        Record(topic=TOPICS.policies, partition=9, offset=0, ts=0, value=one.value)
        for one in busy.records(TOPICS.policies)
    ]
    rows += busy.records(TOPICS.requests)
    records = Records(
        topic=[one.topic for one in rows], partition=[one.partition for one in rows],
        offset=[one.offset * 1000 + max(0, one.row) for one in rows], ts=[one.ts for one in rows],
        value=[one.value for one in rows],
    )  # fmt: skip
    _, outputs = step("mutation", 0, None, records, StepContext(fail_fast=True))
    return {name: value for name, value in zip(outputs.listed("id"), outputs.value, strict=True) if name}


@pytest.mark.soak
@pytest.mark.parametrize("settings", [
    pytest.param("job: {}\n", id="one-shard"), pytest.param(SEVERAL, id="several-shards"),
])  # fmt: skip
def test_packed_and_single_events_are_decided_alike(settings: str, tmp_path: Path) -> None:
    events = asked(300)
    with bench(tmp_path, settings, PARTITIONS) as busy:
        write(busy, events)
        busy.job.start()
        wanted = len(events) - 1 + 2 * PARTITIONS
        values = [one.value for one in whole(busy, TOPICS.decisions, wanted)]
        letters = [orjson.loads(one.value) for one in whole(busy, TOPICS.deadletter, 1 + PARTITIONS)]
        expected = in_one_step(busy)
    decided = [orjson.loads(value) for value in values]
    named = {one["id"]: value for one, value in zip(decided, values, strict=True)}
    assert len(expected) == len(events) - 1
    assert {name: named[name] for name in expected} == expected
    assert {one["outcome"] for one in decided if one["type"] == "admission"} == {"allow", "reject"}
    assert sum("row" in letter for letter in letters) == 1
    assert sum("not an Arrow IPC stream" in letter["reason"] for letter in letters) == PARTITIONS
    dispatched = sorted(one["id"] for one in decided if one["type"] == "dispatch")
    assert dispatched == sorted(f"weir.usage-{p}-0/{k}" for p in range(PARTITIONS) for k in range(2))
