"""What a proxy adds to a record's way where publishers wait for nobody, and at which rate it ends."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import combinations
from statistics import mean, median
from typing import Any, Final

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.kit.progress import Progress
from benchmarks.kit.result import Result, Row, percentile
from benchmarks.kit.sides import DIRECT, PEER, PROXY
from benchmarks.kit.stack import Stack, work_dir
from benchmarks.open_loop.pace import delays_ms
from benchmarks.peers.build import Unavailable
from benchmarks.peers.kroxylicious import build, built, kroxylicious

TITLE: Final = "Open loop: what the proxy adds to a record's way, at rates that wait for nobody"
DURATION_S: Final = 420
LIMITED: Final = "through the proxy, limits in force"
SIZE: Final = 1_000
_ENDLESS: Final = 1_000_000_000_000
POLICIES: Final[dict[str, Any]] = {
    "quotas[user=<default>]": {
        "producer_byte_rate": _ENDLESS, "consumer_byte_rate": _ENDLESS, "controller_mutation_rate": _ENDLESS,
    },
    "namespaces.public/default": {"subscriptionDispatchRate": {"dispatchThrottlingRateInMsg": 1_000_000_000}},
}  # fmt: skip
"""Limits that nobody reaches."""
_ADMIN_LIMIT_S: Final = 30.0
_KEPT_UP: Final = 500.0
"""A rate is borne if half of its records are there within so much of their time, ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How much of everything.

    Attributes:
        loads: (topics, records a second of all of them).
        windows: of each load and side.
        window_s: how long one is; its first third is not counted.
        sweep: records a second of the ten topics, rising.
    """

    loads: Sequence[tuple[int, int]] = ((10, 5_000), (100, 5_000))
    windows: int = 5
    window_s: float = 4.5
    sweep: Sequence[int] = (10_000, 15_000, 20_000, 30_000, 40_000)


_SMOKE: Final = _Plan(loads=((2, 200),), windows=1, window_s=1.0, sweep=())


@dataclass(slots=True)
class Windows:
    """What one side's windows had, ms."""

    means: list[float] = field(default_factory=list)
    p99s: list[float] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)

    def add(self, delays: list[float]) -> None:
        """One window, without its first third."""
        kept = delays[len(delays) // 3 :]
        self.means.append(mean(kept))
        self.p99s.append(percentile(sorted(kept), 99))
        self.delays += kept


class _Bench:
    """One run of everything."""

    def __init__(self, plan: _Plan, address: dict[str, str], stack: Stack, progress: Progress) -> None:
        self._plan, self._address, self._stack, self._progress = plan, address, stack, progress
        self._steps = plan.windows * len(plan.loads) * len(address) + len(plan.sweep) * len(address)
        self._done = 0
        self.rows: list[Row] = []
        self.series: dict[str, list[float]] = {}

    def load(self, topics: Sequence[str], rate: int) -> None:
        """Windows of all sides in turn, the order reversed each time."""
        plan, found = self._plan, {side: Windows() for side in self._address}
        what = f"{len(topics)} topics, {rate:,}/s"
        for number in range(plan.windows):
            for side in list(found)[:: -1 if number % 2 else 1]:
                found[side].add(self._delays(what, side, topics, rate, plan.window_s))
        straight = found.pop(DIRECT)
        for side, windows in found.items():
            for name, own, base in (
                ("mean", windows.means, straight.means), ("p99", windows.p99s, straight.p99s),
            ):  # fmt: skip
                told = f"{what}, {name}, {side}"
                self._add(told, median(own), "ms", median(base))
                self._add(f"{told}: by chance as far apart", by_chance(own, base), "(p)")
        self.series |= {f"{what} {side}, ms": own.delays for side, own in {DIRECT: straight, **found}.items()}

    def sweep(self, topics: Sequence[str]) -> None:
        """The greatest rate that each side bears."""
        borne = dict.fromkeys(self._address, 0)
        for side in self._address:
            for rate in self._plan.sweep:
                delays = self._delays(f"{rate:,}/s", side, topics, rate, self._plan.window_s)
                if median(delays[len(delays) // 3 :]) > _KEPT_UP:
                    break
                borne[side] = rate
        straight = borne.pop(DIRECT)
        for side, rate in borne.items():
            self._add(f"the greatest rate that is borne, {side}", rate, "records/s", straight)

    def _add(self, what: str, value: float, unit: str, baseline: float | None = None) -> None:
        beside = "" if baseline is None else DIRECT
        self.rows.append(Row(what=what, value=value, unit=unit, baseline=baseline, baseline_what=beside))

    def _delays(self, what: str, side: str, topics: Sequence[str], rate: int, seconds: float) -> list[float]:
        self._stack.check()
        self._progress.step(f"{what}, {side}", min(0.98, self._done / self._steps))
        self._done += 1
        return delays_ms(self._address[side], topics, rate, seconds, SIZE)


def by_chance(some: Sequence[float], others: Sequence[float]) -> float:
    """How often chance alone has two groups as far apart: Mann and Whitney's test, two-sided, exact."""
    pooled = sorted([*some, *others])
    ranks = [mean(at for at, each in enumerate(pooled) if each == value) for value in some]
    middle = len(some) * (len(pooled) - 1) / 2
    seen = abs(sum(ranks) - middle)
    all_of = [mean(at for at, each in enumerate(pooled) if each == value) for value in pooled]
    drawn = [abs(sum(draw) - middle) for draw in combinations(all_of, len(some))]
    return sum(each >= seen - 1e-9 for each in drawn) / len(drawn)


def run(smoke: bool, progress: Progress) -> Result:
    """Straight to Kafka, through the proxy without and with limits, and through Kroxylicious, in turn."""
    plan, skipped = _SMOKE if smoke else _Plan(), list[str]()
    try:
        if smoke and not built():
            raise Unavailable("kroxylicious: not fetched, and a smoke run fetches nothing")
        build()
    except Unavailable as reason:
        skipped.append(str(reason))
    progress.step("starting Kafka and the proxies", 0.0)
    with ExitStack() as running:
        own = {"proxy": {"broker_port_base": 0}}
        stack = running.enter_context(Stack(work_dir(), settings=own))
        limited = running.enter_context(Stack(work_dir(), settings=own, policies=POLICIES, beside=stack))
        address = {DIRECT: stack.bootstrap, PROXY: str(stack.start_proxy(decided=False)["listen"])}
        limited.start_job()
        address[LIMITED] = str(limited.start_proxy()["listen"])
        if not skipped:
            address[PEER] = running.enter_context(kroxylicious(stack.bootstrap, stack.folder))[1]
        bench = _Bench(plan, address, stack, progress)
        for number, (count, rate) in enumerate(plan.loads):
            bench.load(_topics(stack, f"load{number}", count), rate)
        if plan.sweep:
            bench.sweep(_topics(stack, "sweep", plan.loads[0][0]))
    notes = [
        f"Records of {SIZE} bytes to topics of one partition, by a producer of librdkafka (acks=all, linger "
        "1 ms, batches of 128 kB) and one consumer, each a process; a delay is from when a record was due to "
        "when the consumer had it.",
        f"{plan.windows} windows of {plan.window_s:.0f} s of each load and side, in turn, the order reversed "
        "each time; the first third of a window is not counted. Means and p99 are medians over windows; p is "
        "how often chance alone has windows of a side and straight ones as far apart (Mann, Whitney, exact).",
        "The job of the proxy with limits runs all the time; client, Kafka and proxies share the cores.",
        f"A rate is borne if half of its records come within {_KEPT_UP:.0f} ms; tried: "
        + ", ".join(f"{rate:,}" for rate in plan.sweep) + ".",
    ]  # fmt: skip
    return Result(
        name="open_loop", title=TITLE, rows=bench.rows, series=bench.series, skipped=skipped, notes=notes
    )


def _topics(stack: Stack, name: str, count: int) -> list[str]:
    """New ones, of one partition each."""
    names = [f"{name}-{number:03}" for number in range(count)]
    admin = AdminClient({"bootstrap.servers": stack.bootstrap})
    for each in admin.create_topics([NewTopic(name, 1) for name in names]).values():
        each.result(_ADMIN_LIMIT_S)
    return names
