"""The fake clock of all rigs: time passes when a test says so, and what was asked for is called then."""

import asyncio
import heapq
from collections.abc import Callable, Mapping
from itertools import count

from enforcer.host.turns import Turns


class Timer(asyncio.TimerHandle):
    """A call to come, which may be undone, or made by a test before its time."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function, self.undone = function, False

    def cancel(self) -> None:
        """It will not be made."""
        self.undone = True

    def fire(self) -> None:
        """It is made, once, unless it was undone."""
        if not self.undone:
            self.undone = True
            self._function()


class Rounds:
    """A loop whose rounds a test begins, and the turns in them.

    Attributes:
        now_s: its clock.
        soon: what is called in the next round.
    """

    def __init__(self) -> None:
        self.now_s, self.soon = 0.0, list[Callable[[], None]]()
        self.turns = Turns(self.soon.append, lambda: self.now_s)

    def round(self) -> None:
        """The next one."""
        due, self.soon[:] = list(self.soon), []
        for function in due:
            function()


class SteadyClock:
    """A steady clock, and the calls that a loop would make by it.

    Attributes:
        now_ms: the time; a test may move it without a call being made.
    """

    def __init__(self, now_ms: float = 0.0) -> None:
        self.now_ms = now_ms
        self._due: list[tuple[float, int, Timer]] = []
        self._numbers = count()

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> Timer:
        """As a loop does it."""
        timer = Timer(function)
        heapq.heappush(self._due, (self.now_ms + delay_ms, next(self._numbers), timer))
        return timer

    def run(self, ms: float = 0.0) -> None:
        """Let time pass: each call is made at its own time."""
        end_ms = self.now_ms + ms
        while self._due and self._due[0][0] <= end_ms:
            at_ms, _, timer = heapq.heappop(self._due)
            self.now_ms = max(self.now_ms, at_ms)
            timer.fire()
        self.now_ms = end_ms

    def run_next(self) -> None:
        """Let it pass until the next call."""
        self.run(max(0.0, self._due[0][0] - self.now_ms))

    def pass_ms(self, count: float) -> None:
        """Let time pass; nothing is called."""
        self.now_ms += count

    @property
    def waiting(self) -> int:
        """How many calls are still to come."""
        return sum(not timer.undone for _, _, timer in self._due)


class Waiter:
    """A connection that others pause and wake (lines.Pause, lines.Waiter).

    Attributes:
        pauses: how long it was to wait, each time.
        woken: how often it was woken.
        asked: ids that it wants names of, and what a test answers them by.
    """

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.woken = 0
        self.asked: list[tuple[list[bytes], Callable[[Mapping[bytes, str]], None]]] = []

    def pause(self, wait_ms: float) -> None:
        """Noted."""
        self.pauses.append(wait_ms)

    def wake(self) -> None:
        """Counted."""
        self.woken += 1
