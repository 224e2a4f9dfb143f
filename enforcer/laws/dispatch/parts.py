"""Which part of what a statement leaves is whose, by who delivered in the period before (docs/laws.md).

Pure arithmetic over the statements of one counter, in the order of the log, so whoever stands on the same one
knows the same parts, which add up to 1 at most. All statements of a period tell the same ones: a period is
over in the log when the next one's first delivery stands in it.

A proxy that used most of its part wants as much as it can get, one that used less gets twice what it used,
and max-min fairness divides the rate. Those that delivered nothing have RESERVE together, so that one
of them may begin; where nobody has delivered, all have the same.

Worked: 100 a second and eight proxies. In second 7 `a` delivers alone, as the statements of second 8 know.
Then `b` begins with one message. By those of second 9 both have half; `b` needs 10, so in the end it has 20.

>>> parts, rates = Parts(), (100, 0)
>>> def told(dimension: int = 0) -> dict[str, int]:
...     return {name: parts.of(name, dimension, 8) // (WHOLE // 1000) for name in "abc"}
>>> parts.add("a", 7, (36, 0), rates); told()
{'a': 125, 'b': 125, 'c': 125}
>>> parts.add("a", 8, (98, 0), rates); parts.add("b", 8, (1, 0), rates); told()
{'a': 980, 'b': 2, 'c': 2}
>>> parts.add("a", 9, (98, 0), rates); parts.add("b", 9, (1, 0), rates); told()
{'a': 490, 'b': 490, 'c': 3}
>>> parts.add("a", 10, (49, 0), rates); parts.add("b", 10, (10, 0), rates); told()
{'a': 490, 'b': 490, 'c': 3}
>>> parts.add("a", 11, (49, 0), rates); told()
{'a': 784, 'b': 196, 'c': 3}
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Final

from streaming.policy.dispatch_limits import NOT_LIMITED

WHOLE: Final = 1_000_000
"""Pieces of which a part is so many."""
RESERVE: Final = 0.02
"""Of the rate, for all together who have delivered nothing lately."""
DELIVERERS_MAX: Final = 1_000
"""Proxies of one period that are told apart; further ones count as such that delivered nothing."""
_MOST: Final = 0.75
"""Who used so much of its part may have wanted more: entries are large, and debts of the last period paid."""
_ROOM: Final = 2.0
"""Who used less has room to grow."""


class Parts:
    """The parts of one counter, messages and bytes."""

    __slots__ = ("_before", "_period", "_sums", "_wants")

    def __init__(self) -> None:
        self._period = -1
        self._sums: dict[str, list[int]] = {}
        # By dimension: what each gets in this period, but for the reserve, and what it got in the one before.
        self._wants: tuple[Mapping[str, float], ...] = ({}, {})
        self._before: tuple[Mapping[str, float], ...] = ({}, {})

    def add(self, proxy: str, period: int, units: Sequence[int], rates: Sequence[int]) -> None:
        """A statement holds a delivery.

        Args:
            proxy: who delivered.
            period: its number, since the epoch.
            units: messages and bytes that it brought.
            rates: per period, now.
        """
        if period != self._period:
            self._close(period - self._period == 1, rates)
            self._period = period
        sums = self._sums.get(proxy)
        if sums is None:
            if len(self._sums) >= DELIVERERS_MAX:
                return
            sums = self._sums[proxy] = [0, 0]
        sums[0] += units[0]
        sums[1] += units[1]

    def of(self, proxy: str, dimension: int, proxies: int) -> int:
        """A proxy's part, in pieces of WHOLE, where so many are alive."""
        wants = self._wants[dimension]
        if not wants:
            return WHOLE // proxies
        others = max(0, proxies - len(wants))
        reserve = RESERVE if others else 0.0
        mine = wants.get(proxy)
        # Of more proxies than were said to be alive some are gone, or have just come.
        part = reserve / max(1, others) if mine is None else (1.0 - reserve) * mine
        return max(1, int(WHOLE * part))

    def _close(self, follows: bool, rates: Sequence[int]) -> None:
        """A period is over; whether the next delivery is of the one behind it."""
        known = self._wants, self._before
        self._before = self._wants
        self._wants = tuple(
            self._divided(dimension, rate, [each[dimension] for each in known])
            if follows and rate != NOT_LIMITED
            else {}
            for dimension, rate in enumerate(rates)
        )
        self._sums = {}

    def _divided(self, dimension: int, rate: int, known: list[Mapping[str, float]]) -> dict[str, float]:
        wanted = {}
        for proxy, sums in self._sums.items():
            used = sums[dimension] / rate
            # At a period's beginning it stood on the last one's statement.
            had = min(parts.get(proxy, 0.0) for parts in known)
            wanted[proxy] = inf if used >= _MOST * had else _ROOM * used
        return max_min(wanted)


def max_min(wanted: Mapping[str, float]) -> dict[str, float]:
    """One whole divided: each gets what it wants, or as much as anybody; what nobody wants is shared too.

    >>> max_min({"a": inf, "b": 0.25, "c": inf}), max_min({"a": 0.25, "b": 0.5})
    ({'b': 0.25, 'a': 0.375, 'c': 0.375}, {'a': 0.375, 'b': 0.625})
    """
    found, left = {}, 1.0
    for place, (name, most) in enumerate(sorted(wanted.items(), key=lambda each: each[1])):
        found[name] = min(most, left / (len(wanted) - place))
        left -= found[name]
    return {name: part + left / len(found) for name, part in found.items()}
