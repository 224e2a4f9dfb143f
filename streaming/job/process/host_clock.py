"""How far the clock of the job's host is from the brokers'."""

import logging
import time
from collections.abc import Callable
from typing import Final

from prometheus_client import Gauge

from streaming.kafka_io.brokers_clock import BrokersClock

_LOG = logging.getLogger("weir.job")
_FAR_MS: Final = 1000
_AGAIN_MS: Final = 600_000
"""How often that is said."""


class HostClock:
    """What acknowledgements of our records tell of the brokers' clock.

    Attributes:
        ahead_ms: the brokers' clock less ours, ms; None: none was acknowledged yet.

    Args:
        gauge: shows it, s.
        steady_ms, wall_ms: our own clocks.
    """

    def __init__(
        self,
        gauge: Gauge,
        steady_ms: Callable[[], float] = lambda: time.monotonic() * 1000,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._gauge = gauge
        self._steady_ms, self._wall_ms = steady_ms, wall_ms
        self._brokers = BrokersClock(steady_ms, wall_ms)
        self._said_ms = float("-inf")

    @property
    def ahead_ms(self) -> int | None:
        """See there. Of now, since our clock may have been set."""
        return self._brokers.now_ms() - self._wall_ms() if self._brokers.known else None

    def learn(self, record_ms: int) -> None:
        """A record of ours was acknowledged; its broker gave it this time, ms since the epoch."""
        now_ms = self._steady_ms()
        self._brokers.learn(record_ms, now_ms)
        ahead_ms = self._brokers.now_ms() - self._wall_ms()
        self._gauge.set(ahead_ms / 1000)
        if abs(ahead_ms) >= _FAR_MS and now_ms >= self._said_ms + _AGAIN_MS:
            self._said_ms = now_ms
            _LOG.warning(
                "the clock of this host is %.1f s %s the brokers': decisions go by theirs, but one of both is"
                " wrong (NTP?)",
                abs(ahead_ms) / 1000,
                "behind" if ahead_ms > 0 else "ahead of",
            )
