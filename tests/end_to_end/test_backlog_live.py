"""Backlogs on a real Kafka, through `weir up`: looked at, decided by the job, evicted by the collector."""

import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from proxy_kit import PolicyWriter
from stack_kit import Up, read_all, until

from streaming.contract.topics import Topics

WAIT_S = 60.0
LIMIT = 4_000
VALUE = b"x" * 100
RECORDS = 100
EVICTS = {"limitSize": LIMIT, "policy": "consumer_backlog_eviction", "actions": True}


class Backlogs:
    """Topics with groups that lag behind on a stack's Kafka.

    Args:
        kafka: its address.
        topics: names as `acme.orders.t1`.
    """

    def __init__(self, kafka: str, *topics: str) -> None:
        self.kafka, self.topics = kafka, topics
        self._policies = PolicyWriter(kafka, Topics())
        admin = AdminClient({"bootstrap.servers": kafka})
        for created in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
            created.result(WAIT_S)
        self._tail: Consumer | None = None
        self._producer = Producer({"bootstrap.servers": kafka, "batch.num.messages": 1})

    def write(self, count: int = RECORDS) -> None:
        """So many records more in each topic."""
        for topic in self.topics:
            for _ in range(count):
                self._producer.produce(topic, VALUE)
        assert self._producer.flush(WAIT_S) == 0

    def commit(self, group: str, offset: int) -> None:
        """Where a group, which is not active, stands in all topics."""
        consumer = self._consumer(group)
        consumer.commit(
            offsets=[TopicPartition(topic, 0, offset) for topic in self.topics], asynchronous=False
        )
        consumer.close()

    def committed(self, group: str) -> list[int]:
        """The same as Kafka says it."""
        consumer = self._consumer(group)
        found = consumer.committed([TopicPartition(topic, 0) for topic in self.topics], timeout=WAIT_S)
        consumer.close()
        return [int(one.offset) for one in found]

    def limit(self, quota: dict[str, Any] | None) -> None:
        """Give each topic a quota of size, or take it away."""
        for topic in self.topics:
            value = None if quota is None else {"backlogQuotaMap": {"destination_storage": quota}}
            self._policies.put(f"topics.{full(topic)}", value)

    def read(self, topic: str, offset: int) -> int:
        """How many records can be read from an offset on, to the end."""
        consumer = self._consumer("reader")
        place = TopicPartition(topic, 0, offset)
        _, end = consumer.get_watermark_offsets(place, timeout=WAIT_S)
        consumer.assign([place])
        count, deadline = 0, time.monotonic() + WAIT_S
        while offset + count < end and time.monotonic() < deadline:
            count += len(consumer.consume(end - offset - count, timeout=1.0))
        consumer.close()
        return count

    def actions(self, topic: str) -> list[dict[str, Any]]:
        """What the log says of a topic, in order."""
        found = map(orjson.loads, read_all(self.kafka, Topics().decisions))
        return [one for one in found if one["type"] == "backlog_action" and one["topic"] == full(topic)]

    def await_action(self) -> None:
        """Until something new is begun."""
        if self._tail is None:
            self._tail = self._consumer("tail")
            self._tail.assign([TopicPartition(Topics().decisions, 0, OFFSET_BEGINNING)])
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            for record in self._tail.consume(1000, timeout=0.02):
                if b'"step":"begun"' in (record.value() or b""):
                    return
        raise AssertionError("nothing was begun")

    def _consumer(self, group: str) -> Consumer:
        return Consumer({"bootstrap.servers": self.kafka, "group.id": group, "enable.auto.commit": False})


def full(topic: str) -> str:
    """What the policies call it."""
    tenant, namespace, name = topic.split(".", 2)
    return f"persistent://{tenant}/{namespace}/{name}"


def series(text: str, name: str, *labels: str) -> float | None:
    """The value of the series that has all these labels."""
    for line in text.splitlines():
        if line.startswith(f"{name}{{") and all(label in line for label in labels):
            return float(line.rpartition(" ")[2])
    return None


