"""A month through the real job and a real Kafka, a day in ten seconds: memory, disk and topics stay flat.

Event time, retention and segments are compressed alike, by 8,640. What does not get shorter is a batch: there
are as many as in five minutes. So this shows what grows with days and names, not what grows with batches.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from job_broker_kit import Broker
from job_kit import Job
from law_kit import T0, policy
from month_kit import DAY_MS, DAYS, POLICIES, WEEK, Month, Readings, policies_of
from stack_kit import alter, series_at, until

from benchmarks.kit.machine import process_tree
from streaming.contract.topics import Cluster, Topics
from streaming.job.process.checkpoint_read import found, read
from streaming.kafka_io.weir_topics import COMPACTION_LAG_MS, RETENTION_MS
from weir.stack.kafka import LocalKafka
from weir.stack.topics import ensure_topics

DAY_S = 10.0
BATCHES = 20
"""A day."""
COMERS = 6
REMOVED_BYTES = 160
"""What a policy that was removed leaves (docs/operate.md, "Weir's topics")."""
SETTINGS = f"""
job:
  max_ahead_ms: {40 * DAY_MS}
  # Else Spark deletes what is too old once a minute, which is six days here.
  spark_conf: {{spark.sql.streaming.stateStore.maintenanceInterval: 5s}}
"""
WAIT_S = 60.0
PROMPT = {
    "log.retention.check.interval.ms": "500",
    "log.cleaner.backoff.ms": "500",
    "log.segment.delete.delay.ms": "500",
}
TOPICS = Topics()
_TOPIC = {"request": TOPICS.requests, "refund": TOPICS.requests, "policy": TOPICS.policies}
_KEYS = ("path", "subject", "broker", "partition", "topic")


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[LocalKafka]:
    """A broker that looks often for what is too old, with Weir's topics."""
    with LocalKafka(tmp_path / "kafka", properties=PROMPT) as started:
        ensure_topics(Cluster(started.bootstrap))
        yield started


def shorten(bootstrap: str) -> None:
    """Have the topics hold as many short days as they hold long ones: no part may start on such ones."""
    day_ms = round(DAY_S * 1000)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for name in TOPICS.all():
        key = COMPACTION_LAG_MS if name == TOPICS.policies else RETENTION_MS
        settings = {key: 7 * day_ms, "segment.ms": day_ms, "min.cleanable.dirty.ratio": 0.1}
        alter(admin, name, settings).result(WAIT_S)


class Installation:
    """The job, its broker, and what they hold."""

    def __init__(self, folder: Path, job: dict[str, Any]) -> None:
        self._folder, self._job = folder, job

    def figures(self) -> dict[str, float]:
        """Now."""
        series = len(series_at(self._job["metrics"]))
        return self._memory() | self._disk() | self._state() | {"series": series}

    def _memory(self) -> dict[str, float]:
        jvm, *workers = [memory_of(pid) for pid in process_tree(self._job["jvm_pid"])]
        return {
            "memory driver": memory_of(self._job["pid"]), "memory jvm": jvm, "memory workers": sum(workers),
        }  # fmt: skip

    def _disk(self) -> dict[str, float]:
        sizes = sizes_in(self._folder / "checkpoint")
        figures: dict[str, float] = {
            "checkpoint bytes": sum(sizes.values()), "checkpoint files": len(sizes),
        }  # fmt: skip
        files = sizes_in(self._folder / "kafka").items()
        for name in TOPICS.all():
            own = [size for path, size in files if path.match(f"{name}-0/*.log")]
            figures |= {f"{name} bytes": sum(own), f"{name} segments": len(own)}
        return figures

    def _state(self) -> dict[str, float]:
        (checkpoint,) = found(self._folder / "checkpoint")
        return {
            f"{one.law} {what}": figure
            for one in read(checkpoint).shards
            for what, figure in (("rows", one.subjects + one.resting), ("state bytes", one.state_bytes))
        }

    def total(self, name: str) -> float:
        """A metric of the job, all its series together."""
        shown = series_at(self._job["metrics"]).items()
        return sum(value for key, value in shown if key.partition("{")[0] == name)


def memory_of(pid: int) -> int:
    """What a process holds now, bytes."""
    resident = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert resident is not None
    return int(resident[1]) * 1024


def sizes_in(folder: Path) -> dict[Path, int]:
    """Of all files; what is deleted meanwhile is not there."""
    sizes = {}
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                sizes[path] = path.stat().st_size
        except FileNotFoundError:
            continue
    return sizes


def write(broker: Broker, events: list[dict[str, Any]], ahead_ms: int) -> int:
    """Have events stand on their topics, so much later than they say; how many are some law's alone."""
    for event in events:
        key = next((event[name] for name in _KEYS if name in event), "")
        later = {name: event[name] + ahead_ms for name in ("ts", "of_ts") if name in event}
        broker.write(_TOPIC.get(event["type"], TOPICS.usage), event | later, key)
    broker.flush()
    return sum(event["type"] not in ("policy", "tick") for event in events)


def live_through(installation: Installation, broker: Broker) -> Readings:
    """The month, as fast as it is compressed; read at the end of each day."""
    readings, begin_s, last, count = Readings(), time.monotonic(), 0, 0
    ahead_ms = round(time.time() * 1000) - T0
    for number, (day, events) in enumerate(Month(BATCHES, COMERS)):
        if day != last:
            readings.note(last, installation.figures())
            last = day
        time.sleep(max(0.0, begin_s + number * DAY_S / BATCHES - time.monotonic()))
        count += write(broker, events, ahead_ms)
    readings.note(last, installation.figures())
    assert time.monotonic() - begin_s < 1.2 * DAYS * DAY_S, "the machine is too slow for this compression"
    until(lambda: installation.total("weir_job_events_total") >= count, what="all decided", limit_s=WAIT_S)
    return readings


@pytest.mark.soak
def test_a_month_leaves_no_more_than_a_fortnight(kafka: LocalKafka, tmp_path: Path) -> None:
    """State, checkpoint, topics, series and memory; and the job has decided all of it."""
    job, broker = Job(tmp_path, kafka.bootstrap, settings=SETTINGS), Broker(kafka.bootstrap)
    with job:
        installation = Installation(tmp_path, job.start())
        shorten(kafka.bootstrap)
        write(broker, [policy(1 - T0, path, value) for path, value in POLICIES.items()], 0)
        readings = live_through(installation, broker)
        assert installation.total("weir_job_dead_letters_total") == 0
    grown = readings.grown()
    before, after = grown.pop(f"{TOPICS.policies} bytes", (0, 0))
    removed = len([value for value in policies_of(DAYS, COMERS).values() if value is None]) * 2 * WEEK
    assert after - before < REMOVED_BYTES * removed
    assert grown == {}
