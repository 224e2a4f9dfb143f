"""One broker's, topic's or subscription's counters, from statement and own tail (docs/contract.md 3.3).

Every step is the law's, event by event, as the job's table takes it: so what a proxy that is alone computes
is what the job will say. Beside what was `acquired` goes `part`, what one of several proxies counts by, where
its part is p of WHOLE pieces (parts.py):

    part                  p / WHOLE x acquired at the statement, then own deliveries, less p / WHOLE x rate
                          a period
    here, in whole        WHOLE times that: p x acquired at the statement, then own deliveries x WHOLE, less
    numbers               p x rate a period, so that no fraction is ever rounded
"""

from collections import OrderedDict
from typing import Final

from enforcer.laws.dispatch.parts import WHOLE, Parts
from enforcer.laws.dispatch.terms import Names, Terms, terms_of
from streaming.laws.dispatch.law import BYTES, MSGS, added, rolled
from streaming.policy.dispatch_limits import NO_LIMIT, NOT_LIMITED, Limit
from streaming.policy.policy_set import PolicySet
from streaming.policy.timeline import PolicyTimeline

OWN: Final = ""
"""Whose own deliveries are, among those of proxies with names."""
_NEVER: Final = -1
_NOTHING: Final = [0, 0]
_NO_TERMS: Final = Terms(PolicySet())
Pair = tuple[int, int]
"""Messages (or entries) and bytes."""
Noted = tuple[int, int, int]
"""A time, ms, and what was acquired then."""


class Delivery:
    """One that this proxy made, whose decision was not read.

    Attributes:
        seq: number of its event, counting up.
        ts: when, ms on the brokers' clock.
        msgs, size, entries: what it brought.
        backlog: whether more was left.
        place: topic and subscription.
        noted: what each level's counters were after it, where it was noted; by the level's place in LEVELS.
    """

    __slots__ = ("backlog", "entries", "msgs", "noted", "place", "seq", "size", "ts")

    def __init__(
        self, seq: int, ts: int, msgs: int, size: int, entries: int, backlog: bool, place: tuple[str, str]
    ) -> None:
        self.seq, self.ts = seq, ts
        self.msgs, self.size, self.entries, self.backlog = msgs, size, entries, backlog
        self.place = place
        self.noted: list[Noted | None] = [None, None, None]


