"""What may be delivered through each upstream broker, from statement + own tail (docs/contract.md 3.3).

Pure: no clock, no I/O; times are ms on the brokers' clock and come as arguments. One thread.

How an enforcer uses a `CounterTable`. `timeline` is the one that its policies' feed fills.

    moment = table.moment(broker, now)   once for the hundreds of topics of a request
    left = table.left(moment, topic, subscription)               before it delivers, and while it waits
    ts = table.deliver(moment, Delivery(...))                    after each delivery: report it with this `ts`
    table.state(statement, own)          each dispatch decision that is read, own or not, repeated or not
    table.set_proxies(count)             proxies alive, this one included, whenever the number changes
    table.policies_changed(ts)           a change in force from `ts` on was put into the timeline
    table.sweep(ts)                      before `timeline.forget_before(ts)`
    table.counts                         what went past the ordinary; for the metrics

Several proxies exceed a limit by at most one entry each, and the unspent part of each one that stands on an
older statement: each delivers while it is below its part (parts.py), whatever the entry brings, and parts of
one statement add up to what that leaves. While the job is away they stay as they are. What was delivered too
much is in the counters, and the next periods pay for it.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from enforcer.core.lines import Others
from enforcer.laws.dispatch.counter import OWN, Counter, Delivery
from enforcer.laws.dispatch.decisions import CounterStatement
from enforcer.laws.dispatch.left import UNLIMITED, Left, Present, left_of
from enforcer.laws.dispatch.terms import Names, Terms, all_names, terms_of
from streaming.policy.policy_set import PolicySet
from streaming.policy.timeline import PolicyTimeline

LOST_MS: Final = 120_000
"""A delivery is lost once the job decides what is so much later: its event may have waited a minute to be
sent, and one that lies a minute ahead of its record is refused."""
BROKERS_MAX: Final = 1_024
"""Brokers whose time is known; the one of which nothing was heard for longest leaves."""
_LOOKED_AT: Final = 8
"""Counters among the oldest that are looked at for one that is at 0."""
Tail = OrderedDict[int, Delivery]


@dataclass(slots=True)
class DeliveryAnomalies:
    """What went past the ordinary, since the start.

    Attributes:
        folded: deliveries that had to leave the tail before their decision was read.
        passed_over: statements that do not hold such deliveries.
        lost: deliveries of which nothing will ever be said.
        unkept: deliveries that a level limits for whose counter there was no room: it did not count them.
        unsent: deliveries whose report was dropped.
    """

    folded: int = 0
    passed_over: int = 0
    lost: int = 0
    unkept: int = 0
    unsent: int = 0


@dataclass(slots=True)
class _Broker:
    """What is known of one upstream broker.

    Attributes:
        ts: the newest time that was asked for, ms: an own delivery is not older.
        newest: applied time of its newest decision, ms.
        tail: own deliveries whose decision was not read, by number, in order.
    """

    ts: int = -1
    newest: int = -1
    tail: Tail = field(default_factory=OrderedDict)


class Moment(NamedTuple):
    """A broker at a time.

    Attributes:
        broker: its name.
        at: its time, ms.
        ahead_ms: so much ahead of our clock; less than 0: behind it.
        terms: what the policies in force then say.
        tail: own deliveries whose decision was not read, by number, in order.
    """

    broker: str
    at: int
    ahead_ms: int
    terms: Terms
    tail: Tail


class CounterTable:
    """Counters of all upstream brokers.

    Args:
        counters_max: bound on counters; the one that was unused longest and is at 0 leaves. While none is,
            further ones are not kept: what they would limit is not limited, and counted.
        tail_max: bound on the own deliveries of each broker whose decision was not read; the oldest are
            summed up into the statement as if decided.
    """

    def __init__(self, timeline: PolicyTimeline, *, counters_max: int, tail_max: int) -> None:
        self.counts = DeliveryAnomalies()
        self.counters: OrderedDict[Names, Counter] = OrderedDict()
        """By whose they are, the one unused longest first."""
        self.proxies = 1
        self._untouched = Counter((), 0, 0, self.proxies)
        self._timeline = timeline
        self._counters_max, self._tail_max = counters_max, tail_max
        self._brokers: OrderedDict[str, _Broker] = OrderedDict()
        self._walk = 0
        none = PolicySet()
        self._last: tuple[PolicySet, Terms] = none, terms_of(none)
        self._looked: tuple[Moment, tuple[str, str], list[Present]] | None = None

    @property
    def tail(self) -> int:
        """Own deliveries whose decision was not read."""
        return sum(len(broker.tail) for broker in list(self._brokers.values()))

    def moment(self, broker: str, now: int) -> Moment:
        """A broker as it is now: read once for the hundreds of topics of a request."""
        known = self._broker(broker)
        # Its time never goes back.
        at = known.ts = max(known.ts, known.newest, now)
        return Moment(broker, at, at - now, self._terms(at), known.tail)

    def left(self, moment: Moment, topic: str, subscription: str, others: Others | None = None) -> Left:
        """What may be delivered in a moment; see `Left`.

        Args:
            others: tells what others take of what a counter leaves; None: that is no matter.
        """
        presents = self._presents(moment, (topic, subscription))
        if not presents:
            return UNLIMITED
        place = moment.broker, topic, subscription
        taken = None if others is None else [others(place[: level + 1]) for level, _, _ in presents]
        left = left_of(presents, moment.at, taken)
        # Where a decision is ahead of our clock its period ends so much later for us.
        ahead_ms = moment.ahead_ms
        return left._replace(wait_ms=left.wait_ms + ahead_ms) if left.wait_ms and ahead_ms > 0 else left

    def deliver(self, moment: Moment, delivery: Delivery) -> int | None:
        """Charge a delivery, unless the policies say that such are not charged.

        Returns:
            The time that its event must carry, ms; None: nothing limits it, and nothing is to be reported.
        """
        broker, ts, _, terms, tail = moment
        delivery.ts = ts
        presents = self._presents(moment, delivery.place)
        if not presents:
            return None
        if not delivery.backlog and not terms.all_charged:
            return ts
        for level, _, counter in presents:
            if counter is self._untouched:
                # It is there, or there is room for it, when it is looked at next.
                self._looked = None
                made = self._counter((broker, *delivery.place)[: level + 1], ts)
                if made is None:
                    self.counts.unkept += 1
                    continue
                counter = made
            counter.take(delivery, max(ts, counter.at), self._timeline)
            counter.note(delivery)
            counter.tail[delivery.seq] = delivery
        tail[delivery.seq] = delivery
        while len(tail) > self._tail_max:
            self._looked = None
            self._fold(broker, tail)
        return ts

    def state(self, said: CounterStatement, own: int | None) -> None:
        """Take a decision.

        An own delivery that was decided leaves the tail, and so do the earlier ones of its broker. A broker
        is one routing key: their events stand in one partition in the order in which they were made, are
        applied in it, since their times never go back, and the decisions stand in one partition in the same
        order. So these were read before it, or the job never heard of them.

        Args:
            own: number of the delivery that it is for; None: it is another proxy's.
        """
        known = self._brokers.get(said.broker)
        if known is None:
            if not any(map(any, filter(None, said.acquired))):
                # As a broker of which nothing is known.
                return
            known = self._broker(said.broker)
        known.newest = max(known.newest, said.at)
        delivery = None if own is None else known.tail.get(own)
        names = (said.broker, said.topic, said.subscription)
        for level, acquired in enumerate(said.acquired):
            counter = None if acquired is None else self._stated(names[: level + 1], acquired, said.at)
            if counter is None or acquired is None or self._passes_over(counter, said.at, own):
                continue
            alone = self.proxies == 1
            # One that reads back what was decided does not know yet that it is not alone.
            if not alone or own is None:
                counter.delivered(said.proxy if own is None else OWN, said.at, acquired, self._timeline)
            noted = None if delivery is None else delivery.noted[level]
            if counter.state(said.at, acquired, noted, alone) and delivery is not None:
                # Held by the newest statement, which was for it.
                counter.tail.pop(delivery.seq, None)
        last = -1 if own is None else own
        while known.tail and (
            (oldest := next(iter(known.tail.values()))).seq <= last or oldest.ts + LOST_MS < said.at
        ):
            self.counts.lost += oldest.seq != own
            self._drop(said.broker, known.tail, oldest)

    def set_proxies(self, count: int) -> None:
        """So many proxies are alive, this one among them."""
        if count != self.proxies:
            self.proxies = count
            self._untouched = Counter((), 0, 0, count)
            self._walk += 1

    def policies_changed(self, ts: int) -> None:
        """A change in force from `ts` on was put into the timeline; a late one moves what was counted."""
        if all(max(known.ts, known.newest) < ts for known in self._brokers.values()):
            return
        self._walk += 1
        for counter in self.counters.values():
            counter.tail.clear()
        for broker, known in list(self._brokers.items()):
            for delivery in known.tail.values():
                terms = terms_of(self._timeline.at(delivery.ts))
                for _, names, _ in terms.limiting((broker, *delivery.place)):
                    limiting = self._counter(names, delivery.ts)
                    if limiting is not None:
                        limiting.tail[delivery.seq] = delivery
                        limiting.stale = True

    def sweep(self, horizon: int) -> None:
        """Settle what changes of policy up to `horizon` mean, before the timeline forgets them.

        Deliveries up to then are summed up, counters at 0 go.
        """
        for broker, known in self._brokers.items():
            while known.tail and next(iter(known.tail.values())).ts <= horizon:
                self._fold(broker, known.tail)
        for counter in list(self.counters.values()):
            counter.settle(horizon, self._timeline)
            self._catch_up(counter)
            if counter.empty:
                del self.counters[counter.names]

    def presents(self, broker: str, topic: str, subscription: str, at: int, terms: Terms) -> list[Present]:
        """The counters that limit, by one set of policies; from any thread, and for metrics alone."""
        found = []
        for level, names, limit in terms.limiting((broker, topic, subscription)):
            counter = self.counters.get(names)
            if counter is None:
                found.append((level, limit, self._untouched))
                continue
            copy = Counter(names, counter.at, counter.walk, self.proxies)
            copy.acquired, copy.part, copy.pieces = list(counter.acquired), list(counter.part), counter.pieces
            copy.pay(limit, max(at, copy.at))
            found.append((level, limit, copy))
        return found

    def _presents(self, moment: Moment, place: tuple[str, str]) -> list[Present]:
        """The counters that limit a topic and a subscription, as they are in a moment."""
        # What is delivered was looked at before, and is after it.
        if self._looked is not None and self._looked[0] is moment and self._looked[1] == place:
            return self._looked[2]
        broker, at, _, terms, _ = moment
        presents: list[Present] = []
        for level, names, limit in terms.limiting((broker, *place)):
            counter = self.counters.get(names)
            if counter is None:
                counter = self._untouched
            else:
                self.counters.move_to_end(names)
                if counter.stale or counter.walk != self._walk:
                    self._catch_up(counter)
                if at > counter.at:
                    counter.roll(at, self._timeline)
            presents.append((level, limit, counter))
        self._looked = moment, place, presents
        return presents

    def _terms(self, at: int) -> Terms:
        """What the policies in force at a time say."""
        policies = self._timeline.at(at)
        # Nearly always they are those asked for last.
        if policies is not self._last[0]:
            self._last = policies, terms_of(policies)
        return self._last[1]

    def _catch_up(self, counter: Counter) -> None:
        if not counter.stale and counter.walk == self._walk:
            return
        newest = self._brokers[counter.names[0]].newest if counter.names[0] in self._brokers else -1
        counter.catch_up(self._walk, newest, self._timeline, self.proxies)

    def _stated(self, names: Names, acquired: tuple[int, int], at: int) -> Counter | None:
        """The counter that a statement is about; None: there is none, and it says nothing, or no room."""
        counter = self.counters.get(names)
        return self._counter(names, at) if counter is None and any(acquired) else counter

    def _passes_over(self, counter: Counter, at: int, own: int | None) -> bool:
        """Whether a statement says nothing of deliveries that were summed up into the one before."""
        if counter.folded < 0:
            return False
        if (own is None or own < counter.folded) and at < counter.folded_ts + LOST_MS:
            self.counts.passed_over += 1
            return True
        counter.folded = -1
        return False

    def _drop(self, broker: str, tail: Tail, delivery: Delivery) -> None:
        """Take a delivery out of the tail."""
        del tail[delivery.seq]
        for names in all_names((broker, *delivery.place)):
            counter = self.counters.get(names)
            if counter is not None:
                counter.drop(delivery)

    def _fold(self, broker: str, tail: Tail) -> None:
        """Sum the oldest delivery of a broker up into the statements."""
        delivery = next(iter(tail.values()))
        for names in all_names((broker, *delivery.place)):
            counter = self.counters.get(names)
            if counter is not None and delivery.seq in counter.tail:
                counter.fold(delivery, self._timeline)
        self._drop(broker, tail, delivery)
        self.counts.folded += 1

    def _counter(self, names: Names, at: int) -> Counter | None:
        """The counter of a name, made if there is none and there is room."""
        counter = self.counters.get(names)
        if counter is not None:
            self.counters.move_to_end(names)
            return counter
        if len(self.counters) >= self._counters_max and not self._make_room(at):
            return None
        counter = self.counters[names] = Counter(names, at, self._walk, self.proxies)
        return counter

    def _make_room(self, at: int) -> bool:
        """Let the counter go that was unused longest, of those at 0; False: none was found."""
        for names in list(islice(self.counters, _LOOKED_AT)):
            counter = self.counters[names]
            self._catch_up(counter)
            counter.roll(max(at, counter.at), self._timeline)
            if counter.empty:
                del self.counters[names]
                return True
            # Its turn comes again when the others were looked at.
            self.counters.move_to_end(names)
        return False

    def _broker(self, name: str) -> _Broker:
        known = self._brokers.get(name)
        if known is not None:
            self._brokers.move_to_end(name)
            return known
        if len(self._brokers) >= BROKERS_MAX:
            oldest = next(iter(self._brokers))
            while self._brokers[oldest].tail:
                self._fold(oldest, self._brokers[oldest].tail)
            del self._brokers[oldest]
        known = self._brokers[name] = _Broker()
        return known
