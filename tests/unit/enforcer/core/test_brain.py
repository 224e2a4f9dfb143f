"""An enforcer's own timers, without a cluster."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from enforcer.core.brain import Brain
from enforcer.core.metrics import Metrics
from enforcer.core.settings import ProxySettings
from streaming.contract.topics import Topics

DAY_MS = 86_400_000
NOBODY = {"bootstrap.servers": "127.0.0.1:9"}


def test_a_policy_dated_days_ahead_is_looked_at_again_until_its_time() -> None:
    """No timer of the loop is set farther ahead than a day; the function is called once, at its time.

    By the brokers' clock, as policies come into force by it.
    """
    called: list[float] = []

    async def run() -> None:
        brain = Brain("p1", ProxySettings(), Metrics(10), Topics(), NOBODY, speaks="kafka")
        now_ms = 0.0
        timers: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []
        loop = SimpleNamespace(
            call_later=lambda delay_s, function, *given: timers.append((delay_s, function, given)),
            call_soon=lambda function: function(),
        )
        brain._loop = cast(asyncio.AbstractEventLoop, loop)
        brain.brokers_ms = lambda: int(now_ms)
        brain.coordinator.call_at(2 * DAY_MS + 5, lambda: called.append(now_ms))
        while timers:
            ((delay_s, function, given),) = timers
            assert delay_s <= DAY_MS / 1000
            timers.clear()
            now_ms += delay_s * 1000
            function(*given)

    asyncio.run(run())
    assert called == [2 * DAY_MS + 5]


def test_it_serves_while_the_job_is_away() -> None:
    """Once all is read back and the limit of the start is over; the job that comes makes it ready."""
    seen: list[tuple[bool, bool, bool]] = []

    async def run() -> None:
        brain = Brain("p1", ProxySettings(), Metrics(10), Topics(), NOBODY, speaks="kafka")

        async def ask() -> bool:
            seen.append((brain.serving.is_set(), brain.ready.is_set(), brain.coordinator.metrics.local.alone))
            if len(seen) == 2:
                brain.coordinator.begin()
            if len(seen) == 3:
                brain._start_until_ms = 0.0
            return len(seen) > 4

        brain._start_until_ms = float("inf")
        brain._ask_probe = ask  # type: ignore[method-assign]  # no broker
        await brain.probe()
        seen.append((brain.serving.is_set(), brain.ready.is_set(), brain.coordinator.metrics.local.alone))

    asyncio.run(run())
    assert seen == [(False, False, False)] * 3 + [(True, False, True)] * 4 + [(True, True, False)]
