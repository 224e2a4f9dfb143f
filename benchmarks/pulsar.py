"""What the Pulsar proxy costs, beside Pulsar alone and Pulsar's own proxy: pulsar-perf's figures."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

from benchmarks.kit.progress import Progress
from benchmarks.kit.result import Result
from benchmarks.kit.sides import PROXY, Sides, Sum
from benchmarks.kit.stack import Stack, work_dir
from benchmarks.load import pulsar_perf
from benchmarks.load.pulsar_perf import Measured, paced, perf
from benchmarks.peers.build import Unavailable
from benchmarks.peers.pulsar_proxy import own_proxy
from weir.jars.folders import PULSAR, jars_dir
from weir.jars.installation import fetch_jars
from weir.stack.pulsar import LocalPulsar, prepare

TITLE: Final = "The Pulsar proxy: through it and straight to Pulsar"
DURATION_S: Final = 140
SETUP_LIMIT_S: Final = 600
"""For the jars of Pulsar and of its tools, in a first run."""
SHARE: Final = 0.8
ADDED_US: Final = 100.0
"""Targets: rate beside straight, and the added time of a send."""
_DIRECT, _PEER = "straight to Pulsar", "through Pulsar's own proxy"
_SIZE: Final = ("-s", "1000")
_TOPIC: Final = "persistent://public/default/bench"
# Far more than it can: pulsar-perf sends 100 a second unless it is told.
_UNBOUND: Final = "10000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How much of everything.

    Attributes:
        rounds: in each of which every side has its turn.
        produce_s: for which a run of the batching producer is measured.
        consume: messages that a consumer reads, if so many were produced.
        send_s: for which single sends are measured in a run.
        rate: of them a second.
        warm_s: at the beginning of a producer's run, not measured.
    """

    rounds: int
    produce_s: int
    consume: int
    send_s: int
    rate: int
    warm_s: int


_FULL: Final = _Plan(rounds=2, produce_s=2, consume=100_000, send_s=2, rate=200, warm_s=2)
_SMOKE: Final = _Plan(rounds=1, produce_s=1, consume=2_000, send_s=1, rate=200, warm_s=0)


class _Bench:
    """One run of everything.

    Args:
        plan: how much.
        pulsar: the broker.
        stack: Kafka with Weir's topics, on which the proxy is started.
        progress: told how far it is.
        begun: when that began, on time.monotonic.
        peer: process id and address of Pulsar's own proxy; None: it is not here.
    """

    def __init__(
        self, plan: _Plan, pulsar: LocalPulsar, stack: Stack, progress: Progress, begun: float,
        peer: tuple[int, str] | None,
    ) -> None:  # fmt: skip
        proxy = stack.start_proxy(decided=False, pulsar=pulsar.service)
        pids, address = {PROXY: int(proxy["pid"])}, {_DIRECT: pulsar.service, PROXY: str(proxy["listen"])}
        if peer is not None:
            pids[_PEER], address[_PEER] = peer
        self._plan, self._folder = plan, _folder(stack.folder / "perf")
        self._sides = Sides(
            address, pids, plan.rounds, stack.check, progress, DURATION_S, begun=begun, direct=_DIRECT,
            peer=_PEER,
        )  # fmt: skip
        self.rows = self._sides.rows

    def run(self) -> None:
        """Measure everything."""
        plan, folder = self._plan, self._folder
        what = "pulsar-perf produce, batches, 1 kB"

        def batches(address: str) -> Measured:
            return paced(
                address, _TOPIC, folder, "-r", _UNBOUND, *_SIZE, warm_s=plan.warm_s, window_s=plan.produce_s
            )

        # Whoever came first would have a cold broker. Straight, so that both proxies stay equally fresh.
        self._sides.tell("warming the broker up")
        batches(self._sides.address[_DIRECT])
        count = min(plan.consume, self._rates(what, batches))
        what = "pulsar-perf consume, batches, 1 kB"

        def backlog(address: str) -> Measured:
            # A subscription of its own finds everything unread.
            fresh = ("-ss", f"run-{time.monotonic_ns()}", "-sp", "Earliest")
            return perf("consume", address, _TOPIC, folder, "-m", str(count), *fresh)

        self._rates(what, backlog)
        what = f"pulsar-perf produce, {plan.rate}/s, no batches, 1 kB"

        def single(address: str) -> Measured:
            words = ("-r", str(plan.rate), "-db", *_SIZE)
            return paced(address, f"{_TOPIC}-one", folder, *words, warm_s=plan.warm_s, window_s=plan.send_s)

        self._times(what, self._measured(what, single)[0])

    def _measured(
        self, what: str, work: Callable[[str], Measured]
    ) -> tuple[dict[str, list[Measured]], dict[str, Sum]]:
        """Runs at all sides, and their sums in messages; `work` gets an address."""
        found: dict[str, list[Measured]] = {address: [] for address in self._sides.address.values()}

        def noted(address: str) -> tuple[float, float]:
            found[address].append(run := work(address))
            return run.messages, run.messages / run.rate

        sums = self._sides.measured(what, noted)
        return {side: found[address] for side, address in self._sides.address.items()}, sums

    def _rates(self, what: str, work: Callable[[str], Measured]) -> int:
        """Rates, each the mean of all runs, and what they cost; returns how many messages there were."""
        runs, sums = self._measured(what, work)
        rates = {side: fmean(run.rate for run in own) for side, own in runs.items()}
        cpu_us = {side: 1e6 * total.cpu_s / total.amount for side, total in sums.items()}
        met = rates[PROXY] >= SHARE * rates[_DIRECT]
        self._beside(what, rates, "messages/s", target=f">= {SHARE:g} x", met=met)
        cpu = f"{what}: the proxy's CPU"
        self._sides.add(cpu, cpu_us[PROXY], "us CPU/message", cpu_us.get(_PEER), _PEER)
        return sum(run.messages for own in runs.values() for run in own)

    def _times(self, what: str, runs: dict[str, list[Measured]]) -> None:
        """Times of a send, from the call to the receipt; each the mean of the rounds' percentiles."""
        middle = {side: 1e3 * fmean(run.p50_ms for run in own) for side, own in runs.items()}
        late = {side: 1e3 * fmean(run.p99_ms for run in own) for side, own in runs.items()}
        met = middle[PROXY] - middle[_DIRECT] < ADDED_US
        self._beside(f"{what}: p50", middle, "us", target=f"< {ADDED_US:.0f} us more", met=met)
        self._beside(f"{what}: p99", late, "us")

    def _beside(
        self, what: str, by_side: dict[str, float], unit: str, target: str = "", met: bool | None = None
    ) -> None:
        """Ours beside straight to Pulsar, which the target is about, and the peer's, if it is here."""
        self._sides.add(what, by_side[PROXY], unit, by_side[_DIRECT], target=target, met=met)
        self._sides.beside(what, by_side, unit, less=unit == "us")


