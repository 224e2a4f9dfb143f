"""Throughput of the job, Kafka to Kafka, beside the usual way to do it in PySpark and the local engine."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.kit.fixtures import spark
from benchmarks.kit.machine import cpu_s
from benchmarks.kit.progress import Progress
from benchmarks.kit.result import Result, Row
from benchmarks.kit.stack import Stack, work_dir
from benchmarks.load.events import POLICIES, requests
from benchmarks.load.writing import Counter, produce
from benchmarks.spark.idiom import start_idiom
from benchmarks.spark.stages import Source, finish, progress_of, seconds_an_event, stages, step_alone
from streaming.contract.topics import Topics
from streaming.job.spark.settings import JobSettings, Profile
from streaming.policy.files import policy_file
from streaming.replay import replay_local
from weir.stack.topics import ensure_topics

TITLE = "Throughput of the job: requests on Kafka to decisions on Kafka"
DURATION_S = 270
TARGET_EVENTS_S: Final = 250_000
TARGET_RATIO: Final = 35.0
PARTITIONS: Final = 2
"""Of Weir's topics, and tasks of the stateful stage: one a core of the machine that the target is for."""
_WARM_BATCHES: Final = 4
"""Not counted: for so long the JVM's compilers take a third of the processor, and a job runs for months."""
_LIMIT_S: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """How much: events measured, events in a batch, principals; events of the other parts."""

    events: int
    batch: int
    principals: int
    staged: int
    idiom: int
    local: int

    @property
    def warm(self) -> int:
        """Events decided beforehand, in whole batches."""
        return _WARM_BATCHES * self.batch


_FULL = _Scale(
    events=2_000_000, batch=500_000, principals=100_000, staged=1_000_000, idiom=200_000, local=500_000
)
_SMOKE = _Scale(events=6_000, batch=3_000, principals=500, staged=6_000, idiom=300, local=3_000)


def run(smoke: bool, progress: Progress) -> Result:
    """Measure the job, then each of its stages, the idiom and the local engine."""
    scale = _SMOKE if smoke else _FULL
    settings = {
        "job": {
            "profile": Profile.THROUGHPUT.value,
            "shuffle_partitions": PARTITIONS,
            "max_events_per_batch": scale.batch,
        }
    }
    folder = work_dir()
    with Stack(folder, settings=settings, policies=POLICIES, partitions=PARTITIONS) as stack:
        _fill(stack, scale, progress)
        job = _job(stack, scale, progress)
        found = _in_session(stack, scale, progress)
    progress.step("the step alone", 0.87)
    step_s, state_s = step_alone(scale.batch, scale.principals, _shards())
    progress.step("local engine", 0.92)
    local = _local(folder, scale)
    idiom = found.pop("idiom")
    rows = [*_rows(job, 1 / idiom, local), *_where(job, found, step_s, state_s)]
    return Result(name="throughput", title=TITLE, rows=rows, notes=_notes(scale))


def _shards() -> int:
    """Shards per law in the job that is measured."""
    return JobSettings(profile=Profile.THROUGHPUT, shuffle_partitions=PARTITIONS).shard_count


def _fill(stack: Stack, scale: _Scale, progress: Progress) -> None:
    """Write everything beforehand: a producer would take processor time from what is measured."""
    total = scale.events + scale.warm

    def done(count: int) -> None:
        progress.step(f"writing {total:,} events", 0.02 + 0.08 * count / total)

    produce(stack.bootstrap, stack.topics.requests, requests(total, scale.principals), done=done)


def _job(stack: Stack, scale: _Scale, progress: Progress) -> dict[str, float]:
    """Events per second and processor time of the whole job after its warm-up."""
    total = scale.events + scale.warm
    spent: list[tuple[float, float]] = []
    with Counter(stack.bootstrap, stack.topics.decisions) as decisions:
        progress.step("starting the job", 0.10)
        before, started = decisions.count(), time.monotonic()
        pid, broker = stack.start_job()["pid"], stack.kafka.pids[0]

        def look(count: int) -> None:
            stack.check()
            if not spent and count - before >= scale.warm:
                spent.append((cpu_s(pid), cpu_s(broker)))
            progress.step("job", 0.15 + 0.2 * (count - before) / total)

        seen = decisions.wait(before + total, _LIMIT_S, look)
        spent.append((cpu_s(pid), cpu_s(broker)))
    stack.stop("job")
    # From when the warm-up is decided, or already part of the next batch, to the last decision.
    began, first = next((at, count) for at, count in seen if count - before >= scale.warm)
    took, events = seen[-1][0] - began, seen[-1][1] - first
    if not events:
        # So few that they were all there at one look: only a smoke run's.
        took, events = seen[-1][0] - started, total
    job_us, broker_us = ((after - at) / events * 1e6 for at, after in zip(spent[0], spent[-1], strict=True))
    return {"events_s": events / took, "job_us": job_us, "broker_us": broker_us}


