"""What a proxy adds to a record's way where publishers wait for nobody, and at which rate it ends."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import combinations
from random import Random
from statistics import mean, median
from typing import Any, Final

from benchmarks.kit.progress import Progress
from benchmarks.kit.result import Result, Row, percentile
from benchmarks.kit.sides import DIRECT, PROXY
from benchmarks.kit.stack import Stack, work_dir
from benchmarks.load.writing import make_topics
from benchmarks.open_loop.pace import delays_ms
from benchmarks.peers.kafka_proxies import KafkaProxies

TITLE: Final = "Open loop: what the proxy adds to a record's way, at rates that wait for nobody"
DURATION_S: Final = 445
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
_KEPT_UP_MS, _GROWN, _GROWN_MS = 500.0, 1.3, 50.0
_WARM_S: Final = 2.0


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
    window_s: float = 3.5
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

    def __init__(
        self, plan: _Plan, address: dict[str, str], stacks: Sequence[Stack], progress: Progress
    ) -> None:
        self._plan, self._address, self._stacks, self._progress = plan, address, stacks, progress
        self._steps = len(address) * ((plan.windows + 1) * len(plan.loads) + len(plan.sweep))
        self._done = 0
        self.rows: list[Row] = []
        self.series: dict[str, list[float]] = {}

    def load(self, topics: Sequence[str], rate: int) -> None:
        """Windows of all sides in turn."""
        plan, found = self._plan, {side: Windows() for side in self._address}
        what = f"{len(topics)} topics, {rate:,}/s"
        for side in found:
            self._delays(f"{what}, to warm up", side, topics, rate, min(_WARM_S, plan.window_s))
        for number in range(plan.windows):
            for side in in_turn(list(found), number):
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
        """The greatest of the rates tried that each side bears."""
        borne, left = dict.fromkeys(self._address, 0), list(self._address)
        for number, rate in enumerate(self._plan.sweep):
            for side in in_turn(left, number):
                if is_borne(self._delays(f"{rate:,}/s", side, topics, rate, self._plan.window_s)):
                    borne[side] = rate
                else:
                    left.remove(side)
        straight = borne.pop(DIRECT)
        for side, rate in borne.items():
            self._add(f"the greatest of the rates tried that is borne, {side}", rate, "records/s", straight)

    def _add(self, what: str, value: float, unit: str, baseline: float | None = None) -> None:
        self.rows.append(Row(what, value, unit, baseline=baseline, baseline_what=DIRECT))

    def _delays(self, what: str, side: str, topics: Sequence[str], rate: int, seconds: float) -> list[float]:
        for stack in self._stacks:
            stack.check()
        self._progress.step(f"{what}, {side}", min(0.98, self._done / self._steps))
        self._done += 1
        return delays_ms(self._address[side], topics, rate, seconds, SIZE)


def in_turn(sides: Sequence[str], number: int) -> list[str]:
    """In an order drawn for each round, so that what one leaves undone falls on all alike."""
    return Random(number).sample(list(sides), len(sides))


def is_borne(delays: Sequence[float]) -> bool:
    """Whether a rate is: in the last third records are there in time, and not later and later."""
    third = len(delays) // 3
    middle, late = median(delays[third : 2 * third]), median(delays[2 * third :])
    return late <= min(_KEPT_UP_MS, _GROWN * middle + _GROWN_MS)


def by_chance(some: Sequence[float], others: Sequence[float]) -> float:
    """How often chance alone has two groups as far apart: Mann and Whitney's test, two-sided, exact."""
    pooled = sorted([*some, *others])
    ranks = [mean(at for at, each in enumerate(pooled) if each == value) for value in pooled]
    middle = len(some) * (len(pooled) - 1) / 2
    seen = abs(sum(ranks[pooled.index(value)] for value in some) - middle)
    drawn = [abs(sum(draw) - middle) for draw in combinations(ranks, len(some))]
    return sum(each >= seen - 1e-9 for each in drawn) / len(drawn)


def run(smoke: bool, progress: Progress) -> Result:
    """Straight to Kafka, through the proxy without and with limits, HAProxy and Kroxylicious, in turn."""
    plan, peers = _SMOKE if smoke else _Plan(), KafkaProxies.here(smoke)
    progress.step("starting Kafka and the proxies", 0.0)
    with ExitStack() as running:
        own, behind = {"proxy": {"broker_port_base": 0}}, peers.behind()
        stack = running.enter_context(Stack(work_dir(), settings=own, behind=behind))
        # First, so that all have leaders when they are used.
        loads = [(_topics(stack, f"load{at}", count), rate) for at, (count, rate) in enumerate(plan.loads)]
        to_sweep = _topics(stack, "sweep", plan.loads[0][0])
        limited = running.enter_context(Stack(work_dir(), settings=own, policies=POLICIES, beside=stack))
        address = {DIRECT: stack.bootstrap, PROXY: str(stack.start_proxy(decided=False)["listen"])}
        limited.start_job()
        address[LIMITED] = str(limited.start_proxy()["listen"])
        others = running.enter_context(peers.running(stack.bootstrap, behind, stack.folder))
        address |= {side: listen for side, (_, listen) in others.items()}
        bench = _Bench(plan, address, (stack, limited), progress)
        for names, rate in loads:
            bench.load(names, rate)
        if plan.sweep:
            bench.sweep(to_sweep)
    notes = [
        f"Records of {SIZE} bytes to topics of one partition, by a producer of librdkafka (acks=all, linger "
        "1 ms, batches of 128 kB) and one consumer, each a process; a delay is from when a record was due to "
        "when the consumer had it.",
        f"{plan.windows} windows of {plan.window_s:g} s of each load and side, in turn after one to warm "
        "up, each time in another order; the third that was due first is not counted. Means and p99 are "
        "medians over windows; p is how often chance alone has windows of a side and straight ones as far "
        "apart (Mann, Whitney, exact): of so many rows one in 20 is below 0.05 by chance.",
        "The job of the proxy with limits runs all the time; client, Kafka and proxies share the cores.",
        f"A rate is borne if half of the last third's records come within {_KEPT_UP_MS:.0f} ms, and within "
        f"{_GROWN:g} x the time of the third before and {_GROWN_MS:.0f} ms; tried once each: "
        + ", ".join(f"{rate:,}" for rate in plan.sweep) + ".",
    ]  # fmt: skip
    return Result(
        name="open_loop", title=TITLE, rows=bench.rows, notes=notes, series=bench.series,
        skipped=peers.skipped,
    )  # fmt: skip


def _topics(stack: Stack, name: str, count: int) -> list[str]:
    """New ones, of one partition each."""
    names = [f"{name}-{number:03}" for number in range(count)]
    make_topics(stack.bootstrap, *names)
    return names
