"""A job that begins anew on a log of days: what live proxies hear of it, and what time it takes it to be."""

import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from job_kit import Job

from streaming.contract.topics import Topics
from streaming.kafka_io.weir_topics import TIMESTAMP_TYPE
from weir.logs.reading import TopicReader
from weir.stack.kafka import LocalKafka
from weir.stack.topics import ensure_topics

WAIT_S = 60.0
TOPICS = Topics()
DAY_MS, ROUND_MS, LATE_MS = 86_400_000, 1_000, 60_000
POLICIES: dict[str, dict[str, Any]] = {
    "broker": {"resourceUsagePublishIntervalInSecs": ROUND_MS // 1000},
    "resourcegroups.rg1": {"publishRateInMsgs": 100},
    "backpressure.partitions.*": {"algorithm": "aimd", "useWindowed": False},
}


class Bench:
    """A broker whose topics have two partitions, and whoever writes to it and reads from it."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def clock(self, kind: str) -> None:
        """Whose time records of `weir.usage` have from now on."""
        entry = ConfigEntry(TIMESTAMP_TYPE, kind, incremental_operation=AlterConfigOpType.SET)
        topic = ConfigResource(ResourceType.TOPIC, TOPICS.usage, incremental_configs=[entry])
        self._admin.incremental_alter_configs([topic])[topic].result(WAIT_S)

    def write(self, topic: str, event: dict[str, Any], partition: int = 0, at_ms: int = 0) -> None:
        """Write a record of this time (0: now), and wait for it."""
        value, key = orjson.dumps(event), event.get("path")
        self._producer.produce(topic, value, key, partition=partition, timestamp=at_ms)
        assert self._producer.flush(WAIT_S) == 0

    def report(self, at_ms: int = 0) -> None:
        """What two proxies use of a group, and the round trips of one of them."""
        for partition, broker in enumerate(("p1", "p2")):
            usage = {"type": "group_usage", "broker": broker, "period_ms": ROUND_MS}
            usage["usage"] = {"rg1": {"publishedMsg": 10}}
            self.write(TOPICS.usage, usage, partition, at_ms)
        sample = {"type": "latency", "partition": "broker-1", "rtt_ns": 300_000_000, "inflight": 60}
        self.write(TOPICS.usage, sample, 0, at_ms)

    def records(self, topic: str) -> list[tuple[int, dict[str, Any]]]:
        """Time and value of all records."""
        reader = TopicReader(self.bootstrap, {})
        try:
            spans = reader.spans(topic, 0, None)
            return [(one.ts, orjson.loads(one.value)) for span in spans for one in reader.read(span)]
        finally:
            reader.close()

    def until(self, enough: Callable[[list[tuple[int, dict[str, Any]]]], bool]) -> None:
        """Report each round until the decisions are enough."""
        deadline = time.monotonic() + WAIT_S
        while not enough(found := self.records(TOPICS.decisions)):
            assert time.monotonic() < deadline, found
            self.report()
            time.sleep(ROUND_MS / 1000)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Policies, and events of days and minutes ago, as they lie on the log of a job that lost its state."""
    with LocalKafka(tmp_path / "kafka") as kafka:
        ensure_topics(kafka.bootstrap, TOPICS, partitions=2)
        bench = Bench(kafka.bootstrap)
        for path, value in POLICIES.items():
            bench.write(TOPICS.policies, {"type": "policy", "ts": 1, "path": path, "value": value})
        bench.clock("CreateTime")
        now_ms = time.time_ns() // 1_000_000
        for ago_ms in (3 * DAY_MS, DAY_MS, 3 * LATE_MS):
            for number in range(5):
                bench.report(now_ms - ago_ms + number * ROUND_MS)
        bench.clock("LogAppendTime")
        yield bench


def test_nothing_is_said_of_days_ago(bench: Bench, tmp_path: Path) -> None:
    """No share and no limit whose life time is over; shares of now come, and the limit that was learned."""
    settings = tmp_path / "weir.yaml"
    settings.write_text("job: {tick_interval_ms: 1000}\n")
    job = Job(tmp_path, bench.bootstrap, "--settings", str(settings))
    try:
        note = job.start()
        began_ms = time.time_ns() // 1_000_000

        def enough(found: list[tuple[int, dict[str, Any]]]) -> bool:
            said = [one for _, one in found if one["ts"] > began_ms]
            shares = {one["broker"] for one in said if one["type"] == "share" and one["limits"]}
            return shares == {"p1", "p2"} and any(one["type"] == "limit" for _, one in found)

        bench.until(enough)
        with urllib.request.urlopen(note["metrics"], timeout=5) as answer:
            lines = answer.read().decode().splitlines()
    finally:
        job.close()
    decided = bench.records(TOPICS.decisions)
    fresh = [(at_ms, one) for at_ms, one in decided if not one.get("repeat")]
    assert [one for at_ms, one in fresh if at_ms - one["ts"] > max(one["ttl_ms"], LATE_MS)] == []
    # Five bad samples lowered it from 100, then more are in flight than it allows: it is only said again.
    limits = {(one["limit"], one.get("repeat", False)) for _, one in decided if one["type"] == "limit"}
    assert limits == {(57, True)}
    values = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    metrics = {name: float(value) for name, _, value in values}
    assert metrics["weir_job_withheld_decisions_total"] > 10
    # Both clocks are this machine's.
    assert abs(metrics["weir_job_brokers_clock_ahead_seconds"]) < 1.0
    told = [one["brokers_ahead_ms"] for _, one in bench.records(TOPICS.usage) if "brokers_ahead_ms" in one]
    assert told and all(abs(ahead_ms) < 1_000 for ahead_ms in told)