def _in_session(stack: Stack, scale: _Scale, progress: Progress) -> dict[str, float]:
    """Seconds per event of every stage and of the idiom, in a Spark session of this process."""
    settings = JobSettings(
        profile=Profile.THROUGHPUT, shuffle_partitions=PARTITIONS, max_events_per_batch=scale.batch
    )
    topics = Topics("staged.")
    folder = stack.folder / "session"
    folder.mkdir()
    progress.step("Spark for the stages", 0.36)
    ensure_topics(stack.bootstrap, topics, partitions=PARTITIONS)
    produce(stack.bootstrap, topics.requests, requests(scale.staged, scale.principals))
    with spark(settings, folder) as session:
        source = Source(
            spark=session.spark, settings=settings, bootstrap=stack.bootstrap, topics=topics, folder=folder
        )
        found: dict[str, float] = {}
        for number, (name, make) in enumerate(stages(source).items()):
            progress.step(f"stage: {name}", 0.40 + 0.1 * number)
            found[name] = seconds_an_event(source, f"stage-{number}", make, _LIMIT_S)
        progress.step("the idiom", 0.70)
        found["idiom"] = _idiom(source, scale)
    return found


def _idiom(source: Source, scale: _Scale) -> float:
    """Seconds per event of one group a principal, after a small batch that warms it up."""
    took = 0.0
    for name, count in (("warm", max(1, scale.idiom // 20)), ("measured", scale.idiom)):
        topics = Topics(f"idiom-{name}.")
        ensure_topics(source.bootstrap, topics, partitions=PARTITIONS)
        produce(source.bootstrap, topics.requests, requests(count, scale.principals, name=name))
        query = start_idiom(
            source.spark,
            bootstrap=source.bootstrap,
            topics=topics,
            checkpoint=source.folder / f"checkpoint-idiom-{name}",
            batch=scale.batch,
        )
        finish(query, _LIMIT_S)
        took = sum(seconds for seconds, _ in progress_of(query))
    return took / scale.idiom


def _local(folder: Path, scale: _Scale) -> float:
    """Events per second of `weir replay --engine local`, from a file to decisions in memory."""
    events, policies = folder / "events.jsonl", folder / "policies.yaml"
    policies.write_text(policy_file(POLICIES))
    with events.open("wb") as file:
        file.writelines(value + b"\n" for _, value in requests(scale.local, scale.principals, ts=True))
    begun = time.monotonic()
    replayed = replay_local(str(policies), [str(events)])
    took = time.monotonic() - begun
    if len(replayed.decisions) != scale.local:
        raise RuntimeError(f"{len(replayed.decisions)} decisions for {scale.local} events")
    return scale.local / took


def _rows(job: dict[str, float], idiom: float, local: float) -> list[Row]:
    events_s = job["events_s"]
    return [
        Row(
            what="job: decisions per second",
            value=events_s,
            unit="events/s",
            target=f">= {TARGET_EVENTS_S:,} events/s",
            met=events_s >= TARGET_EVENTS_S,
        ),
        Row(
            what="job beside one group a principal",
            value=events_s,
            unit="events/s",
            baseline=idiom,
            baseline_what="applyInPandasWithState by principal",
            target=f">= {TARGET_RATIO:.0f} x",
            met=events_s >= TARGET_RATIO * idiom,
        ),
        Row(
            what="job beside the local engine",
            value=events_s,
            unit="events/s",
            baseline=local,
            baseline_what="weir replay, one process",
        ),
        Row(what="job: processor time", value=job["job_us"], unit="us/event"),
        Row(what="broker beside it: processor time", value=job["broker_us"], unit="us/event"),
    ]


def _where(job: dict[str, float], found: dict[str, float], step_s: float, state_s: float) -> list[Row]:
    """Where the time of an event goes, as wall time on all tasks together."""
    kafka_in, shuffle, operator = found.values()
    tasks = PARTITIONS
    parts: dict[str, float] = {
        "Kafka in": kafka_in,
        "routing key, shuffle": shuffle - kafka_in,
        "sort, Arrow both ways, Spark's state store": operator - shuffle - step_s / tasks,
        "law: JSON in, arithmetic, JSON out": (step_s - state_s) / tasks,
        "law: state from and to bytes": state_s / tasks,
        "Kafka out, offsets, planning": 1 / job["events_s"] - operator,
    }
    return [
        Row(what=f"where it goes: {name}", value=took * 1e6, unit="us/event") for name, took in parts.items()
    ]


def _notes(scale: _Scale) -> list[str]:
    return [
        f"{scale.events:,} requests of {scale.principals:,} principals drawn at random, one item each, stand"
        f" on Kafka before the job starts; profile throughput, {PARTITIONS} partitions, {PARTITIONS} tasks,"
        f" batches of {scale.batch:,}. The first {_WARM_BATCHES} batches are warm-up and not counted:"
        " measured from their last decision to the last of all, by the end offsets of weir.decisions, looked"
        " at every 50 ms.",
        f"The idiom: one group a principal with the same law, {scale.idiom:,} of the events in one batch,"
        " after a small one to warm up; its time is Spark's own for the batch.",
        f"The local engine: {scale.local:,} of the events from a file, reading and sorting included.",
        "Where it goes: wall time with all tasks at work. Each stage is the job's query cut short (sink noop)"
        f" less the stage before it, over {scale.staged:,} events, the first batch left out; the law is its"
        f" step alone in one process, divided by {PARTITIONS} tasks; Kafka out is the whole job less the"
        " rest. A negative number says that stages overlap, or that the law runs slower alone.",
    ]