def run(smoke: bool, progress: Progress) -> Result:
    """Measure the same work straight to Pulsar, through the proxy and through Pulsar's own, in turn."""
    plan = _SMOKE if smoke else _FULL
    _prepare(smoke, progress)
    skipped, begun = list[str](), time.monotonic()
    with ExitStack() as running:
        progress.step("starting Kafka", 0.0)
        stack = running.enter_context(Stack(work_dir()))
        progress.step("starting Pulsar", 0.05)
        pulsar = running.enter_context(LocalPulsar(stack.folder / "pulsar"))
        progress.step("starting the proxies", 0.15)
        peer = None
        try:
            peer = running.enter_context(own_proxy(pulsar, _folder(stack.folder / "own")))
        except Unavailable as reason:
            skipped.append(str(reason))
        bench = _Bench(plan, pulsar, stack, progress, begun, peer)
        bench.run()
    return Result(name="pulsar", title=TITLE, rows=bench.rows, notes=_notes(plan), skipped=skipped)


def _prepare(smoke: bool, progress: Progress) -> None:
    """See to the jars; a smoke run fetches none."""

    def say(words: str) -> None:
        progress.step(words, 0.0)

    if smoke:
        for kind in (PULSAR, pulsar_perf.KIND):
            jars_dir(kind)
    else:
        prepare(say)
        fetch_jars(pulsar_perf.KIND, say)


def _folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def _notes(plan: _Plan) -> list[str]:
    heap = f"a heap of {pulsar_perf.HEAP_MB} MiB"
    return [
        f"pulsar-perf and Pulsar's own proxy {_version(pulsar_perf.KIND, 'pulsar-proxy')}, broker "
        f"{_version(PULSAR, 'pulsar-broker')}; one client, one topic, one standalone broker; client, "
        "broker and proxies share the machine's cores: what the proxy takes, the others lack.",
        f"All sides in turn, {plan.rounds} round, the order reversed each time; each "
        f"run is a new JVM with {heap}.",
        f"Producing batches: at its defaults (1 ms), as fast as it can: receipts in {plan.produce_s} s "
        f"after {plan.warm_s} s of warming up. Consuming: the first {plan.consume:,} messages of that, by "
        "pulsar-perf's own count from the subscription on.",
        f"Without batches: {plan.rate} a second for {plan.send_s} s after {plan.warm_s} s; from the call to "
        "the receipt. The time from producer to consumer is not shown: it is given in whole milliseconds.",
        f"Our proxy has no limits and no job; Pulsar's own is at its defaults with {heap}. The broker has "
        "had a producer before, straight; neither proxy has. Their CPU is that of whole runs, start and "
        "end included.",
    ]


def _version(kind: str, stem: str) -> str:
    names = [path.stem for path in jars_dir(kind).glob(f"{stem}-[0-9]*.jar")]
    return names[0].removeprefix(f"{stem}-") if names else "unknown"
