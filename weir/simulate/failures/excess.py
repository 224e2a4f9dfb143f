"""How far a limit was exceeded, and for how long: what really passed, at whichever proxy, added up."""

from dataclasses import dataclass, field
from math import ceil
from typing import Final

from streaming.laws.dispatch.law import rolled

S: Final = 1_000
"""ms; what had passed is kept as of each second."""
_ROUNDED: Final = 1e-6
_NEVER: Final = 2**62


@dataclass(slots=True)
class Excess:
    """One name's, in one unit, against its limit.

    Attributes:
        since: what is too much counts from here on, ms; what passed before is paid off all the same.
        over: the most that passed beyond the limit in any stretch of time.
        allowed: what the limit allowed in that stretch.
        longest_ms: the longest time from when more had passed than the law alone lets pass, to when it was
            paid off.
        largest: of what passed at once.
        passed: in all.
        limit: in each `every_ms`, as of the last that passed.
        every_ms: see there.
        burst: what may pass at once.
        curve: second -> what had passed by its end.
    """

    since: int = 0
    over: float = 0.0
    allowed: float = 0.0
    longest_ms: int = 0
    largest: float = 0.0
    passed: float = 0.0
    limit: float = 0.0
    every_ms: int = S
    burst: float = 0.0
    curve: dict[int, float] = field(default_factory=dict)
    _level: float = 0.0
    _at: int = 0
    _empty_at: int = 0
    _paid_at: int = _NEVER
    _beyond: int | None = None

    def even(self, now: int, units: float, rate: float, burst: float) -> None:
        """Something passes under a limit that is refilled evenly.

        Args:
            now: ms.
            units: that pass.
            rate: per second, above 0.
            burst: that may pass at once after a pause.
        """
        if self.passed and (rate, burst) != (self.limit, self.burst):
            # What a former limit let pass is not held against this one.
            self._level = min(self._level, burst)
        self.limit, self.burst = rate, burst
        left = self._level - rate * (now - self._at) / S
        if left <= 0.0:
            left, self._empty_at = 0.0, now
        self._take(now, left + units, units, burst + rate * (now - self._empty_at) / S)
        debt = max(0.0, self._level - burst - self.largest)
        self._paid_at = now + ceil(min(_NEVER, debt / rate * S))

    def by_period(self, now: int, units: int, rate: int, period_ms: int) -> None:
        """Something passes under a limit for each period, as of dispatch rates: the law's own counter.

        Args:
            now: ms.
            units: that pass.
            rate: per period, above 0.
            period_ms: length of each, since the epoch.
        """
        if self.passed and (rate, period_ms) != (self.limit, self.every_ms):
            self._level = min(self._level, rate)
        self.limit = self.burst = rate
        self.every_ms = period_ms
        left = rolled(int(self._level), rate, period_ms, self._at, now)
        if left == 0:
            self._empty_at = now
        period = now // period_ms
        self._take(now, left + units, units, rate * (period - self._empty_at // period_ms + 1))
        self._paid_at = (period + ceil(max(0.0, self._level - rate - self.largest) / rate)) * period_ms

    def stand(self, now: int, used: int, limit: int) -> None:
        """So much is in use of a limit that says how much may be at any time."""
        self.limit, self.burst, self._paid_at = limit, limit, _NEVER
        self._take(now, used, used, limit, alone=False)
        if used <= limit:
            self._end(now)

    def end(self, now: int) -> None:
        """The simulation is over."""
        self._end(min(now, self._paid_at))

    def _take(self, now: int, level: float, units: float, allowed: float, *, alone: bool = True) -> None:
        """See what passed; `alone`: by the law itself the last item may pass a limit that is not reached."""
        if self._paid_at <= now:
            self._end(self._paid_at)
        self._at, self._level = now, level
        self.largest = max(self.largest, units) if alone else 1
        self.passed += units
        self.curve[now // S] = self.passed
        if now < self.since:
            return
        if level - self.burst > self.over + _ROUNDED:
            self.over, self.allowed = level - self.burst, allowed
        own = self.largest if alone else 0
        if level > self.burst + own + _ROUNDED and self._beyond is None:
            self._beyond = now

    def _end(self, now: int) -> None:
        if self._beyond is not None:
            self.longest_ms, self._beyond = max(self.longest_ms, now - self._beyond), None


class Found(dict[str, Excess]):
    """What passed, by the name of what is limited.

    Args:
        since: see Excess.
    """

    def __init__(self, since: int) -> None:
        super().__init__()
        self._since = since

    def of(self, name: str) -> Excess:
        """One name's."""
        return self.setdefault(name, Excess(since=self._since))


def furthest_behind(curve: dict[int, float], other: dict[int, float], since: int = 0) -> float:
    """The most by which one curve fell behind another from a second on.

    >>> own, other = {1: 4.0, 9: 19.0}, {1: 5.0, 3: 15.0, 9: 20.0}
    >>> furthest_behind(own, other), furthest_behind(own, other, since=2)
    (11.0, 10.0)
    """
    most = had = mine = before = 0.0
    for second in sorted({*curve, *other}):
        had, mine = other.get(second, had), curve.get(second, mine)
        if second < since:
            before = had - mine
        most = max(most, had - mine - before)
    return most
