"""Latency of strict requests: from the request until its decision is in the proxy's hands."""

from dataclasses import dataclass
from typing import Final

import uvloop

from benchmarks.kit.progress import Progress
from benchmarks.kit.result import Result, Row, percentile
from benchmarks.kit.stack import Stack, work_dir
from benchmarks.load.asking import Asker, Client, EventLink, drive, settled
from benchmarks.load.events import POLICIES
from streaming.contract.errors import WeirError

TITLE = "Strict latency: request sent to decision received"
DURATION_S = 285
WARM_RATE: Final = 200.0
PROXY_RATE: Final = 50.0
TARGETS_MS: Final = {50.0: 100.0, 99.0: 200.0}
"""At WARM_RATE, by percentile."""
LOCAL_TARGETS: Final = {50.0: 1.5, 99.0: 2.0}
"""Through the proxy, decided there, of straight to Kafka."""
PRINCIPALS: Final = 1_000
_TIMEOUT_MS: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Seconds of warm-up, of a pause between rates, and of each window; requests per second."""

    warm_s: float
    settle_s: float
    window_s: float
    rates: tuple[float, ...]

    def total_s(self) -> float:
        """Seconds of all windows and what is between them."""
        return self.warm_s + (len(self.rates) + 2) * (self.settle_s + self.window_s)


_FULL = _Plan(warm_s=120.0, settle_s=3.0, window_s=25.0, rates=(WARM_RATE, 50.0, 1_000.0))
_SMOKE = _Plan(warm_s=0.5, settle_s=0.1, window_s=0.5, rates=(50.0, WARM_RATE))


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


def run(smoke: bool, progress: Progress) -> Result:
    """Warm the job up, then measure at each rate, then through the whole proxy."""
    plan = _SMOKE if smoke else _FULL
    # Every decision is waited for, however late: none may be missing among the samples.
    settings = {"proxy": {"broker_port_base": 0, "decision_timeout_ms": _TIMEOUT_MS}}
    with Stack(work_dir(), settings=settings, policies=POLICIES) as stack:
        progress.step("starting the job and the proxy", 0.02)
        stack.start_job()
        proxy = stack.start_proxy()
        meter = _Meter(plan, stack, progress)
        uvloop.run(_measure(plan, stack, proxy["listen"], meter))
    rows, notes = _rows(meter.series), _notes(plan)
    return Result(name="latency", title=TITLE, rows=rows, notes=notes, series=meter.series)


async def _measure(plan: _Plan, stack: Stack, listen: str, meter: _Meter) -> None:
    async with EventLink(stack.bootstrap, stack.topics, PRINCIPALS) as link:
        # Until the last answer is there: what piled up while the job was cold is not the first window's.
        await settled(link, await meter.drive(link, WARM_RATE, plan.warm_s, "warming up"))
        for rate in plan.rates:
            await meter.window(link, rate, _at(rate))
    for what, address in ((_DIRECT, stack.bootstrap), (_PROXY, listen)):
        async with Client(address) as client:
            await meter.window(client, PROXY_RATE, what)
        if client.refused:
            raise WeirError(f"{what}: {client.refused} requests were answered with an error")


def _at(rate: float) -> str:
    return f"event to decision at {rate:.0f}/s"


_DIRECT: Final = f"CreateTopics straight to Kafka at {PROXY_RATE:.0f}/s"
_PROXY: Final = f"CreateTopics through the proxy at {PROXY_RATE:.0f}/s"


def _rows(series: dict[str, list[float]]) -> list[Row]:
    rows = []
    ordered = {name: sorted(values) for name, values in series.items()}
    direct = ordered[f"{_DIRECT}, ms"]
    for name, values in ordered.items():
        what = name.removesuffix(", ms")
        if what == _DIRECT:
            continue
        for percent, aim in TARGETS_MS.items():
            value = percentile(values, percent)
            rows.append(
                _beside(what, percent, value, percentile(direct, percent))
                if what == _PROXY
                else _alone(what, percent, value, aim if what == _at(WARM_RATE) else None)
            )
    return rows


def _beside(what: str, percent: float, value: float, direct: float) -> Row:
    factor = LOCAL_TARGETS[percent]
    return Row(
        what=f"{what}, p{percent:.0f}",
        value=value,
        unit="ms",
        baseline=direct,
        baseline_what="straight to Kafka",
        target=f"<= {factor:g} x",
        met=value <= factor * direct,
    )


def _alone(what: str, percent: float, value: float, aim: float | None) -> Row:
    return Row(
        what=f"{what}, p{percent:.0f}",
        value=value,
        unit="ms",
        target="" if aim is None else f"<= {aim:.0f} ms",
        met=None if aim is None else value <= aim,
    )


def _notes(plan: _Plan) -> list[str]:
    return [
        f"The job gets warm with load: {plan.warm_s:.0f} s at {WARM_RATE:.0f}/s before anything is measured."
        f" Then, for each rate, {plan.settle_s:g} s to settle and a window of {plan.window_s:g} s; requests"
        " are sent at even distances, whether answers come or not.",
        f"Event to decision: the proxy's own producer and consumer code; {PRINCIPALS:,} principals, one item"
        " each; from before the event is handed to the producer until its decision is in the event loop.",
        "CreateTopics: version 7 with validate_only, round trip at the client; through the proxy it is"
        " decided there, and holds the look-up of partition counts, then the broker's own check beside the"
        " event and its acknowledgement. Nothing is created.",
        "Client, Kafka, job and proxy share the machine; profile latency, one partition, default settings but"
        f" decision_timeout_ms {_TIMEOUT_MS:,}, so that every decision is waited for.",
    ]
