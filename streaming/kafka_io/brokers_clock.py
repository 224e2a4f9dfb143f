"""What a process knows of the brokers' clock. Pure: it is handed its own."""

from collections.abc import Callable
from math import floor
from typing import Final

WINDOW_MS: Final = 30_000.0
"""What was learnt of the brokers' clock counts for one to two of these: clocks drift, and are set."""


class BrokersClock:
    """The brokers' clock as far as the acknowledgements of our own records tell (docs/contract.md 1).

    A record has its time before its acknowledgement arrives, so record time less own clock at arrival is
    never more than the true difference, and the greatest of several is the nearest. Where nothing was learnt
    yet it is our own clock.

    One thread may learn while others read.

    Args:
        steady_ms: tells our own time, never back.
        wall_ms: the same in ms since the epoch.

    >>> own = 5_000.0
    >>> clock = BrokersClock(lambda: own, lambda: 1_000_000)
    >>> clock.now_ms()
    1000000
    >>> clock.learn(990_000, 4_998.0), clock.learn(990_010, 5_090.0), clock.now_ms()
    (None, None, 990002)
    """

    def __init__(self, steady_ms: Callable[[], float], wall_ms: Callable[[], int]) -> None:
        self._steady_ms = steady_ms
        self._wall_ms = wall_ms
        self._offset_ms: float | None = None
        self._newest_ms = self._before_ms = float("-inf")
        self._turn_ms = 0.0

    @property
    def known(self) -> bool:
        """Whether anything was learnt."""
        return self._offset_ms is not None

    def learn(self, record_ms: int, arrived_ms: float) -> None:
        """A record of ours was acknowledged.

        Args:
            record_ms: the time that its broker gave it.
            arrived_ms: our steady clock when that arrived.
        """
        if arrived_ms >= self._turn_ms:
            # After a long silence the window before is too old as well.
            stale = arrived_ms >= self._turn_ms + WINDOW_MS
            self._before_ms = float("-inf") if stale else self._newest_ms
            self._newest_ms, self._turn_ms = float("-inf"), arrived_ms + WINDOW_MS
        self._newest_ms = max(self._newest_ms, record_ms - arrived_ms)
        self._offset_ms = max(self._newest_ms, self._before_ms)

    def now_ms(self) -> int:
        """The brokers' time, as a rule somewhat behind it."""
        offset_ms = self._offset_ms
        return self._wall_ms() if offset_ms is None else floor(self._steady_ms() + offset_ms)