class Counter:
    """The two counters of one name, messages and bytes.

    Attributes:
        names: whose they are.
        acquired: now, at `at`; messages and bytes.
        part: this proxy's, WHOLE times over; counted only where it has not all.
        pieces: what its part is of WHOLE; messages and bytes.
        at: the time, ms.
        tail: own deliveries that the statement does not hold, by their number, in order.
        stale: `acquired` does not follow from statement and tail any more.
        walk: number of the proxies' count and the policies by which the tail was walked.
        folded: number of the newest own delivery that was summed up into the statement; -1: none.
        folded_ts: its time, ms.
    """

    __slots__ = (
        "_base", "_base_at", "_limit", "_parts", "_policies", "_stated", "_terms", "acquired", "at", "folded",
        "folded_ts", "names", "part", "pieces", "stale", "tail", "walk",
    )  # fmt: skip

    def __init__(self, names: Names, at: int, walk: int, proxies: int) -> None:
        self.names = names
        self.at = self._base_at = at
        self.acquired, self.part = [0, 0], [0, 0]
        self.pieces = (WHOLE // proxies,) * 2
        self._parts: Parts | None = None
        self._base: Pair = (0, 0)
        self._stated: tuple[int, Pair] = (_NEVER, (0, 0))
        # By which it was paid off last; None: nobody has looked.
        self._policies: PolicySet | None = None
        self._terms, self._limit = _NO_TERMS, NO_LIMIT
        self.tail: OrderedDict[int, Delivery] = OrderedDict()
        self.stale = False
        self.walk = walk
        self.folded, self.folded_ts = _NEVER, _NEVER

    @property
    def empty(self) -> bool:
        """Whether it says no more at its time than one of which nothing is known."""
        return not self.tail and not any(self.acquired)

    def roll(self, at: int, timeline: PolicyTimeline) -> Terms:
        """Pay off the periods up to a time, not before its own, each by the policies of then.

        Returns:
            What the policies in force then say.
        """
        policies = timeline.at(at)
        owes = self.acquired != _NOTHING or self.part != _NOTHING
        if policies is not self._policies:
            # As the job's table settles: what was delivered before a change is paid by the rates of its time.
            for change in timeline.changes(self.at, at) if owes else ():
                self.pay(terms_of(timeline.at(change - 1)).limit(self.names), change - 1)
            self._policies, self._terms = policies, terms_of(policies)
            self._limit = self._terms.limit(self.names)
        if owes and at != self.at:
            self.pay(self._limit, at)
        self.at = at
        return self._terms

    def take(self, delivery: Delivery, at: int, timeline: PolicyTimeline) -> None:
        """Add an own delivery, applied at a time not before its own."""
        terms = self.roll(at, timeline)
        if not delivery.backlog and not terms.all_charged:
            return
        units = delivery.entries if terms.by_entry else delivery.msgs
        for dimension, rate in enumerate(self._limit.rate):
            if rate != NOT_LIMITED:
                count = units if dimension == MSGS else delivery.size
                self.acquired[dimension] = added(self.acquired[dimension], count)
                if self.pieces[dimension] != WHOLE:
                    self.part[dimension] += count * WHOLE

    def note(self, delivery: Delivery) -> None:
        """Write down what was acquired after an own delivery."""
        delivery.noted[len(self.names) - 1] = self.at, self.acquired[MSGS], self.acquired[BYTES]

    def state(self, at: int, acquired: Pair, noted: Noted | None, alone: bool) -> bool:
        """Take a statement; False if an older one than the newest, or the same.

        Of one counter the decisions' times never go back, and within one millisecond no period ends, so that
        it only grows: the last decision is the one with the greatest (time, acquired), in whatever order, and
        however often, they are read.

        Args:
            at: its applied time, ms.
            acquired: then.
            noted: what was noted after the delivery that it is for, if that is an own one.
            alone: no other proxy delivers.
        """
        if (at, acquired) <= self._stated:
            return False
        self._stated = at, acquired
        self._base, self._base_at = acquired, at
        # Nearly always, where we are alone, it says what we have walked through already; then that goes on.
        self.stale = self.stale or not alone or noted != (at, *acquired)
        return True

    def delivered(self, proxy: str, at: int, acquired: Pair, timeline: PolicyTimeline) -> None:
        """Whose delivery the statement that comes next is for: what it adds to the last one, it brought."""
        if (at, acquired) <= self._stated:
            return
        rate, period_ms, _ = terms_of(timeline.at(at)).limit(self.names)
        since, before = self._stated
        units = [
            max(0, now - rolled(count, its_rate, period_ms, since, at))
            for now, count, its_rate in zip(acquired, before, rate, strict=True)
        ]
        if any(units):
            if self._parts is None:
                self._parts = Parts()
            self._parts.add(proxy, at // period_ms, units, rate)

    def drop(self, delivery: Delivery) -> None:
        """Take an own delivery out of the tail."""
        if self.tail.pop(delivery.seq, None) is not None:
            self.stale = True

    def fold(self, delivery: Delivery, timeline: PolicyTimeline) -> None:
        """Make the oldest delivery of the tail part of the statement."""
        self._move_base(max(delivery.ts, self._base_at), timeline, delivery)
        del self.tail[delivery.seq]
        self.folded, self.folded_ts = delivery.seq, delivery.ts

    def settle(self, upto: int, timeline: PolicyTimeline) -> None:
        """Pay off the periods of the statement before each change of policy up to a time, ms."""
        if self._base_at < upto:
            self._move_base(upto, timeline, None)
            self.stale = True

    def catch_up(self, walk: int, newest: int, timeline: PolicyTimeline, proxies: int) -> None:
        """Walk the tail anew, which is due when it is stale or was walked by an older number.

        Args:
            newest: applied time of the broker's newest decision, ms: the tail comes after it.
            proxies: alive; one that is alone has all.
        """
        at = self.at
        self.stale, self.walk = False, walk
        if self._parts is None or proxies == 1:
            self.pieces = (WHOLE // proxies,) * 2
        else:
            self.pieces = self._parts.of(OWN, MSGS, proxies), self._parts.of(OWN, BYTES, proxies)
        self._begin()
        for delivery in self.tail.values():
            self.take(delivery, max(delivery.ts, self.at, newest), timeline)
        self.roll(max(at, self.at), timeline)

    def pay(self, limit: Limit, at: int) -> None:
        """Pay off the periods up to a time, not before its own, by one limit."""
        acquired, pieces, period_ms, since = self.acquired, self.pieces, limit.period_ms, self.at
        for dimension, rate in enumerate(limit.rate):
            if acquired[dimension]:
                acquired[dimension] = rolled(acquired[dimension], rate, period_ms, since, at)
            if pieces[dimension] != WHOLE:
                its_rate = rate * pieces[dimension]
                self.part[dimension] = rolled(self.part[dimension], its_rate, period_ms, since, at)
        self.at = at

    def _move_base(self, at: int, timeline: PolicyTimeline, delivery: Delivery | None) -> None:
        """Bring the statement to a later time, by a delivery or by time alone; what is counted now stays."""
        now = self.acquired, self.part, self.at
        self._begin()
        if delivery is None:
            self.roll(at, timeline)
        else:
            self.take(delivery, at, timeline)
        self._base, self._base_at = (self.acquired[MSGS], self.acquired[BYTES]), at
        self.acquired, self.part, self.at = now
        self._policies = None

    def _begin(self) -> None:
        self.acquired = list(self._base)
        self.part = [count * pieces for count, pieces in zip(self._base, self.pieces, strict=True)]
        self.at, self._policies = self._base_at, None
