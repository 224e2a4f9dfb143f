"""The job on a Spark cluster: one and two executors of one core each, beside one thread of one process."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.kit.machine import cpu_s
from benchmarks.kit.progress import Progress
from benchmarks.kit.result import Result, Row
from benchmarks.kit.spark_cluster import SparkCluster
from benchmarks.kit.stack import Stack, work_dir
from benchmarks.load.catching_up import CaughtUp, Load, catch_up
from benchmarks.load.events import POLICIES
from streaming.job.spark.settings import Profile
from weir.stack.kafka import HOST

TITLE: Final = "The job on a Spark cluster: executors of one core each"
DURATION_S: Final = 210
TASKS: Final = 2
"""Of the stateful stage, on one executor too: what was chosen for two is kept."""
_LIMIT_S: Final = 240.0
_LOOK_S: Final = 1.0
_ONE: Final = "one process, local[1]"


_LOADS: Final = (
    Load(rows=20_000, batch=500_000, warm=2, measured=3),
    Load(rows=0, batch=50_000, warm=1, measured=2),
)
_SMOKE: Final = (Load(rows=1_000, batch=4_000, warm=1, measured=1),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """Where a job runs.

    Attributes:
        what: for people.
        executors: of the cluster; 0: it is one process.
        partitions: of the topic of requests: as many tasks read it.
    """

    what: str
    executors: int
    partitions: int = TASKS


_CASES: Final = (
    _Case(what=_ONE, executors=0),
    _Case(what="1 executor", executors=1),
    _Case(what="2 executors", executors=2),
    _Case(what="2 executors, requests on 1 partition", executors=2, partitions=1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What one job was seen to do.

    Attributes:
        job: how fast, and its driver's processor time (local: all of it).
        executors_us: processor time of the executors, microseconds a decision, the warm-up included.
        phases: part of its batches' time by phase, the warm-up included.
    """

    job: CaughtUp
    executors_us: float
    phases: dict[str, float]


def run(smoke: bool, progress: Progress) -> Result:
    """Measure each kind of load in each place."""
    folder, loads = work_dir(), _SMOKE if smoke else _LOADS
    principals = 500 if smoke else 100_000
    # A batch in a smoke run is a second long wherever it runs: two places show that the benchmark works.
    cases = (_CASES[0], _CASES[2]) if smoke else _CASES
    rows: list[Row] = []
    for number, load in enumerate(loads):
        seen: dict[str, _Seen] = {}
        # What reads a topic of one partition is seen by one kind of load.
        for place, case in enumerate(cases if load.rows else cases[:3]):
            part = (number * len(cases) + place) / (len(loads) * len(cases))
            progress.step(f"{load.what}, {case.what}", part)
            seen[case.what] = _measured(folder / f"{number}-{place}", load, case, principals)
        rows += _rows(load, seen)
    return Result(name="spark_cluster", title=TITLE, rows=rows, notes=_notes(loads, principals))


def _measured(folder: Path, load: Load, case: _Case, principals: int) -> _Seen:
    folder.mkdir()
    with _cluster(folder, case.executors) as cluster:
        job: dict[str, Any] = {
            "profile": Profile.THROUGHPUT.value,
            "shuffle_partitions": TASKS,
            "max_events_per_batch": load.records,
            "master": cluster.url if cluster else "local[1]",
            "spark_conf": {"spark.driver.host": HOST},
        }
        with Stack(folder, settings={"job": job}, policies=POLICIES, partitions=case.partitions) as stack:
            load.write(stack, case.partitions, principals)
            watched = _Watched(stack, cluster)
            caught = catch_up(stack, load, limit_s=_LIMIT_S, done=watched.look)
    return _Seen(job=caught, executors_us=watched.executors_us(load.total), phases=_shares(watched.phases))


class _Watched:
    """A job that is looked at once a second, since its executors end with it."""

    def __init__(self, stack: Stack, cluster: SparkCluster | None) -> None:
        self._stack, self._cluster = stack, cluster
        self._next, self._part, self._executors_s = 0.0, 0.0, 0.0
        self.phases: dict[str, float] = {}

    def look(self, part: float) -> None:
        """Remember what it has used and done until now."""
        if not part or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _LOOK_S
        self.phases = _phases(self._stack)
        workers = self._cluster.workers if self._cluster else []
        self._executors_s, self._part = sum(cpu_s(worker.pid) for worker in workers), part

    def executors_us(self, total: int) -> float:
        """Processor time of the executors, microseconds a decision that was made by then."""
        return self._executors_s / (self._part * total) * 1e6 if self._part else 0.0


@contextmanager
def _cluster(folder: Path, executors: int) -> Iterator[SparkCluster | None]:
    if not executors:
        yield None
        return
    with SparkCluster(folder / "cluster", executors, options=()) as cluster:
        yield cluster


def _phases(stack: Stack) -> dict[str, float]:
    """Seconds of all batches so far, by phase (docs/metrics.md)."""
    return {
        dict(labels)["phase"]: value
        for (name, labels), value in stack.metrics("job").items()
        if name == "weir_job_batch_seconds_sum"
    }


def _shares(phases: dict[str, float]) -> dict[str, float]:
    total = phases.pop("total", 0.0)
    return {phase: seconds / total for phase, seconds in phases.items()} if total else {}


def _rows(load: Load, seen: dict[str, _Seen]) -> list[Row]:
    base = seen[_ONE].job  # always the first
    named = {f"{load.what}, {what}": one for what, one in seen.items()}
    first, *others = named.items()
    rows = [Row(first[0], base.events_s, "events/s")]
    rows += [
        Row(what, one.job.events_s, "events/s", baseline=base.events_s, baseline_what=_ONE)
        for what, one in others
    ]
    rows += [
        Row(f"{what}: processor time of driver and executors", one.job.job_us + one.executors_us, "us/event")
        for what, one in others
    ]
    for what, one in named.items():
        serial = sum(part for phase, part in one.phases.items() if phase != "run")
        rows.append(Row(f"{what}: part of a batch in which no task runs", 100 * serial, "%"))
    return rows


def _notes(loads: tuple[Load, ...], principals: int) -> list[str]:
    of = "; ".join(load.about for load in loads)
    return [
        f"Requests of {principals:,} principals stand on Kafka before the job starts; profile throughput, "
        f"{TASKS} tasks and shards everywhere. {of}.",
        "Driver, broker and executors share the machine's two cores, so two executors cannot be twice as "
        "fast as one: what is compared is what a cluster costs, and that its parts work side by side.",
        "A standalone cluster: a master and a worker of one core for each executor; checkpoint and cold rows "
        "in a folder that all share.",
        "The executors' processor time, and the part without tasks, include their start and the warm-up, so "
        "the first stands beside nothing.",
        "No task runs while the driver looks for offsets, plans, and writes its two logs.",
    ]
