"""Latency of strict requests: from the request until its decision is in the proxy's hands."""

from dataclasses import dataclass, replace
from typing import Final

import uvloop

from benchmarks.kit.progress import Progress
from benchmarks.kit.result import Result, Row, percentile
from benchmarks.kit.stack import Stack, work_dir
from benchmarks.load.asking import Asker, Client, EventLink, drive, settled
from benchmarks.load.deciding import decisions_us
from benchmarks.load.events import POLICIES
from streaming.contract.errors import WeirError
from streaming.contract.events import ANONYMOUS

TITLE = "Strict latency: request sent to decision received"
DURATION_S = 264
WARM_RATE: Final = 200.0
DRY_RATE: Final = 50.0
CREATION_RATE: Final = 8.0
"""Of each of two clients: at most half of what a broker can do."""
TARGETS_MS: Final = {50.0: 100.0, 99.0: 200.0}
"""At WARM_RATE, by percentile."""
LOCAL_TARGETS: Final = {50.0: 1.5, 99.0: 2.0}
"""Through the proxy, decided there, of straight to Kafka."""
DECISION_TARGETS_US: Final = {50.0: 20.0, 99.9: 200.0}
"""Of the decision itself, by percentile."""
PRINCIPALS: Final = 1_000
_ROOM: Final = {"controller_mutation_rate": 1_000.0, "controller_mutation_burst": 10_000.0}
"""What the clients may do: none of them is to be refused."""
_TIMEOUT_MS: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Seconds of warm-up, of a pause between rates, of each window and of that of creations; requests per
    second; decisions.
    """

    warm_s: float
    settle_s: float
    window_s: float
    creation_s: float
    rates: tuple[float, ...]
    decisions: int

    def total_s(self) -> float:
        """Seconds of all windows and what is between them."""
        windows = len(self.rates) + 1
        return self.warm_s + windows * (self.settle_s + self.window_s) + self.settle_s + self.creation_s


_FULL = _Plan(
    warm_s=120.0, settle_s=3.0, window_s=20.0, creation_s=25.0, rates=(WARM_RATE, 50.0, 1_000.0),
    decisions=100_000,
)  # fmt: skip
_SMOKE = _Plan(
    warm_s=0.5, settle_s=0.1, window_s=0.5, creation_s=0.5, rates=(50.0, WARM_RATE), decisions=1_000
)


class _Meter:
    """Runs windows one after the other and keeps their samples.

    Args:
        plan: how long and how fast.
        stack: looked after meanwhile.
        progress: told how far it is.
    """

    def __init__(self, plan: _Plan, stack: Stack, progress: Progress) -> None:
        self._plan = plan
        self._stack = stack
        self._progress = progress
        self._passed = 0.0
        self._number = 0
        self.series: dict[str, list[float]] = {}

    async def drive(self, asker: Asker, rate: float, seconds: float, what: str) -> range:
        """Ask for some time; returns the numbers of the requests."""
        first, before = self._number, self._passed

        def look(passed: float) -> None:
            self._passed = before + passed
            self._stack.check()
            self._progress.step(what, 0.1 + 0.9 * self._passed / self._plan.total_s())

        self._number = await drive(asker, rate, seconds, first, look)
        return range(first, self._number)

    async def window(self, asker: Asker, rate: float, what: str) -> None:
        """Let the rate settle, then measure for the plan's window."""
        await self.drive(asker, rate, self._plan.settle_s, what)
        numbers = await self.drive(asker, rate, self._plan.window_s, what)
        self.series[f"{what}, ms"] = await settled(asker, numbers)

    async def pairs(self, kind: str, rate: float, seconds: float, asker: Client) -> None:
        """The same of a client that asks straight and through the proxy in turn, each at a rate."""
        what = _name(kind, rate, through=True)
        await self.drive(asker, 2 * rate, self._plan.settle_s, what)
        numbers = await self.drive(asker, 2 * rate, seconds, what)
        for number, took in zip(numbers, await settled(asker, numbers), strict=True):
            name = _name(kind, rate, through=number % 2 == 1)
            self.series.setdefault(f"{name}, ms", []).append(took)


