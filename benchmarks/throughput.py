"""Throughput of the job, Kafka to Kafka, beside the usual way to do it in PySpark and the local engine."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.kit.fixtures import spark
from benchmarks.kit.progress import Progress
from benchmarks.kit.result import Result, Row
from benchmarks.kit.stack import Stack, work_dir
from benchmarks.load.catching_up import CaughtUp, Load, catch_up
from benchmarks.load.events import POLICIES, requests
from benchmarks.load.writing import produce
from benchmarks.spark.idiom import decided
from benchmarks.spark.stages import Source, idiom_seconds, seconds_an_event, stages, step_alone
from streaming.contract.topics import Cluster, Topics
from streaming.job.spark.settings import JobSettings, Profile
from streaming.policy.files import policy_file
from streaming.replay import replay_local
from weir.stack.topics import ensure_topics

TITLE = "Throughput of the job: requests on Kafka to decisions on Kafka"
DURATION_S = 197
TARGET_PACKED_S: Final = 1_000_000
TARGET_RATIO: Final = 300.0
"""Of packed requests to the idiom."""
TARGET_JSON_S: Final = 60_000
SKEW: Final = 1.1
PARTITIONS: Final = 2
"""Of Weir's topics, and tasks of the stateful stage: one a core of the machine that the target is for."""
_LIMIT_S: Final = 150.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """How much: what the jobs find (the first as JSON, the second as packs), principals, and events of
    the other parts.
    """

    loads: tuple[Load, ...]
    principals: int
    staged: int
    idiom: int
    local: int


_FULL = _Scale(
    loads=(
        Load(rows=0, batch=250_000, warm=4, measured=4, target=TARGET_JSON_S),
        Load(rows=20_000, batch=2_000_000, warm=3, measured=3, target=TARGET_PACKED_S),
        Load(rows=20_000, batch=2_000_000, warm=3, measured=3, skew=SKEW),
        Load(rows=500, batch=500_000, warm=2, measured=3),
    ),
    principals=100_000,
    staged=500_000,
    idiom=80_000,
    local=500_000,
)
_SMOKE = _Scale(
    loads=(
        Load(rows=0, batch=3_000, warm=1, measured=1),
        Load(rows=1_000, batch=4_000, warm=1, measured=1),
        Load(rows=1_000, batch=4_000, warm=1, measured=1, skew=SKEW),
    ),
    principals=500,
    staged=6_000,
    idiom=300,
    local=3_000,
)


def run(smoke: bool, progress: Progress) -> Result:
    """Measure the job by what it finds, then each of its stages, the idiom and the local engine."""
    scale = _SMOKE if smoke else _FULL
    folder = work_dir()
    jobs: list[CaughtUp] = []
    for number, load in enumerate(scale.loads):
        with _stack(folder / str(number), load) as stack:
            jobs.append(_job(stack, load, scale.principals, progress, 0.02 + 0.13 * number))
            if not load.rows:
                found = _in_session(stack, scale, progress)
    progress.step("the step alone", 0.92)
    batch = scale.loads[0].batch
    step_s, state_s = step_alone(batch, scale.principals, _settings(batch).shard_count)
    progress.step("local engine", 0.95)
    local = _local(folder, scale)
    idiom = found.pop("idiom")
    rows = [*_rows(scale, jobs, 1 / idiom, local), *_where(jobs[0], found, step_s, state_s)]
    return Result(name="throughput", title=TITLE, rows=rows, notes=_notes(scale))


def _stack(folder: Path, load: Load) -> Stack:
    """A broker of its own, so that nothing is left of the job before."""
    job = {
        "profile": Profile.THROUGHPUT.value, "shuffle_partitions": PARTITIONS,
        "max_events_per_batch": load.records,
    }  # fmt: skip
    return Stack(folder, settings={"job": job}, policies=POLICIES, partitions=PARTITIONS)


def _settings(batch: int) -> JobSettings:
    """Of the job that is measured, with so many records in a batch."""
    return JobSettings(profile=Profile.THROUGHPUT, shuffle_partitions=PARTITIONS, max_events_per_batch=batch)


def _job(stack: Stack, load: Load, principals: int, progress: Progress, begin: float) -> CaughtUp:
    """A job that finds this load; `begin` is the part of the whole benchmark that lies behind."""
    progress.step(f"writing {load.total:,} events, {load.what}", begin)
    load.write(stack, PARTITIONS, principals)

    def done(part: float) -> None:
        progress.step(f"job, {load.what}", begin + 0.06 + 0.1 * part)

    return catch_up(stack, load, limit_s=_LIMIT_S, done=done)


