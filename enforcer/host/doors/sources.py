"""Where clients come from, and how many may from one place."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

RATES_MAX: Final = 16_384
"""Places whose rate is known at a time; one that others push out begins anew with a second's worth."""


class TurnedAway(Exception):
    """A client may not come in.

    Args:
        reason: as `refused_connections_total` has it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Sources:
    """Counts those who are in and those who come, by source (core/security/doors.py).

    Args:
        connections_max: of each at a time; 0: no bound.
        rate: new ones a second of each, as many at once; 0: no bound.
        steady_s: a clock.
    """

    def __init__(
        self, connections_max: int, rate: int, steady_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._connections_max, self._rate, self._steady_s = connections_max, rate, steady_s
        self._counts: Counter[str] = Counter()
        # What each may still do at once, and when that was so; the one seen longest ago comes first.
        self._left: dict[str, tuple[float, float]] = {}

    @property
    def bounded(self) -> bool:
        """Whether anybody can be turned away."""
        return bool(self._connections_max or self._rate)

    def enter(self, source: str) -> None:
        """One more comes.

        Raises:
            TurnedAway: it is one too many.
        """
        if self._connections_max and self._counts[source] >= self._connections_max:
            raise TurnedAway("connections_per_address")
        if self._rate and not self._take(source):
            raise TurnedAway("connection_creation_rate")
        if self._connections_max:
            self._counts[source] += 1

    def leave(self, source: str) -> None:
        """One that has entered is gone."""
        if self._counts[source] > 1:
            self._counts[source] -= 1
        else:
            del self._counts[source]

    def _take(self, source: str) -> bool:
        now_s = self._steady_s()
        left, since_s = self._left.pop(source, (float(self._rate), now_s))
        left = min(left + (now_s - since_s) * self._rate, self._rate)
        taken = left >= 1
        self._left[source] = left - taken, now_s
        if len(self._left) > RATES_MAX:
            del self._left[next(iter(self._left))]
        return taken
