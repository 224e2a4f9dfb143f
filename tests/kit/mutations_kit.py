"""Requests for partition mutations over the real coordinator; the test sets the clock and plays Kafka."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

from coordinator_kit import Desk, asked

from enforcer.laws.mutation.mutations import Answer, Mutations


class Timer:
    """One that fires when the test lets time pass."""

    def __init__(self, due_ms: float, function: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.function = function
        self.cancelled = False

    def cancel(self) -> None:
        """It is not wanted any more."""
        self.cancelled = True


class Bureau:
    """Decides requests of user a under a quota of rate 1 and burst 11.

    Args:
        local: decided here, by all that is known; else the job is asked.
        proxies: that are alive.
        settings: of the proxy.
    """

    def __init__(self, *, local: bool = True, proxies: int = 1, **settings: Any) -> None:
        self.desk = Desk(decide="local" if local else "strict", **settings)
        self.timers: list[Timer] = []
        self.mutations = Mutations(self.desk.coordinator, self.call_later)
        self.desk.limit(controller_mutation_rate=1)
        book = self.desk.coordinator.local
        book.begin()
        book.book.set_proxies(proxies)
        book.book.set_blind(False)

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """A timer for the test."""
        self.timers.append(Timer(self.desk.now_ms + delay_ms, function))
        return cast(asyncio.TimerHandle, self.timers[-1])

    async def pass_ms(self, count: float) -> None:
        """Let time pass, and whoever waited for it go on."""
        self.desk.pass_ms(count)
        due = [timer for timer in self.timers if timer.due_ms <= self.desk.now_ms]
        self.timers = [timer for timer in self.timers if timer not in due and not timer.cancelled]
        for timer in due:
            if not timer.cancelled:
                timer.function()
        await settle_down()

    async def begin(
        self, items: Mapping[str, int], wait_ms: float = 0, *, dry: bool = False
    ) -> "asyncio.Task[Answer]":
        """A request comes and goes as far as it can."""
        task = asyncio.create_task(self.mutations.decide(asked(items, dry=dry), wait_ms))
        await settle_down()
        return task

    async def answer(self, items: Mapping[str, int], wait_ms: float = 0, *, dry: bool = False) -> Answer:
        """The answer to a request that is answered at once."""
        task = await self.begin(items, wait_ms, dry=dry)
        assert task.done()
        return task.result()

    def outcomes(self) -> dict[str, float]:
        """Requests counted by outcome."""
        (family,) = self.desk.metrics.requests.collect()
        return {
            sample.labels["outcome"]: sample.value
            for sample in family.samples
            if sample.name.endswith("_total")
        }


async def settle_down() -> None:
    """All that can go on does."""
    for _ in range(10):
        await asyncio.sleep(0)