def _in_session(stack: Stack, scale: _Scale, progress: Progress) -> dict[str, float]:
    """Seconds per event of every stage and of the idiom, in a Spark session of this process."""
    settings = _settings(scale.loads[0].batch)
    topics = Topics("staged.")
    folder = stack.folder / "session"
    folder.mkdir()
    progress.step("Spark for the stages", 0.36)
    ensure_topics(Cluster(stack.bootstrap, topics), partitions=PARTITIONS)
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
        ensure_topics(Cluster(source.bootstrap, topics), partitions=PARTITIONS)
        produce(source.bootstrap, topics.requests, requests(count, scale.principals, name=name))
        took = idiom_seconds(
            decided, source.spark, bootstrap=source.bootstrap, read=topics.requests, write=topics.decisions,
            checkpoint=source.folder / f"checkpoint-idiom-{name}", limit_s=_LIMIT_S,
            batch=scale.loads[0].batch,
        )  # fmt: skip
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


def _rows(scale: _Scale, jobs: list[CaughtUp], idiom: float, local: float) -> list[Row]:
    single, best = jobs[:2]
    rows: list[Row] = []
    for load, job in zip(scale.loads, jobs, strict=True):
        rate = Row(f"job, {load.what}: decisions per second", job.events_s, "events/s")
        aim = f">= {load.target:,} events/s"
        rows += [
            replace(rate, target=aim, met=job.events_s >= load.target) if load.target else rate,
            Row(f"job, {load.what}: processor time", job.job_us, "us/event"),
            Row(f"broker beside it, {load.what}: processor time", job.broker_us, "us/event"),
        ]
    skewed = next(job for load, job in zip(scale.loads, jobs, strict=True) if load.skew)
    usual = "applyInPandasWithState by principal"
    return [
        *rows,
        Row(
            f"job, packed, principals by Zipf {SKEW}", skewed.events_s, "events/s",
            baseline=best.events_s, baseline_what="principals drawn evenly",
        ),
        Row(
            "job, packed, beside one group a principal", best.events_s, "events/s",
            baseline=idiom, baseline_what=usual,
            target=f">= {TARGET_RATIO:.0f} x", met=best.events_s >= TARGET_RATIO * idiom,
        ),
        Row(
            "job, single JSON, beside one group a principal", single.events_s, "events/s",
            baseline=idiom, baseline_what=usual,
        ),
        Row(
            "job, single JSON, beside the local engine", single.events_s, "events/s",
            baseline=local, baseline_what="weir replay, one process",
        ),
    ]  # fmt: skip


def _where(job: CaughtUp, found: dict[str, float], step_s: float, state_s: float) -> list[Row]:
    """Where the time of a single JSON event goes, as wall time on all tasks together."""
    kafka_in, shuffle, operator = found.values()
    tasks = PARTITIONS
    parts: dict[str, float] = {
        "Kafka in": kafka_in,
        "routing key, shuffle": shuffle - kafka_in,
        "sort, Arrow both ways, Spark's state store": operator - shuffle - step_s / tasks,
        "law: JSON in, arithmetic, JSON out": (step_s - state_s) / tasks,
        "law: state from and to bytes": state_s / tasks,
        "Kafka out, offsets, planning": 1 / job.events_s - operator,
    }
    return [Row(f"where it goes: {name}", took * 1e6, "us/event") for name, took in parts.items()]


def _notes(scale: _Scale) -> list[str]:
    loads, single = "; ".join(load.about for load in scale.loads), scale.loads[0]
    return [
        f"Requests of {scale.principals:,} principals drawn at random, one item each, stand on Kafka before"
        f" the job starts; profile throughput, {PARTITIONS} partitions, {PARTITIONS} tasks, decisions leave"
        f" packed. {loads}. job.max_events_per_batch counts records, so it is set to these batches.",
        "Warm-up is not counted: measured from the first look at which as many decisions stood there to the"
        " last of all, by a consumer that counts the rows of weir.decisions on the same cores and looks at"
        " least every 50 ms.",
        f"The idiom: one group a principal with the same law, {scale.idiom:,} JSON requests in batches of"
        f" {single.batch:,}, after a small one to warm up; its time is Spark's own for the batches.",
        f"The local engine: {scale.local:,} of the JSON events from a file, reading and sorting included.",
        "Where it goes: wall time of single JSON requests with all tasks at work. Each stage is the job's"
        f" query cut short (sink noop) less the stage before it, over {scale.staged:,} events, the first"
        " batch left out; the law is its step alone in one process, divided by the number of tasks; Kafka out"
        " is the whole job less the rest. A negative number says that stages overlap, or that the law runs"
        " slower alone.",
    ]
