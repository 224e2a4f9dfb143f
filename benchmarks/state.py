"""State: does a batch cost more because there are many principals that do nothing in it?"""

import json
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.kit.fixtures import spark
from benchmarks.kit.machine import peak_bytes, process_tree
from benchmarks.kit.progress import Progress
from benchmarks.kit.result import Result, Row
from benchmarks.kit.stack import Stack
from benchmarks.load.events import POLICIES, SEED, request, user
from benchmarks.load.writing import Counter, produce
from streaming.contract.errors import WeirError
from streaming.job.blobs.local import segments_folder
from streaming.job.checkpoint_name import checkpoint_path
from streaming.job.query import start_query
from streaming.job.spark.session import Session
from streaming.job.spark.settings import JobSettings
from streaming.laws.mutation.table import COLD
from streaming.state.body import decode

TITLE = "State: batch time, bytes and memory with many idle principals"
DURATION_S = 75
BYTES_TARGET: Final = 150
GROWTH_TARGET: Final = 1.25
"""Batch time with most principals over that with few: what two runs of the same differ by."""
_LIMIT_S: Final = 400.0
_REPORT_LIMIT_S: Final = 30.0
_POLL_S: Final = 0.1
_AHEAD_MS: Final = 600_000
_Records = Iterator[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """Principals known when a row is measured; those active in a batch; batches measured, and before that."""

    known: tuple[int, ...]
    active: int
    batches: int
    warm: int

    @property
    def events(self) -> int:
        """Each principal's first and those measured; the batch in which all idle ones leave comes on top."""
        return self.known[-1] + (self.warm + len(self.known) * self.batches) * self.active


_FULL = _Scale(known=(10_000, 100_000, 1_000_000), active=10_000, batches=15, warm=30)
_SMOKE = _Scale(known=(500, 2_000, 4_000), active=500, batches=2, warm=1)


def run(smoke: bool, progress: Progress) -> Result:
    """One run of the job over all events, which stand on Kafka beforehand, a batch at a time."""
    scale = _SMOKE if smoke else _FULL
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = JobSettings(
            checkpoint_dir=str(folder / "checkpoint"),
            max_events_per_batch=scale.active,
            max_ahead_ms=2 * _AHEAD_MS,
            spark_conf={"spark.sql.streaming.numRecentProgressUpdates": "10000"},
        )
        with Stack(folder, policies=POLICIES) as stack:
            progress.step(f"writing {scale.events:,} events", 0.02)
            produce(stack.bootstrap, stack.topics.requests, _records(scale))
            progress.step("starting Spark", 0.2)
            with spark(settings, folder) as session:
                found = _measured(stack, session, settings, scale, progress)
    times = _times(found, scale)
    series = {f"batch, {size:,} principals known, ms": times[size] for size in scale.known}
    return Result(
        name="state", title=TITLE, rows=_rows(found, scale, times), notes=_notes(scale), series=series
    )


def _records(scale: _Scale) -> _Records:
    """In batches of `active`: principals seen for the first time, then some drawn from all, and so on."""
    draw = random.Random(SEED)
    number = known = 0
    for size in scale.known:
        batches = scale.batches + (scale.warm if not known else 0)
        drawn = (who for _ in range(batches) for who in draw.sample(range(size), scale.active))
        for who in chain(range(known, size), drawn):
            yield _record(number, who)
            number += 1
        known = size


def _late_records(scale: _Scale) -> _Records:
    """One batch, so far ahead in time that by then every bucket is full: all idle principals leave in it."""
    ahead = time.time_ns() // 1_000_000 + _AHEAD_MS
    for who in range(scale.active):
        yield _record(scale.events + who, who, ahead)


def _record(number: int, who: int, ts: int | None = None) -> tuple[bytes, bytes]:
    return f"user={user(who)}".encode(), request("state", number, user(who), ts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What one run showed.

    Attributes:
        batches: request events and ms of each batch, in order.
        state: bytes of the state: bodies in Spark's store, and the segments that they name.
        disk: bytes of the whole checkpoint, with what is kept of earlier batches.
        jvm, python: most memory that each held, bytes.
    """

    batches: list[tuple[int, float]]
    state: tuple[int, int]
    disk: int
    jvm: int
    python: int


def _measured(
    stack: Stack, session: Session, settings: JobSettings, scale: _Scale, progress: Progress
) -> _Found:
    checkpoint = Path(checkpoint_path(settings))
    with Counter(stack.bootstrap, stack.topics.decisions) as decisions:
        before = decisions.count()
        query = start_query(session.spark, settings, bootstrap=stack.bootstrap, topics=stack.topics)

        def look(count: int) -> None:
            if not query.isActive:
                raise WeirError(f"the query failed: {query.exception()}")
            progress.step("job", 0.3 + 0.65 * (count - before) / scale.events)

        decisions.wait(before + scale.events, _LIMIT_S, look)
        state = _state_bytes(session.spark, checkpoint)
        disk = sum(file.stat().st_size for file in checkpoint.rglob("*") if file.is_file())
        progress.step("a batch in which the idle leave", 0.96)
        produce(stack.bootstrap, stack.topics.requests, _late_records(scale))
        decisions.wait(before + scale.events + scale.active, _LIMIT_S, look)
        batches = _batches(query, stack.topics.requests, scale.events + scale.active)
        jvm, *others = [peak_bytes(each) for each in process_tree(session.jvm_pid)]
    return _Found(batches=batches, state=state, disk=disk, jvm=jvm, python=max(others, default=0))


def _batches(query: StreamingQuery, topic: str, wanted: int) -> list[tuple[int, float]]:
    """Request events and ms of each batch, once Spark has reported all: decisions stand on Kafka before."""
    deadline = time.monotonic() + _REPORT_LIMIT_S
    while True:
        batches = [
            (events, float(report["durationMs"]["triggerExecution"]))
            for report in map(json.loads, (found.json() for found in query._jsq.recentProgress()))
            if (events := _requests_in(report, topic))
        ]
        if sum(events for events, _ in batches) >= wanted:
            return batches
        if time.monotonic() > deadline:
            raise WeirError(f"Spark has not reported on all batches within {_REPORT_LIMIT_S:.0f} s")
        time.sleep(_POLL_S)


def _requests_in(report: dict[str, Any], topic: str) -> int:
    """Request events of a batch."""
    return sum(source["numInputRows"] for source in report["sources"] if topic in source["description"])


def _state_bytes(spark: SparkSession, checkpoint: Path) -> tuple[int, int]:
    """Bytes of all bodies in Spark's store, and of the segments that they name."""
    bodies = spark.read.format("statestore").load(str(checkpoint)).select("value.groupState.body").collect()
    sizes = {file.stem: file.stat().st_size for file in segments_folder(checkpoint).rglob("*.arrow")}
    segments = 0
    for (body,) in bodies:
        notes = decode(bytes(body)).notes
        if COLD in notes:
            names = decode(notes[COLD]).columns["name"].to_pylist()
            segments += sum(sizes[name] for name in names)
    return sum(len(body) for (body,) in bodies), segments


def _times(found: _Found, scale: _Scale) -> dict[int, list[float]]:
    """ms of the measured batches by number of principals known; 0: those that the last events fell into."""
    times: dict[int, list[float]] = {}
    seen = known = 0
    # The first batches find the JVM cold.
    begin = scale.warm * scale.active
    for size in scale.known:
        begin += size - known
        end, known = begin + scale.batches * scale.active, size
        times[size] = []
        for events, took_ms in found.batches:
            if begin <= seen < end:
                times[size].append(took_ms)
            seen += events
        seen, begin = 0, end
    # They came while the job waited, so it may have begun with some of them.
    for events, took_ms in found.batches:
        if seen >= scale.events:
            times.setdefault(0, []).append(took_ms)
        seen += events
    return times


def _rows(found: _Found, scale: _Scale, times: dict[int, list[float]]) -> list[Row]:
    fewest, most = scale.known[0], scale.known[-1]
    base = median(times[fewest])
    rows = [Row(what=f"batch of {scale.active:,}, {fewest:,} principals known", value=base, unit="ms")]
    for size in scale.known[1:]:
        row = Row(
            what=f"batch of {scale.active:,}, {size:,} principals known",
            value=median(times[size]),
            unit="ms",
            baseline=base,
            baseline_what=f"{fewest:,} known",
            target=f"<= {GROWTH_TARGET} x" if size == most else "",
            met=median(times[size]) <= GROWTH_TARGET * base if size == most else None,
        )
        rows.append(row)
    body, segments = found.state
    each = (body + segments) / most
    return [
        *rows,
        Row(what=f"slowest batch, {most:,} principals known", value=max(times[most]), unit="ms"),
        Row(what=f"batch in which {most - scale.active:,} principals leave", value=max(times[0]), unit="ms"),
        Row(
            what="state per principal",
            value=each,
            unit="bytes",
            target=f"< {BYTES_TARGET} bytes",
            met=each < BYTES_TARGET,
        ),
        Row(what="of that in Spark's store, carried each batch", value=body / most, unit="bytes"),
        Row(what="checkpoint on disk, with earlier batches", value=found.disk / 1e6, unit="MB"),
        Row(what="JVM, most memory resident", value=found.jvm / 1e6, unit="MB"),
        Row(what="Python worker, most memory resident", value=found.python / 1e6, unit="MB"),
    ]


def _notes(scale: _Scale) -> list[str]:
    return [
        "The job as `weir job` runs it, Kafka to Kafka, profile latency, one task, shards a law:"
        f" {JobSettings().shard_count}; every batch holds {scale.active:,} requests of as many"
        " principals, named with 21 bytes, in token buckets. Batch time is Spark's own, from the start of its"
        f" planning to its commit; medians of {scale.batches} batches, after {scale.warm} to warm up.",
        "State is what the newest batch needs. The checkpoint on disk holds what the last 100 batches needed,"
        " as Spark does with its own files. A Python worker's memory counts the segments that it has mapped.",
    ]
