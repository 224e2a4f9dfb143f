"""Growth: what a batch and a round cost in the job's worker as principals, groups and proxies grow."""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from benchmarks.kit.machine import peak_bytes
from benchmarks.kit.progress import Progress
from benchmarks.kit.result import Result, Row
from benchmarks.load import rounds
from benchmarks.load.events import POLICIES, SEED, T0, drawn, packed_by
from benchmarks.load.rounds import Cluster
from benchmarks.spark.lone_worker import LoneWorker, Taken, apart
from streaming.columns.byte_strings import Integers
from streaming.job import schemas
from streaming.job.spark.memory import give_back
from streaming.laws.shard import SWEEP_MS

TITLE = "Growth: a batch and a round in the job's worker as principals, groups and proxies grow"
DURATION_S = 75
SKEW: Final = 1.1
GROWTH_TARGET: Final = 1.25
"""Batch time with a million principals over that with ten thousand: what two runs of the same differ by."""
AIMED_AT: Final = 1_000_000
BYTES_TARGET: Final = 150
_BATCH_MS: Final = 250
"""Between two batches, by the events' time."""
_WARM: Final = 2
_SHARDS: Final = 2
"""Of groups, as on the machine that the targets of `scale` are for."""
_SPREAD: Final = 5
_ALONE: Final = 5
"""Reports that come in a batch of their own."""
_ENTRIES: Final = 1_000_000
"""Of all rounds measured, about: large ones are fewer."""
_BATCH, _STATE = "a batch, ms", "state, MB"
Point = Mapping[str, float]
"""What was measured, by its name and unit: `a batch, ms`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """What grows, and what that costs.

    Attributes:
        axis: what grows.
        case: what a point is called, `{}` for how much there is.
        points: by that.
    """

    axis: str
    case: str
    points: dict[int, Point] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """How much.

    Attributes:
        known: principals, in turn.
        active: of them in a batch.
        batches: that are measured of each kind, after _WARM.
        fill: principals that become known at once.
        groups: in turn, by `most` proxies.
        proxies: in turn, by `shared` groups.
        rounds: that are measured at most, after one in which the groups become known.
    """

    known: tuple[int, ...]
    active: int
    batches: int
    fill: int
    groups: tuple[int, ...]
    most: int
    proxies: tuple[int, ...]
    shared: int
    rounds: int


_FULL = _Scale(
    known=(10_000, 100_000, AIMED_AT, 10_000_000), active=10_000, batches=20, fill=500_000,
    groups=(100, 10_000, 1_000_000), most=100,
    proxies=(1, 10, 100), shared=30_000, rounds=3,
)  # fmt: skip
_SMOKE = _Scale(
    known=(600, 2_000), active=500, batches=2, fill=1_000, groups=(10, 100), most=10, proxies=(1, 10),
    shared=100, rounds=1,
)  # fmt: skip


def run(smoke: bool, progress: Progress) -> Result:
    """Principals in one process, each cluster in its own: the memory of a point is nobody else's."""
    scale = _SMOKE if smoke else _FULL
    shared, most = f"{scale.shared:,} groups", f"{scale.most} proxies"
    principals = Series(axis="principals known", case="{} principals known")
    groups = Series(axis=f"groups, {most}", case=f"{{}} groups, {most}")
    proxies = Series(axis=f"proxies, {shared}", case=f"{shared}, {{}} proxies")
    cases = [(groups, size, _cluster(size, scale.most)) for size in scale.groups]
    cases += [(proxies, size, _cluster(scale.shared, size)) for size in scale.proxies]
    with tempfile.TemporaryDirectory() as name:
        progress.step("principals", 0.05)
        principals.points.update(apart(_batches, Path(name) / "principals", scale))
        for number, (series, size, cluster) in enumerate(cases):
            progress.step(series.case.format(f"{size:,}"), 0.5 + 0.5 * number / len(cases))
            series.points[size] = apart(_rounds, Path(name) / str(number), cluster, scale.rounds)
    all_of_them = [principals, groups, proxies]
    return Result(
        name="growth", title=TITLE, rows=rows(all_of_them), notes=_notes(scale),
        curves={series.axis: _curves(series.points) for series in all_of_them},
    )  # fmt: skip


def _cluster(groups: int, proxies: int) -> Cluster:
    return Cluster(groups=groups, brokers=proxies, spread=min(_SPREAD, proxies))


def _batches(folder: Path, scale: _Scale) -> dict[int, Point]:
    """Batches of a few of all principals, while those that are known grow."""
    worker, draw, now = LoneWorker(folder, POLICIES, shards=1), np.random.default_rng(SEED), T0
    found: dict[int, Point] = {}
    known = 0
    for size in scale.known:
        for first in range(known, size, scale.fill):
            worker.take(_requests(np.arange(first, min(first + scale.fill, size))), now)
        known, count = size, _WARM + scale.batches
        evenly = [drawn(draw, size, scale.active, 0.0) for _ in range(count)]
        # All at once, since weights of all principals are summed up for it.
        skewed = drawn(draw, size, count * scale.active, SKEW).reshape(count, -1)
        _forget_peak()
        times = []
        for who in (*evenly, *skewed):
            now += _BATCH_MS
            times.append(worker.take(_requests(who), now).seconds * 1e3)
        now += SWEEP_MS
        swept = worker.take(_requests(drawn(draw, size, scale.active, 0.0)), now)
        found[size] = {
            _BATCH: median(times[_WARM:count]),
            f"by Zipf {SKEW}, ms": median(times[count + _WARM :]),
            "the slowest, ms": max(times[_WARM:]),
            "one that looks for the idle, ms": swept.seconds * 1e3,
            _STATE: worker.state_bytes() / 1e6,
            "memory, MB": peak_bytes(os.getpid()) / 1e6,
        }
    return found


