"""Packed requests and reports through `weir job` on a real broker, among single ones."""

import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from job_kit import Job
from law_kit import quota, request
from pack_kit import Event, packed

from streaming.columns.packed import CONTENT_TYPE, HEADER
from streaming.columns.records import Records
from streaming.contract.topics import Topics
from streaming.laws.law import StepContext
from streaming.laws.name_hashes import partition_of
from streaming.laws.shard import step
from weir.logs.reading import Record, TopicReader
from weir.stack.kafka import LocalKafka
from weir.stack.topics import ensure_topics

WAIT_S = 60.0
PARTITIONS = 2
TOPICS = Topics()
SEVERAL = "job:\n  profile: throughput\n  shuffle_partitions: 2\n  shards: 4\n"
HEADERS = [(HEADER, CONTENT_TYPE.encode())]


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    """A broker of its own with Weir's topics."""
    with LocalKafka(tmp_path / "kafka") as kafka:
        ensure_topics(kafka.bootstrap, TOPICS, partitions=PARTITIONS)
        yield kafka.bootstrap


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


def write(bootstrap: str, events: list[Event]) -> None:
    """Policies, then the events: a third one by one, a third packed, and so on; rubbish between."""
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2"})
    for user in range(9):
        path = f"quotas[user=u{user}]"
        change = {"type": "policy", "ts": 1, "path": path, "value": quota(1 + user)}
        producer.produce(TOPICS.policies, orjson.dumps(change), path)
    assert producer.flush(WAIT_S) == 0
    for partition, own in enumerate(by_partition(events)):
        third = len(own) // 3
        for piece in (own[:third], own[third:]):
            for event in piece[: third // 2]:
                producer.produce(TOPICS.requests, orjson.dumps(event), str(event["subject"]))
            for value in packed(piece[third // 2 :]):
                producer.produce(TOPICS.requests, value, partition=partition, headers=HEADERS)
        producer.produce(TOPICS.requests, b"rubbish", partition=partition, headers=HEADERS)
        usage: Event = {"type": "dispatch_usage", "topic": "persistent://a/b/t", "subscription": "s"}
        usage = {**usage, "broker": f"b{partition}", "msgs": 1, "bytes": 1, "entries": 1, "backlog": True}
        for value in packed([usage, usage]):
            producer.produce(TOPICS.usage, value, partition=partition, headers=HEADERS)
    assert producer.flush(WAIT_S) == 0


def until(bootstrap: str, topic: str, wanted: int) -> list[Record]:
    """Everything on a topic, once it has so many rows."""
    deadline = time.monotonic() + WAIT_S
    while True:
        reader = TopicReader(bootstrap, {})
        try:
            found = [one for span in reader.spans(topic, 0, None) for one in reader.read(span)]
        finally:
            reader.close()
        if len(found) >= wanted:
            return found
        assert time.monotonic() < deadline, f"{len(found)} of {wanted} on {topic}"
        time.sleep(0.2)


def in_one_step(bootstrap: str) -> dict[str, bytes]:
    """Admissions by id of the law's own step over everything, in one shard and batch."""
    rows = [
        Record(topic=TOPICS.policies, partition=9, offset=0, ts=0, value=one.value)
        for one in until(bootstrap, TOPICS.policies, 9)
    ]
    rows += until(bootstrap, TOPICS.requests, 0)
    records = Records(
        topic=[one.topic for one in rows], partition=[one.partition for one in rows],
        offset=[one.offset * 1000 + max(0, one.row) for one in rows], ts=[one.ts for one in rows],
        value=[one.value for one in rows],
    )  # fmt: skip
    _, outputs = step("mutation", 0, None, records, StepContext(fail_fast=True))
    return {name: value for name, value in zip(outputs.id, outputs.value, strict=True) if name}


@pytest.mark.parametrize("settings", ["", SEVERAL], ids=["one-shard", "several-shards"])
def test_packed_and_single_events_are_decided_alike(settings: str, bootstrap: str, tmp_path: Path) -> None:
    events = asked(300)
    write(bootstrap, events)
    file = tmp_path / "weir.yaml"
    file.write_text(settings or "job: {}\n")
    job = Job(tmp_path, bootstrap, "--settings", str(file))
    try:
        job.start()
        wanted = len(events) - 1 + 2 * PARTITIONS
        values = [one.value for one in until(bootstrap, TOPICS.decisions, wanted)]
        letters = [orjson.loads(one.value) for one in until(bootstrap, TOPICS.deadletter, 1 + PARTITIONS)]
    finally:
        job.close()
    decided = [orjson.loads(value) for value in values]
    named = {one["id"]: value for one, value in zip(decided, values, strict=True)}
    expected = in_one_step(bootstrap)
    assert len(expected) == len(events) - 1
    assert {name: named[name] for name in expected} == expected
    assert {one["outcome"] for one in decided if one["type"] == "admission"} == {"allow", "reject"}
    assert sum("row" in letter for letter in letters) == 1
    assert sum("not an Arrow IPC stream" in letter["reason"] for letter in letters) == PARTITIONS
    dispatched = sorted(one["id"] for one in decided if one["type"] == "dispatch")
    assert dispatched == sorted(f"weir.usage-{p}-0/{k}" for p in range(PARTITIONS) for k in range(2))
