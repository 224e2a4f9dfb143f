"""How long whoever asked had to wait, as counts of equal delays: as small as delays are alike.

Exact as long as few enough differ. Beyond DISTINCT_MAX all but everybody's worst lose their last bits: what
is said is then less than the truth by a thousandth at most.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streaming.columns.byte_strings import Integers

PERCENTILES: Final = {"p50": 50, "p99": 99, "max": 100}
NO_DELAYS: Final = dict.fromkeys(PERCENTILES, 0)
DISTINCT_MAX: Final = 1 << 20
"""So many delays that differ, or are of others, are kept exactly."""
_BITS: Final = 11
"""Of a delay that are kept beyond."""
_MERGED_AT: Final = 1 << 18


class Counted:
    """Counts of whose what it was, some at a time.

    Args:
        width: how many counts each has, if not one.
    """

    def __init__(self, *width: int) -> None:
        none = np.empty(0, dtype=np.int64)
        self._parts = [(none, none, np.empty((0, *width), dtype=np.int64))]
        self._rows = 0

    def count(self, whose: Integers, what: Integers, counts: Integers) -> None:
        """Count a row each, in any order."""
        self._parts.append(counted(whose, what, counts))
        self._rows += len(self._parts[-1][0])
        if self._rows > max(_MERGED_AT, len(self._parts[0][0])):
            self.merged()

    def merged(self) -> tuple[Integers, Integers, Integers]:
        """Whose, what, and the counts, in this order."""
        self._parts, self._rows = [counted(*map(np.concatenate, zip(*self._parts, strict=True)))], 0
        return self._parts[0]


class Delays(Counted):
    """Delays in ms by number of whoever had them.

    A percentile is the least delay that so many of a hundred do not exceed, those of 0 among them:

    >>> delays = Delays()
    >>> delays.add(np.zeros(4, dtype=np.int64), np.array([0, 0, 30, 10]))
    >>> delays.percentiles()
    {0: {'p50': 0, 'p99': 30, 'max': 30}}
    """

    def add(self, whose: Integers, delay_ms: Integers) -> None:
        """Count delays, in any order."""
        self.count(whose, delay_ms, np.ones(len(whose), dtype=np.int64))

    def percentiles(self) -> dict[int, dict[str, int]]:
        """PERCENTILES of everybody who has delays."""
        whose, delay_ms, count = self.merged()
        first = np.flatnonzero(np.diff(whose, prepend=-1))
        return {
            int(whose[begin]): _percentiles(delay_ms[begin:end], count[begin:end])
            for begin, end in pairwise([*first.tolist(), len(whose)])
        }

    def total(self) -> dict[str, int]:
        """The same of all together."""
        _, delay_ms, count = self.merged()
        order = np.argsort(delay_ms, kind="stable")
        return _percentiles(delay_ms[order], count[order]) if len(order) else dict(NO_DELAYS)

    def merged(self) -> tuple[Integers, Integers, Integers]:
        """Whose, how long, and how often; many that differ lose their last bits."""
        whose, delay_ms, count = super().merged()
        if len(whose) > DISTINCT_MAX:
            _, exponent = np.frexp(delay_ms)
            lost = np.maximum(0, exponent - _BITS)
            worst = np.diff(whose, append=-1) != 0
            self._parts = [counted(whose, np.where(worst, delay_ms, delay_ms >> lost << lost), count)]
        return self._parts[0]


def grouped(
    keys: Sequence[Integers], values: NDArray[Any], combine: np.ufunc
) -> tuple[list[Integers], NDArray[Any]]:
    """Values of equal keys combined, sorted by the keys, the first counting most.

    >>> grouped([np.array([1, 0, 1])], np.array([2.0, 3.0, 4.0]), np.add)
    ([array([0, 1])], array([3., 6.]))
    """
    order = np.lexsort([*keys][::-1])
    sorted_keys = [key[order] for key in keys]
    new = np.zeros(len(order), dtype=np.bool_)
    for key in sorted_keys:
        new[:1] = True
        new[1:] |= key[1:] != key[:-1]
    first = np.flatnonzero(new)
    combined = combine.reduceat(values[order], first, axis=0) if len(first) else values
    return [key[first] for key in sorted_keys], combined


def counted(whose: Integers, what: Integers, count: Integers) -> tuple[Integers, Integers, Integers]:
    """Equal ones of one and the same as one row with their numbers, sorted."""
    (whose, what), count = grouped((whose, what), count, np.add)
    return whose, what, count


def _percentiles(delay_ms: Integers, count: Integers) -> dict[str, int]:
    """Of one, whose delays ascend."""
    upto = np.cumsum(count)
    total = int(upto[-1])
    places = {name: -(-total * percent // 100) for name, percent in PERCENTILES.items()}
    return {name: int(delay_ms[np.searchsorted(upto, place)]) for name, place in places.items()}