def _requests(who: Integers) -> list[tuple[int, bytes]]:
    return [(schemas.PACKED_EVENT, value) for value in packed_by(who, name="growth")]


def _rounds(folder: Path, cluster: Cluster, most: int) -> Point:
    """Rounds of a cluster: the reports of all proxies in a batch, then the tick that closes it."""
    worker = LoneWorker(folder, rounds.POLICIES, shards=_SHARDS)
    measured = max(1, min(most, _ENTRIES // cluster.entries))
    took: list[tuple[Taken, Taken]] = []
    for number in range(1 + measured):
        reports = _reports(cluster, number)
        _forget_peak()
        taken, tick = worker.take(reports, cluster.begin(number)), [(schemas.USAGE, cluster.tick(number))]
        took.append((taken, worker.take(tick, cluster.begin(number + 1))))
    memory = peak_bytes(os.getpid())
    later = _reports(cluster, 1 + measured)[:_ALONE]
    alone = [worker.take([one], cluster.begin(1 + measured)) for one in later]
    cpu_s = median(taken.cpu_s + closed.cpu_s for taken, closed in took[1:])
    return {
        "a round, s": median(taken.seconds + closed.seconds for taken, closed in took[1:]),
        "CPU, us/entry": cpu_s / cluster.entries * 1e6,
        "a batch of one report, ms": median(taken.seconds for taken in alone) * 1e3,
        "reports, MB": sum(len(value) for _, value in reports) / 1e6,
        "shares, MB": took[-1][1].written / 1e6,
        "memory, MB": memory / 1e6,
    }


def _reports(cluster: Cluster, number: int) -> list[tuple[int, bytes]]:
    return [(schemas.PACKED_USAGE, value) for _, value in cluster.reports(number, packed=True)]


def _forget_peak() -> None:
    """Have the most memory that this process holds counted from now on."""
    give_back()
    Path("/proc/self/clear_refs").write_text("5")


def rows(series: Sequence[Series]) -> list[Row]:
    """Each point beside the one before, and what is aimed at."""
    known = series[0].points
    fewest, most = min(known), max(known)
    found = [row for one in series for row in _grown(one)]
    each = known[most][_STATE] * 1e6 / most
    aim = f"< {BYTES_TARGET} bytes"
    found.append(Row("state per principal", each, "bytes", target=aim, met=each < BYTES_TARGET))
    if AIMED_AT in known:
        took, base = known[AIMED_AT][_BATCH], known[fewest][_BATCH]
        what, few = f"a batch, {AIMED_AT:,} principals known", f"{fewest:,} known"
        row = Row(what, took, "ms", baseline=base, baseline_what=few)
        found.append(replace(row, target=f"<= {GROWTH_TARGET} x", met=took <= GROWTH_TARGET * base))
    return found


def _grown(series: Series) -> Iterator[Row]:
    before: Point = {}
    for size, point in series.points.items():
        for name, value in point.items():
            what, _, unit = name.rpartition(", ")
            case, base = series.case.format(f"{size:,}"), before.get(name)
            yield Row(f"{case}: {what}", value, unit, baseline=base, baseline_what="the point before")
        before = point


def _curves(points: Mapping[int, Point]) -> dict[str, list[list[float]]]:
    names = next(iter(points.values()))
    return {name: [[size, point[name]] for size, point in points.items()] for name in names}


def _notes(scale: _Scale) -> list[str]:
    return [
        "What the job's Python worker runs, in one process without Spark and Kafka: routing, each shard's"
        " step on packed records, state read and written with segments in a folder, decisions packed. Time"
        " is all of it, shards one after the other.",
        f"Principals: one shard, batches of {scale.active:,} requests {_BATCH_MS} ms apart by their own time,"
        f" medians of {scale.batches} after {_WARM}: of as many principals, any of those known, then as"
        f" Zipf's law with exponent {SKEW} draws them. Every 5 s a batch looks through all that rest for"
        " debts, once a minute for those that are idle. Names have about 22 bytes.",
        f"Groups: {_SHARDS} shards; each group is used through {_SPREAD} of the proxies, or all if they"
        " are fewer, and one dimension is limited, by a default quota. A round is a batch with the reports"
        f" of all and one with the tick that closes it; medians of up to {scale.rounds}, after one in which"
        " they become known. An entry is a group of a proxy. A batch of one report is what a job that waits"
        " for nobody has for each proxy in a round.",
        "State is what the newest batch left. Memory is the most that the process held in what was measured,"
        " mapped segments and what it shares with its parent included. Bytes are those of values and keys.",
    ]
