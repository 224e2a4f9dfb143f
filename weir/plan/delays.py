"""How long whoever asked had to wait, as counts of equal delays: as small as delays are alike.

Exact as long as few enough differ. Beyond DISTINCT_MAX all but everybody's worst lose their last bits: what
is said is then less than the truth by a thousandth at most.
"""

from itertools import pairwise
from typing import Final

import numpy as np

from streaming.columns.byte_strings import Integers

PERCENTILES: Final = {"p50": 50, "p99": 99, "max": 100}
NO_DELAYS: Final = dict.fromkeys(PERCENTILES, 0)
DISTINCT_MAX: Final = 1 << 20
"""So many delays that differ, or are of others, are kept exactly."""
_BITS: Final = 11
"""Of a delay that are kept beyond."""
_MERGED_AT: Final = 1 << 18


class Delays:
    """Delays in ms by number of whoever had them.

    A percentile is the least delay that so many of a hundred do not exceed, those of 0 among them:

    >>> delays = Delays()
    >>> delays.add(np.zeros(4, dtype=np.int64), np.array([0, 0, 30, 10]))
    >>> delays.percentiles()
    {0: {'p50': 0, 'p99': 30, 'max': 30}}
    """

    def __init__(self) -> None:
        none = np.empty(0, dtype=np.int64)
        self._parts: list[tuple[Integers, Integers, Integers]] = [(none, none, none)]
        self._rows = 0

    def add(self, whose: Integers, delay_ms: Integers) -> None:
        """Count delays, in any order."""
        self._parts.append(_counted(whose, delay_ms, np.ones(len(whose), dtype=np.int64)))
        self._rows += len(self._parts[-1][0])
        if self._rows > max(_MERGED_AT, len(self._parts[0][0])):
            self._merge()

    def percentiles(self) -> dict[int, dict[str, int]]:
        """PERCENTILES of everybody who has delays."""
        whose, delay_ms, count = self._merge()
        first = np.flatnonzero(np.diff(whose, prepend=-1))
        return {
            int(whose[begin]): _percentiles(delay_ms[begin:end], count[begin:end])
            for begin, end in pairwise([*first.tolist(), len(whose)])
        }

    def total(self) -> dict[str, int]:
        """The same of all together."""
        _, delay_ms, count = self._merge()
        order = np.argsort(delay_ms, kind="stable")
        return _percentiles(delay_ms[order], count[order]) if len(order) else dict(NO_DELAYS)

    def _merge(self) -> tuple[Integers, Integers, Integers]:
        merged = _counted(*map(np.concatenate, zip(*self._parts, strict=True)))
        if len(merged[0]) > DISTINCT_MAX:
            whose, delay_ms, count = merged
            _, exponent = np.frexp(delay_ms)
            lost = np.maximum(0, exponent - _BITS)
            worst = np.diff(whose, append=-1) != 0
            merged = _counted(whose, np.where(worst, delay_ms, delay_ms >> lost << lost), count)
        self._parts, self._rows = [merged], 0
        return merged


def _counted(whose: Integers, delay_ms: Integers, count: Integers) -> tuple[Integers, Integers, Integers]:
    """Equal ones of one and the same as one row with their number, sorted."""
    order = np.lexsort((delay_ms, whose))
    whose, delay_ms, count = whose[order], delay_ms[order], count[order]
    first = np.flatnonzero((np.diff(whose, prepend=-1) != 0) | (np.diff(delay_ms, prepend=-1) != 0))
    return whose[first], delay_ms[first], np.add.reduceat(count, first) if len(first) else count


def _percentiles(delay_ms: Integers, count: Integers) -> dict[str, int]:
    """Of one, whose delays ascend."""
    upto = np.cumsum(count)
    total = int(upto[-1])
    places = {name: -(-total * percent // 100) for name, percent in PERCENTILES.items()}
    return {name: int(delay_ms[np.searchsorted(upto, place)]) for name, place in places.items()}