def run(smoke: bool, progress: Progress) -> Result:
    """Warm the job up, then measure at each rate, then through the whole proxy."""
    plan = _SMOKE if smoke else _FULL
    # Every decision is waited for, however late: none may be missing among the samples.
    settings = {"proxy": {"broker_port_base": 0, "decision_timeout_ms": _TIMEOUT_MS}}
    progress.step("decisions alone", 0.0)
    decisions = decisions_us(plan.decisions, PRINCIPALS)
    policies = {**POLICIES, f"quotas[user={ANONYMOUS}]": _ROOM}
    with Stack(work_dir(), settings=settings, policies=policies) as stack:
        progress.step("starting the job and the proxy", 0.02)
        stack.start_job()
        proxy = stack.start_proxy()
        meter = _Meter(plan, stack, progress)
        uvloop.run(_measure(plan, stack, proxy["listen"], meter))
    rows, notes = [*_decision_rows(decisions), *_rows(meter.series)], _notes(plan)
    series = {f"{_DECISION}, us": decisions, **meter.series}
    return Result(name="latency", title=TITLE, rows=rows, notes=notes, series=series)


async def _measure(plan: _Plan, stack: Stack, listen: str, meter: _Meter) -> None:
    async with EventLink(stack.bootstrap, stack.topics, PRINCIPALS) as link:
        # Until the last answer is there: what piled up while the job was cold is not the first window's.
        await settled(link, await meter.drive(link, WARM_RATE, plan.warm_s, "warming up"))
        for rate in plan.rates:
            await meter.window(link, rate, _at(rate))
    for (kind, rate), seconds in zip(_KINDS.items(), (plan.window_s, plan.creation_s), strict=True):
        async with Client(stack.bootstrap, listen, dry=kind == _DRY) as client:
            await meter.pairs(kind, rate, seconds, client)
        if client.refused:
            raise WeirError(f"{client.refused} requests were answered with an error")


def _at(rate: float) -> str:
    return f"event to decision at {rate:.0f}/s"


_DECISION: Final = "A decision in the proxy"
_ASKED: Final = "CreateTopics"
_DRY, _CREATED = "dry run", "creation"
_KINDS: Final = {_DRY: DRY_RATE, _CREATED: CREATION_RATE}


def _name(kind: str, rate: float, *, through: bool) -> str:
    where = "through the proxy" if through else "straight to Kafka"
    return f"{_ASKED} at {rate:.0f}/s, {kind}, {where}"


def _rows(series: dict[str, list[float]]) -> list[Row]:
    rows = []
    ordered = {name.removesuffix(", ms"): sorted(values) for name, values in series.items()}
    for what, values in ordered.items():
        if what.startswith(_ASKED):
            continue
        for percent, aim in TARGETS_MS.items():
            value = percentile(values, percent)
            row = Row(f"{what}, p{percent:.0f}", value, "ms")
            aimed = replace(row, target=f"<= {aim:.0f} ms", met=value <= aim)
            rows.append(aimed if what == _at(WARM_RATE) else row)
    for kind, rate in _KINDS.items():
        through, direct = (ordered[_name(kind, rate, through=way)] for way in (True, False))
        for percent, factor in LOCAL_TARGETS.items():
            value, baseline = percentile(through, percent), percentile(direct, percent)
            rows.append(
                Row(
                    f"{_name(kind, rate, through=True)}, p{percent:.0f}", value, "ms", baseline=baseline,
                    baseline_what="straight to Kafka", target=f"<= {factor:g} x",
                    met=value <= factor * baseline,
                )
            )  # fmt: skip
    return rows


def _decision_rows(took_us: list[float]) -> list[Row]:
    return [
        Row(f"{_DECISION}, p{percent:g}", value, "µs", target=f"< {aim:.0f} µs", met=value < aim)
        for percent, aim in DECISION_TARGETS_US.items()
        for value in (percentile(sorted(took_us), percent),)
    ]


def _notes(plan: _Plan) -> list[str]:
    return [
        f"The job gets warm with load: {plan.warm_s:.0f} s at {WARM_RATE:.0f}/s before anything is measured."
        f" Then, for each rate, {plan.settle_s:g} s to settle and a window of {plan.window_s:g} s; requests"
        " are sent at even distances, whether answers come or not.",
        f"Event to decision: the proxy's own producer and consumer code; {PRINCIPALS:,} principals, one item"
        " each; from before the event is handed to the producer until its decision is in the event loop.",
        f"CreateTopics: version 7, round trip at the client, straight to Kafka and through the proxy in turn:"
        f" dry runs (validate_only) for {plan.window_s:g} s, then creations of a topic for"
        f" {plan.creation_s:g} s. Through the proxy it is decided there, and holds the broker's own work"
        " beside the event and its acknowledgement; a creation the look-up of partition counts before.",
        f"A decision in the proxy: {plan.decisions:,} requests of {PRINCIPALS:,} principals, one by one,"
        " from the counted request to its decision, its event made; not its writing, nor the metrics, which"
        " come after the request has left.",
        "Client, Kafka, job and proxy share the machine; profile latency, one partition, default settings but"
        f" decision_timeout_ms {_TIMEOUT_MS:,}, so that every decision is waited for.",
    ]
