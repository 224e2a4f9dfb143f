"""Where clients come from, and how many may from one place."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from cachetools import LRUCache

from enforcer.core.bucket import Bucket

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
        steady_s: the clock.
    """

    def __init__(
        self, connections_max: int, rate: int, steady_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._connections_max, self._rate, self._steady_s = connections_max, rate, steady_s
        self._counts: Counter[str] = Counter()
        self._buckets: LRUCache[str, Bucket] = LRUCache(RATES_MAX)

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
        now_ms = self._steady_s() * 1_000
        bucket = self._buckets.get(source)
        if bucket is None:
            bucket = self._buckets[source] = Bucket(self._rate, 1.0, now_ms)
        bucket.settle(now_ms)
        if bucket.tokens < 1:
            return False
        bucket.charge(1, now_ms)
        return True
