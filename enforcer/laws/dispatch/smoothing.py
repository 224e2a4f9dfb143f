"""Rates from the first delivery on, beside the law's periods, which begin with the epoch's.

By the law alone a consumer that begins to read late in a period may get a whole period's rate, and soon after
that the next one's: its first second holds two. So a proxy also counts what each counter owes, which is paid
off from the first delivery on. Who owes nothing, and has rested, may borrow one period's rate at once, as by
the law. Who has used that up pays it back first. Of a rate per second it then gets what comes free as it
comes, so that any stretch of time holds what it should; of a longer period, a period's rate each period.

Both must leave something. Over time they give the same, so nobody gets less than by the law alone.
"""

from collections import OrderedDict
from math import ceil, floor, inf
from typing import Final

from enforcer.laws.dispatch.left import UNLIMITED, Left, both
from enforcer.laws.dispatch.terms import Limiting, Names
from streaming.laws.dispatch.law import COUNT_MAX, DIMENSIONS, LEVELS, rolled, wait_ms
from streaming.policy.dispatch_limits import NOT_LIMITED

_EVENLY_MS: Final = 1_000
"""Periods up to this length are paid off evenly."""
_AT_ONCE_S: Final = 0.01
"""So much of a rate may go at once though it is paid off evenly: else each message had a timer of its own."""
_LEAST: Final = 1e-6
"""Who owes nothing may deliver one more, whatever the rate."""
_LATE_S: Final = 1.0
"""Who comes so late for what was free may have it all the same; who comes later has rested."""


class _Debt:
    """What one counter owes in one dimension.

    Attributes:
        owed: units at `at`; below 0 what was free and not taken.
        at: ms.
        start: when its periods began, ms.
        resting: it may borrow a period's rate.
        borrowed: units since it owed nothing.
    """

    __slots__ = ("at", "borrowed", "owed", "resting", "start")

    def __init__(self, now: int) -> None:
        self.at = self.start = now
        self.owed = 0.0
        self.borrowed = 0
        self.resting = True

    def pay(self, rate: int, period_ms: int, now: int) -> None:
        """Let time pass."""
        if period_ms <= _EVENLY_MS:
            self.owed -= rate * (now - self.at) / period_ms
            least = 0.0 if self.resting else -rate * _LATE_S * 1000 / period_ms
            if self.owed <= least:
                self.owed, self.borrowed, self.resting = 0.0, 0, True
        else:
            since, until = self.at - self.start, now - self.start
            self.owed = float(rolled(int(self.owed), rate, period_ms, since, until))
            # A whole period without anything; who waits for each one's end must not drift.
            if not self.owed and until // period_ms - since // period_ms > 1:
                self.start = now
        self.at = now

    def free(self, rate: int, period_ms: int) -> tuple[int, int]:
        """What may be delivered now, and the time until something may be, ms."""
        if period_ms > _EVENLY_MS:
            left = int(rate - self.owed)
        elif self.resting:
            left = rate - self.borrowed
        else:
            # Whole units only: else who comes a moment late gets one too many, and then waits for two.
            left = max(floor(rate * _AT_ONCE_S * 1000 / period_ms - self.owed), int(self.owed < _LEAST))
        return (left, 0) if left > 0 else (0, self._wait_ms(rate, period_ms))

    def add(self, count: int, rate: int) -> None:
        """Count a delivery."""
        self.owed = min(float(COUNT_MAX), self.owed + count)
        self.borrowed += count
        # By what was borrowed, not by what is owed: some of it was paid back already.
        if self.borrowed >= rate:
            self.resting = False

    def _wait_ms(self, rate: int, period_ms: int) -> int:
        if period_ms > _EVENLY_MS:
            return wait_ms(int(self.owed), rate, period_ms, self.at - self.start)
        return max(1, ceil(self.owed * period_ms / rate))


class Smoothing:
    """The debts of one proxy.

    Args:
        counters_max: bound; the one that was used longest ago leaves, and has rested when it is used again.
    """

    def __init__(self, counters_max: int) -> None:
        self._counters_max = counters_max
        self._debts: OrderedDict[Names, tuple[_Debt, ...]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._debts)

    def left(self, limiting: Limiting, now: int) -> Left:
        """What they leave now, ms of a steady clock."""
        found = UNLIMITED
        for level, names, limit in limiting:
            debts = self._debts.get(names)
            if debts is None:
                continue
            least = [inf, inf]
            longest, freed_by = 0, ("", "")
            for dimension, debt in enumerate(debts):
                rate = limit.rate[dimension]
                if rate == NOT_LIMITED:
                    continue
                debt.pay(rate, limit.period_ms, now)
                least[dimension], wait = debt.free(rate, limit.period_ms)
                if wait > longest:
                    longest, freed_by = wait, (LEVELS[level], DIMENSIONS[dimension])
            found = both(found, Left(least[0], least[1], longest, *freed_by))
        return found

    def charge(self, limiting: Limiting, units: int, size: int, now: int) -> None:
        """Count a delivery."""
        for _, names, limit in limiting:
            debts = self._debts.pop(names, None)
            if debts is None:
                debts = _Debt(now), _Debt(now)
                while len(self._debts) >= self._counters_max:
                    self._debts.popitem(last=False)
            self._debts[names] = debts
            for debt, rate, count in zip(debts, limit.rate, (units, size), strict=True):
                if rate != NOT_LIMITED:
                    debt.pay(rate, limit.period_ms, now)
                    debt.add(count, rate)
