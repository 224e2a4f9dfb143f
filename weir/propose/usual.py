"""How much of what subjects asked for is usual: robust statistics, so that a runaway lifts no limit.

- Percentiles are those of windows in which a subject asked for anything, by nearest rank.
- An hour is *far out*, and is left out, if in it a subject asked for more than FAR times what is usual: its
  own usual hour, or the usual peak of the others, whichever is more. Its own is the median of all hours in
  which anybody asked; with DAYS_MIN days at least also the median of its days' worst hours, so that a job of
  every night is usual. The others' is what PEERS_PERCENT of them do not exceed at their own 99th percentile;
  fewer than PEERS_MIN of them say nothing. With neither nothing is far out.

A median moves only if half of the hours are the runaway's, and the others' peak only if a tenth of all run
away.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streaming.columns.byte_strings import Integers
from weir.plan.delays import grouped
from weir.propose.demand import HOUR_MS, MINUTE_MS, Demand, Doubles

FAR: Final = 10.0
"""Above an order of magnitude; rhythm of the day and growth stay below."""
DAY_MS: Final = 24 * HOUR_MS
DAYS_MIN: Final = 3
PEERS_MIN: Final = 5
PEERS_PERCENT: Final = 90
PEAK: Final = 99
"""The percentile of windows that limits are made of."""
ALIKE: Final = 4.0
"""Subjects are alike whose peaks are at most so many times the median one."""


class Far(NamedTuple):
    """The worst hour that was left out of somebody's.

    Attributes:
        times: how many times as much as is usual.
        at: when it began, ms since the epoch.
    """

    times: float
    at: int


class Seen(NamedTuple):
    """What windows of some subjects held: percentiles, the worst, whose that was, and when it began, ms."""

    p50: float
    p99: float
    worst: float
    who: str
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """What is usual of one measure.

    Attributes:
        demand: without what was left out, sorted by subject.
        far: by subject, what was left out.
        window_ms: length of the windows.
        whose, window, value: what subjects asked for in windows, sorted by subject.
        peak: by subject, the PEAKth percentile of its windows; 0: nothing is usual.
    """

    demand: Demand
    far: dict[int, Far]
    window_ms: int
    whose: Integers
    window: Integers
    value: Doubles
    peak: Doubles

    @classmethod
    def of(cls, demand: Demand, combine: np.ufunc, window_ms: int | None = None) -> Self:
        """Look at what was asked for.

        Args:
            demand: of one measure.
            combine: what makes one of several in a window: a sum, or a maximum of what is a level.
            window_ms: length of the windows; None: as long as hours are, see `hour_of`.
        """
        demand, hour_ms = demand.only(np.argsort(demand.whose, kind="stable")), hour_of(demand.at)
        (whose, hour), value = _windows(demand, hour_ms, combine)
        count = len(demand.names)
        usual = np.maximum(_own(whose, hour, value, hour_ms, count), _others(whose, value, count))[whose]
        times = np.divide(value, usual, out=np.zeros(len(value)), where=usual > 0.0)
        out = times > FAR
        far: dict[int, Far] = {}
        columns = (column[out].tolist() for column in (whose, hour, times))
        for subject, at, worst in zip(*columns, strict=True):
            if subject not in far or worst > far[subject].times:
                far[subject] = Far(worst, at * hour_ms)
        if far:
            hours, row = np.unique(demand.at // hour_ms, return_inverse=True)
            left = whose[out] * len(hours) + np.searchsorted(hours, hour[out])
            demand = demand.only(~np.isin(demand.whose * len(hours) + row.ravel(), left))
        length_ms = window_ms or hour_ms
        (whose, window), value = _windows(demand, length_ms, combine)
        return cls(
            demand=demand, far=far, window_ms=length_ms, whose=whose, window=window, value=value,
            peak=percentile(whose, value, PEAK, count),
        )  # fmt: skip

    def peak_of(self, subjects: Sequence[int]) -> float:
        """The greatest peak of some subjects; 0: nothing is usual of any."""
        return float(self.peak[np.asarray(subjects, dtype=np.int64)].max(initial=0.0))

    def seen(self, subjects: Sequence[int]) -> Seen:
        """What some subjects asked for, of which one at least asked for something usual."""
        rows = self._rows(subjects)
        value = self.value[rows]
        order = np.argsort(value, kind="stable")
        worst = int(rows[order[-1]])
        p50, p99 = (float(value[order[-(-len(value) * percent // 100) - 1]]) for percent in (50, PEAK))
        return Seen(
            p50, p99, float(self.value[worst]), self.demand.names[int(self.whose[worst])],
            int(self.window[worst]) * self.window_ms,
        )  # fmt: skip

    def burst(self, subjects: Sequence[int], rate: float) -> float:
        """How much a token bucket of this rate, 1/s, must hold for each of them to be let through."""
        worst, whose = 0.0, self.demand.whose
        ends = (np.searchsorted(whose, subjects, side=side).tolist() for side in ("left", "right"))
        for begin, end in zip(*ends, strict=True):
            if end > begin:
                amount, at = self.demand.amount[begin:end], self.demand.at[begin:end]
                drained = rate * ((at - at[0]) / 1000.0)
                after = np.cumsum(amount) - drained
                # Never below empty: whatever was drained beyond that drains nothing of what comes.
                floor = np.minimum.accumulate(np.minimum(after, after - amount))
                worst = max(worst, float((after - floor).max()))
        return worst

    def _rows(self, subjects: Sequence[int]) -> Integers:
        if len(subjects) == 1:
            begin, end = (np.searchsorted(self.whose, subjects[0], side=side) for side in ("left", "right"))
            return np.arange(begin, end)
        return np.flatnonzero(np.isin(self.whose, np.asarray(subjects)))


def hour_of(at: Integers) -> int:
    """The length of an hour of a log, ms: that of a day has 24 of them, and a shorter one too."""
    if not len(at):
        return HOUR_MS
    span_ms = int(at.max()) - int(at.min())
    return min(HOUR_MS, max(1, -(-span_ms // (24 * MINUTE_MS))) * MINUTE_MS)


def percentile(whose: Integers, value: Doubles, percent: int, count: int) -> Doubles:
    """By subject, the value of this rank of its own; 0: it has none.

    Args:
        whose: number of each value's subject.
        value: above 0.
        percent: of the values that are not above it.
        count: how many subjects there are.
    """
    return _by_rank(whose, value, count, lambda own: -(-own * percent // 100) - 1)


def _by_rank(whose: Integers, value: Doubles, count: int, rank_of: Callable[[Integers], Integers]) -> Doubles:
    """By subject, the value of a rank among its own, told by how many these are; 0: it has no such rank."""
    order = np.lexsort((value, whose))
    own = np.bincount(whose, minlength=count)
    rank = rank_of(own)
    there = (own > 0) & (rank >= 0)
    found = np.zeros(count)
    found[there] = value[order][(np.cumsum(own) - own + rank)[there]]
    return found


def apart(peak: Doubles, most: int) -> NDArray[np.bool_]:
    """Which subjects are unlike the others: above ALIKE times the median, `most` of them at most.

    >>> apart(np.array([1.0, 2.0, 0.0, 2.0, 9.0, 30.0]), most=1).tolist()
    [False, False, False, False, False, True]
    """
    there = np.sort(peak[peak > 0.0])
    if not len(there):
        return np.zeros(len(peak), dtype=np.bool_)
    least = ALIKE * there[(len(there) + 1) // 2 - 1]
    if len(there) > most:
        least = max(least, there[-1 - most])
    unlike: NDArray[np.bool_] = peak > least
    return unlike


def _windows(demand: Demand, window_ms: int, combine: np.ufunc) -> tuple[tuple[Integers, Integers], Doubles]:
    """Subject, number and value of each window in which something was asked; the greatest of its counters."""
    keys, value = grouped((demand.part, demand.whose, demand.at // window_ms), demand.amount, combine)
    (whose, window), value = grouped(keys[1:], value, np.maximum)
    some = value > 0.0
    return (whose[some], window[some]), value[some]


def _own(whose: Integers, hour: Integers, value: Doubles, hour_ms: int, count: int) -> Doubles:
    """Each subject's usual hour; 0: there is none."""
    usual = _median(whose, value, len(np.unique(hour)), count)
    day = hour * hour_ms // DAY_MS
    days = len(np.unique(day))
    if days < DAYS_MIN:
        return usual
    (own, _), worst = grouped((whose, day), value, np.maximum)
    return np.maximum(usual, _median(own, worst, days, count))


def _median(whose: Integers, value: Doubles, windows: int, count: int) -> Doubles:
    """By subject the median of so many windows, those in which it asked for nothing included."""
    # Nothing comes first: it is the least.
    return _by_rank(whose, value, count, lambda own: (windows + 1) // 2 - 1 - (windows - own))


def _others(whose: Integers, value: Doubles, count: int) -> Doubles:
    """By subject the usual peak of all others; 0: they are too few to say."""
    peak = percentile(whose, value, PEAK, count)
    ranked = np.argsort(peak, kind="stable")
    ranked = ranked[peak[ranked] > 0.0]
    if len(ranked) <= PEERS_MIN:
        return np.zeros(count)
    place = -(-(len(ranked) - 1) * PEERS_PERCENT // 100) - 1
    found = np.full(count, peak[ranked[place]])
    # Whoever stands there or before it is none of its own others.
    found[ranked[: place + 1]] = peak[ranked[place + 1]]
    return found