def test_a_backlog_is_evicted_once_and_counted(up: Up) -> None:
    """What is left is within the limit and can be read; counters and the log say what went."""
    held = Backlogs(up.ready["kafka"], "acme.evicted.t")
    held.write()
    held.commit("slow", 5)
    held.commit("fast", 95)
    topic = f'topic="{full("acme.evicted.t")}"'
    size = "pulsar_storage_backlog_size"
    until(lambda: (series(up.metrics(), size, topic) or 0) > LIMIT, what="the size", limit_s=WAIT_S)
    assert held.committed("slow") == [5], "there is no quota yet"
    held.limit(EVICTS)
    evicted = "pulsar_storage_backlog_quota_exceeded_evictions_total"
    until(
        lambda: series(up.metrics(), evicted, topic, 'quota_type="size"') == 1.0,
        what="the eviction",
        limit_s=WAIT_S,
    )
    (offset,) = held.committed("slow")
    begun, done = held.actions("acme.evicted.t")
    assert (begun["step"], done["step"], done["how"]) == ("begun", "done", "offsets")
    assert done["messages"] == offset - 5 and done["upto"]["entry"] + done["upto"]["ledger"] == offset - 1
    assert held.committed("fast") == [95]
    assert held.read("acme.evicted.t", offset) == RECORDS - offset
    until(lambda: (series(up.metrics(), size, topic) or 0) <= LIMIT, what="a size within", limit_s=WAIT_S)
    # The least that holds: with one record more it would be beyond.
    left = series(up.metrics(), size, topic) or 0
    assert left + left / (RECORDS - offset) > LIMIT
    assert series(up.metrics(), evicted, topic, 'quota_type="size"') == 1.0
    held.limit(None)


@pytest.mark.soak
@pytest.mark.parametrize("part", ["collect", "proxy", "job"])
def test_whoever_is_killed_in_the_middle_nothing_is_evicted_twice(tmp_path: Path, part: str) -> None:
    """kill -9 again and again while twenty topics are evicted from: each message goes once, counted."""
    policies = tmp_path / "policies.yaml"
    policies.write_text(
        "version: 1\nbroker: {backlogQuotaCheckIntervalInSeconds: 1, preciseBacklogSize: true}\n"
    )
    settings = tmp_path / "weir.yaml"
    settings.write_text(
        "local: {kafka_port: 0, restart_backoff_s: 0.1}\n"
        "backlog: {order_timeout_ms: 2000, topics_at_once: 2}\n"
    )
    names = [f"acme.killed.t{number}" for number in range(20)]
    generator = random.Random(16)
    with Up(tmp_path, "--restart", "--policies", str(policies), "--settings", str(settings)) as up:
        held = Backlogs(up.ready["kafka"], *names)
        held.write()
        held.commit("slow", 0)
        held.limit(EVICTS)
        for _ in range(4):
            held.await_action()
            time.sleep(generator.uniform(0.0, 0.03))
            told = dict(up.ready)
            os.kill(up.pid(part), signal.SIGKILL)
            held.write(60)
            up.wait_ready(newer_than=told)
        until(lambda: all_within(held), what="all within their limit", limit_s=3 * WAIT_S)
        until(lambda: all_ended(held), what="the ends of all actions", limit_s=WAIT_S)
        offsets = held.committed("slow")
        for topic, offset in zip(names, offsets, strict=True):
            check_log(held.actions(topic), offset)
            assert held.read(topic, offset) == 340 - offset
        planned = furthest(read_all(up.ready["kafka"], Topics().decisions))
        assert all(offset <= planned[full(topic)] for topic, offset in zip(names, offsets, strict=True))


def all_within(held: Backlogs) -> bool:
    """Whether no group is further behind than its topic's quota lets it, records of 170 bytes, but for one.

    Kafka tells offsets and bytes one after the other: those of a stretch may be off while it is written.
    """
    return all(340 - offset <= LIMIT // 170 + 1 for offset in held.committed("slow"))


def all_ended(held: Backlogs) -> bool:
    """Whether every action that was begun has an end."""
    steps: dict[str, list[str]] = defaultdict(list)
    for topic in held.topics:
        for action in held.actions(topic):
            steps[action["id"]].append(action["step"])
    return all(one[-1] in ("done", "failed") for one in steps.values())


def check_log(actions: Sequence[dict[str, Any]], offset: int) -> None:
    """What was done covers all up to an offset, each place once."""
    ends: dict[str, list[str]] = defaultdict(list)
    done = []
    for action in actions:
        if action["step"] == "begun":
            continue
        ends[action["id"]].append(action["step"])
        if action["step"] == "done":
            done.append(action)
    assert all(len(steps) == 1 for steps in ends.values()), ends
    at = 0
    for action in sorted(done, key=lambda one: next_of(one["since"])):
        assert next_of(action["since"]) == at, actions
        at = next_of(action["upto"])
        assert action["messages"] == at - next_of(action["since"])
    assert at == offset


def next_of(position: dict[str, int]) -> int:
    """The offset behind a position."""
    return position["ledger"] + position["entry"] + 1


def furthest(values: Sequence[bytes]) -> dict[str, int]:
    """The offset behind the furthest place that was planned, by topic."""
    found: dict[str, int] = {}
    for decision in map(orjson.loads, values):
        if decision["type"] == "backlog":
            for line in decision["evict"]:
                found[decision["topic"]] = max(found.get(decision["topic"], 0), next_of(line))
    return found
