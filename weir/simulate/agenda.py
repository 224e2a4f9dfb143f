"""What is to be done in simulated time."""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count


@dataclass(slots=True)
class Timer:
    """What is to be done; asyncio's handles look alike."""

    function: Callable[[], None] | None

    def cancel(self) -> None:
        """Do not."""
        self.function = None


class Agenda:
    """Simulated time, in any unit; what is due at one time happens in the order in which it was put down."""

    def __init__(self, now: int) -> None:
        self.now = now
        self._due: list[tuple[int, int, Timer]] = []
        self._numbers = count()

    def at(self, time: int, function: Callable[[], None]) -> Timer:
        """Call something at a time."""
        timer = Timer(function)
        heappush(self._due, (max(self.now, time), next(self._numbers), timer))
        return timer

    def after(self, delay: float, function: Callable[[], None]) -> Timer:
        """Call something later."""
        return self.at(self.now + max(0, round(delay)), function)

    def every(self, interval: int, function: Callable[[], None]) -> None:
        """Call something again and again, at multiples of an interval."""

        def again() -> None:
            self.at((self.now // interval + 1) * interval, again)
            function()

        self.at((self.now // interval + 1) * interval, again)

    def run(self, until: int) -> None:
        """Let time pass."""
        while self._due and self._due[0][0] <= until:
            self.now, _, timer = heappop(self._due)
            if timer.function is not None:
                timer.function()
        self.now = until
