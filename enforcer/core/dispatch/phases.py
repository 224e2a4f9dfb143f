"""Periods that begin with the first delivery, beside those of the law, which begin with the epoch's.

By the law alone a consumer that begins to read late in a period may get a whole period's rate, and soon after
that the next one's: its first second holds two. Brokers begin a limiter's periods when it is made. Here a
counter's begin when it is used after a rest, so each stretch of a period's length, from the first message on,
brings one period's rate. Both must leave something; over time the law's periods and these bring the same.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from enforcer.core.dispatch.left import UNLIMITED, Left, Present, both, left_of
from enforcer.core.dispatch.terms import Names
from streaming.laws.dispatch.law import added, rolled
from streaming.policy.dispatch_limits import Limit

Limiting = Iterable[tuple[int, Names, Limit]]
"""Level, name and limit of counters."""


class _Phase(NamedTuple):
    """One counter.

    Attributes:
        start: when its periods began, ms.
        at: when it was counted last, ms after that.
        acquired: messages (or entries) and bytes then.
    """

    start: int
    at: int
    acquired: tuple[int, int]


class Phases:
    """The counters of one proxy.

    Args:
        counters_max: bound; the one that was used longest ago leaves, and begins anew when it is used again.
    """

    def __init__(self, counters_max: int) -> None:
        self._counters_max = counters_max
        self._phases: OrderedDict[Names, _Phase] = OrderedDict()

    def __len__(self) -> int:
        return len(self._phases)

    def left(self, limiting: Limiting, now: int) -> Left:
        """What they leave now, ms of a steady clock."""
        found = UNLIMITED
        for level, names, limit in limiting:
            phase = self._phases.get(names)
            if phase is None:
                continue
            at = now - phase.start
            acquired = _paid(limit, phase, at)
            present = Present(level, limit.rate, limit.period_ms, acquired, acquired)
            found = both(found, left_of([present], at, 1))
        return found

    def charge(self, limiting: Limiting, units: int, size: int, now: int) -> None:
        """Count a delivery."""
        for _, names, limit in limiting:
            phase = self._phases.pop(names, None)
            acquired = (0, 0)
            if phase is not None:
                at, period_ms = now - phase.start, limit.period_ms
                acquired = _paid(limit, phase, at)
                # A whole period without anything; who waits for each one's end must not drift.
                if not any(acquired) and at // period_ms - phase.at // period_ms > 1:
                    phase = None
            if phase is None:
                phase = _Phase(now, 0, (0, 0))
                while len(self._phases) >= self._counters_max:
                    self._phases.popitem(last=False)
            sums = added(acquired[0], units), added(acquired[1], size)
            self._phases[names] = phase._replace(at=now - phase.start, acquired=sums)


def _paid(limit: Limit, phase: _Phase, at: int) -> tuple[int, int]:
    """What is left of what was acquired after the periods that ended since."""
    msgs, size = (
        rolled(count, rate, limit.period_ms, phase.at, at)
        for count, rate in zip(phase.acquired, limit.rate, strict=True)
    )
    return msgs, size
