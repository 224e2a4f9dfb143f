"""The wait for Kafka to have the event of what was decided at once (docs/contract.md 3.1)."""

import asyncio
from collections.abc import Callable

CallLater = Callable[[float, Callable[[], None]], asyncio.TimerHandle]
"""Calls a function after so many ms."""


class Receipt:
    """The acknowledgement of an event, and the answer that waits for it.

    Args:
        call_later: calls a function after so many ms.
        limit_ms: how long the answer waits from now on.
        now_ms: the steady clock.
        missed: called if the answer goes without it.
    """

    def __init__(
        self, call_later: CallLater, limit_ms: float, now_ms: Callable[[], float], missed: Callable[[], None]
    ) -> None:
        self._call_later = call_later
        self._now_ms = now_ms
        self._until_ms = now_ms() + limit_ms
        self._missed = missed
        self._here = self._missing = False
        self._give: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def arrived(self, stands: bool) -> None:
        """Kafka has the event, or never will."""
        if self._here:
            return
        self._here = True
        if not stands and not self._missing:
            self._missing = True
            self._missed()
        self._go()

    def answer(self, give: Callable[[], None]) -> None:
        """The answer is ready: call `give` when it may go."""
        self._give = give
        if self._here:
            self._go()
            return
        left_ms = self._until_ms - self._now_ms()
        if left_ms <= 0:
            self._late()
        else:
            self._timer = self._call_later(left_ms, self._late)

    def drop(self) -> None:
        """Nobody waits for the answer any more."""
        self._give = None
        self._stop_timer()

    def _late(self) -> None:
        self._timer = None
        self._missing = True
        self._missed()
        self._go()

    def _go(self) -> None:
        self._stop_timer()
        give, self._give = self._give, None
        if give is not None:
            give()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
