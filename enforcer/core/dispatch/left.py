"""What may be delivered now, by all levels together (docs/contract.md 3.3).

Alone at 10 per second, 11 delivered and 700 ms gone since the second began: nothing, for 300 ms more.

>>> alone, third = (WHOLE, WHOLE), (WHOLE // 3, WHOLE // 3)
>>> left_of([Present(2, (10, 0), 1000, (11, 0), (0, 0), alone)], 1_700)
Left(msgs=0, bytes=None, wait_ms=300, level='subscription', dimension='msgs')

One of three proxies has its part of what the statement left, here a third of 10 - 4, and of each period's
rate; whoever is below it may deliver one more, whatever that brings.

>>> part = 4 * third[0]
>>> left_of([Present(2, (10, 0), 1000, (4, 0), (part, 0), third)], 1_700)
Left(msgs=2, bytes=None, wait_ms=0, level='', dimension='')
>>> left_of([Present(2, (10, 0), 1000, (6, 0), (part + 2 * WHOLE, 0), third)], 1_700)
Left(msgs=0, bytes=None, wait_ms=300, level='subscription', dimension='msgs')
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import NamedTuple

from enforcer.core.dispatch.lines import NOTHING, Taken
from enforcer.core.dispatch.parts import WHOLE
from streaming.laws.dispatch.law import DIMENSIONS, LEVELS, available, wait_ms
from streaming.policy.dispatch_limits import NOT_LIMITED


class Left(NamedTuple):
    """What may be delivered now.

    Attributes:
        msgs: units: messages, or entries with dispatchThrottlingOnBatchMessageEnabled; None: not limited.
        bytes: the same in bytes.
        wait_ms: 0 if something is left in every limited dimension, else the time until the period in which it
            is, if nothing more is delivered; a decision may end it sooner.
        level: which of LEVELS frees last; "" if none is waited for.
        dimension: the same of DIMENSIONS.
    """

    msgs: int | None
    bytes: int | None
    wait_ms: int
    level: str
    dimension: str

    def beside(self, others: Taken) -> "Left":
        """What is left for one of several."""
        return self._replace(
            msgs=None if self.msgs is None else others.leaves(self.msgs, 0),
            bytes=None if self.bytes is None else others.leaves(self.bytes, 1),
        )


UNLIMITED = Left(None, None, 0, "", "")
"""Nothing limits."""


def both(one: Left, other: Left) -> Left:
    """What two limits leave together; in a tie the first is waited for.

    >>> both(Left(5, None, 0, "", ""), Left(7, 0, 40, "topic", "bytes"))
    Left(msgs=5, bytes=0, wait_ms=40, level='topic', dimension='bytes')
    """
    longest = other if other.wait_ms > one.wait_ms else one
    return longest._replace(msgs=_least(one.msgs, other.msgs), bytes=_least(one.bytes, other.bytes))


def _least(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


class Present(NamedTuple):
    """A counter as it is now.

    Attributes:
        level: its place in LEVELS.
        rate: messages and bytes per period.
        period_ms: its length.
        acquired: what was delivered and not paid off.
        part: the same of this proxy's part, WHOLE times over; of no meaning where it has all.
        pieces: what its part is of WHOLE.
    """

    level: int
    rate: Sequence[int]
    period_ms: int
    acquired: Sequence[int]
    part: Sequence[int]
    pieces: Sequence[int]


def left_of(presents: Iterable[Present], at: int, others: Iterable[Taken] = repeat(NOTHING)) -> Left:
    """The least that the counters leave, and the longest wait.

    Args:
        presents: counters that limit, in the order of LEVELS.
        at: their time, ms.
        others: what others take of what each leaves; nobody waits for them here.
    """
    least: list[int | None] = [None, None]
    longest, freed_by = 0, ("", "")
    for (level, rates, period_ms, acquired, part, pieces), taken in zip(presents, others, strict=False):
        for dimension, rate in enumerate(rates):
            if rate == NOT_LIMITED:
                continue
            free = available(acquired[dimension], rate)
            wait = wait_ms(acquired[dimension], rate, period_ms, at)
            if (its := pieces[dimension]) != WHOLE:
                # Rounded up: who is below its part may deliver.
                free = min(free, -(-available(part[dimension], rate * its) // WHOLE))
                wait = max(wait, wait_ms(part[dimension], rate * its, period_ms, at))
            if taken is not NOTHING:
                free = taken.leaves(free, dimension)
            least[dimension] = _least(least[dimension], free)
            if wait > longest:  # not >=: the first level, then dimension, wins a tie, as in the law
                longest, freed_by = wait, (LEVELS[level], DIMENSIONS[dimension])
    return Left(least[0], least[1], longest, *freed_by)


def debt_of(presents: Iterable[Present]) -> tuple[int, int]:
    """What was delivered beyond the period's rate and waits to be paid off, messages and bytes."""
    debts = [0, 0]
    for present in presents:
        for dimension, rate in enumerate(present.rate):
            if rate != NOT_LIMITED:
                debts[dimension] = max(debts[dimension], present.acquired[dimension] - rate)
    return debts[0], debts[1]
