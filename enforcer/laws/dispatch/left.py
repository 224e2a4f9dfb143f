"""What may be delivered now, by all levels together (docs/contract.md 3.3).

Alone at 10 per second, 11 delivered and 700 ms gone since the second began: nothing, for 300 ms more.

>>> limit = Limit(rate=(10, 0), period_ms=1000)
>>> alone, third = (Counter(("b1", "t1", "s1"), 1_700, 0, proxies) for proxies in (1, 3))
>>> alone.acquired = [11, 0]
>>> left_of([(2, limit, alone)], 1_700)
Left(msgs=0, bytes=inf, wait_ms=300, level='subscription', dimension='msgs')

One of three proxies has its part of what the statement left, here a third of 10 - 4, and of each period's
rate; whoever is below it may deliver one more, whatever that brings.

>>> third.acquired, third.part = [4, 0], [4 * third.pieces[0], 0]
>>> left_of([(2, limit, third)], 1_700)
Left(msgs=2, bytes=inf, wait_ms=0, level='', dimension='')
>>> third.acquired[0], third.part[0] = 6, third.part[0] + 2 * WHOLE
>>> left_of([(2, limit, third)], 1_700)
Left(msgs=0, bytes=inf, wait_ms=300, level='subscription', dimension='msgs')
"""

from collections.abc import Iterable, Sequence
from math import inf
from typing import Final, NamedTuple

from enforcer.core.account import DISPATCH, Account
from enforcer.core.bucket import LONGEST_WAIT_MS
from enforcer.core.lines import NOTHING, OtherClaims
from enforcer.laws.dispatch.counter import Counter
from enforcer.laws.dispatch.parts import WHOLE
from streaming.laws.dispatch.law import DIMENSIONS, LEVELS, available, wait_ms
from streaming.policy.dispatch_limits import NOT_LIMITED, Limit


class Left(NamedTuple):
    """What may be delivered now.

    Attributes:
        msgs: units: messages, or entries with dispatchThrottlingOnBatchMessageEnabled; infinite: not limited.
        bytes: the same in bytes.
        wait_ms: 0 if something is left in every limited dimension, else the time until the period in which it
            is, if nothing more is delivered; a decision may end it sooner.
        level: which of LEVELS frees last; "" if none is waited for.
        dimension: the same of DIMENSIONS.
    """

    msgs: float
    bytes: float
    wait_ms: int
    level: str
    dimension: str

    def beside(self, others: OtherClaims) -> "Left":
        """What is left for one of several."""
        return self._replace(
            msgs=inf if self.msgs == inf else others.leaves(int(self.msgs), 0),
            bytes=inf if self.bytes == inf else others.leaves(int(self.bytes), 1),
        )


UNLIMITED = Left(inf, inf, 0, "", "")
"""Nothing limits."""


def both(one: Left, other: Left) -> Left:
    """What two limits leave together; in a tie the first is waited for.

    >>> both(Left(5, inf, 0, "", ""), Left(7, 0, 40, "topic", "bytes"))
    Left(msgs=5, bytes=0, wait_ms=40, level='topic', dimension='bytes')
    """
    longest = other if other.wait_ms > one.wait_ms else one
    return longest._replace(msgs=min(one.msgs, other.msgs), bytes=min(one.bytes, other.bytes))


_BOTH: Final = range(len(DIMENSIONS))
Present = tuple[int, Limit, Counter]
"""A counter as it is now: its place in LEVELS, its limit."""


def left_of(presents: Sequence[Present], at: int, others: Sequence[OtherClaims] | None = None) -> Left:
    """The least that the counters leave, and the longest wait.

    Args:
        presents: counters that limit, in the order of LEVELS.
        at: their time, ms.
        others: what others take of what each leaves; nobody waits for them here. None: nothing.
    """
    least = [inf, inf]
    longest, freed_level, freed_dimension = 0, "", ""
    place = -1
    for level, limit, counter in presents:
        place += 1
        for dimension in _BOTH:
            rate = limit.rate[dimension]
            if rate == NOT_LIMITED:
                continue
            acquired = counter.acquired[dimension]
            free = available(acquired, rate)
            # Where something is left nothing is waited for; there may be thousands of topics a second.
            wait = 0 if free else wait_ms(acquired, rate, limit.period_ms, at)
            if (pieces := counter.pieces[dimension]) != WHOLE:
                # Rounded up: who is below its part may deliver.
                part, its_rate = counter.part[dimension], rate * pieces
                free = min(free, -(-available(part, its_rate) // WHOLE))
                wait = max(wait, wait_ms(part, its_rate, limit.period_ms, at))
            if others is not None and others[place] is not NOTHING:
                free = others[place].leaves(free, dimension)
            if free < least[dimension]:
                least[dimension] = free
            if wait > longest:  # not >=: the first level, then dimension, wins a tie, as in the law
                longest, freed_level, freed_dimension = wait, LEVELS[level], DIMENSIONS[dimension]
    return Left(least[0], least[1], longest, freed_level, freed_dimension)


def left_of_account(account: Account, level: str, now_ms: float) -> Left:
    """What may be delivered now by an account; nothing limits in shadow.

    A rate across brokers is one for a whole cluster, so no counter of one broker says what is left of it. Its
    group has an account like any other (docs/contract.md 3.2): what this proxy's share gives per second flows
    in evenly, deliveries are charged when they have been made, whatever their size, and what was too much is
    waited off.

    Args:
        account: a group's, or another's.
        level: what the answer calls it.
        now_ms: on the steady clock.
    """
    if account.limits.shadow:
        return UNLIMITED
    least = [inf, inf]
    for place in _BOTH:
        bucket = account.buckets[DISPATCH + place]
        if bucket is not None and bucket.rate != inf:
            bucket.settle(now_ms)
            # Who owes nothing may deliver one more, whatever it brings.
            least[place] = max(1, int(bucket.tokens)) if bucket.tokens >= 0.0 else 0
    wait = account.debt(DISPATCH, now_ms)
    if wait is None:
        return Left(max(1, least[0]), max(1, least[1]), 0, "", "")
    wait_ms = max(1, round(min(wait.ms, LONGEST_WAIT_MS)))
    return Left(least[0], least[1], wait_ms, level, DIMENSIONS[wait.dimension - DISPATCH])


def debt_of(presents: Iterable[Present]) -> tuple[int, int]:
    """What was delivered beyond the period's rate and waits to be paid off, messages and bytes."""
    debts = [0, 0]
    for _, limit, counter in presents:
        for dimension, rate in enumerate(limit.rate):
            if rate != NOT_LIMITED:
                debts[dimension] = max(debts[dimension], counter.acquired[dimension] - rate)
    return debts[0], debts[1]
