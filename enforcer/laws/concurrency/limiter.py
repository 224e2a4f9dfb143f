"""The requests in flight to one partition, and who waits to send one (docs/contract.md 3.4).

A slot is taken when a request is sent and given back by its answer, by the end of its connection, or by its
deadline, whichever is first. Who finds no slot waits in one line, first come, first served. Pure but for the
clock that it is handed; one event loop.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Final

from enforcer.core.lines import Waiter
from streaming.contract.broker_events import Sample

WAIT_BUCKETS_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_NS_PER_S: Final = 1_000_000_000
_ROUNDING: Final = 1e-6


def own_part(limit: int, fraction: float) -> int:
    """The part of a limit that one enforcer has, at least 1."""
    # A third of 3 is 1, though a third is a little less in binary.
    return max(1, int(limit * fraction + _ROUNDING))


@dataclass(slots=True, eq=False)
class Ticket:
    """One request in flight.

    Attributes:
        start_ns: when it was sent.
        inflight: requests in flight then, itself included.
        holds: it has a slot; else it is only measured.
        sampled: its round trip tells something of the partition's load.
    """

    start_ns: int
    inflight: int
    holds: bool
    sampled: bool


@dataclass(slots=True)
class Place:
    """Where a waiter stands in the line.

    Attributes:
        since_ns: since when.
        woken: it was told to ask again, and has not yet.
    """

    since_ns: int
    woken: bool = False


class Waits:
    """How long requests waited for a slot, as a histogram; most never do.

    Attributes:
        counts: of each of WAIT_BUCKETS_S, those that waited no longer than that and longer than the one
            before it; the last number counts all that waited longer.
        sum_s: all together, s.
    """

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(WAIT_BUCKETS_S) + 1)
        self.sum_s = 0.0

    def note(self, wait_s: float) -> None:
        """A request has waited so long."""
        place = next((n for n, most in enumerate(WAIT_BUCKETS_S) if wait_s <= most), len(WAIT_BUCKETS_S))
        self.counts[place] += 1
        self.sum_s += wait_s


class Reservoir:
    """At most so many samples between two calls of `take`; each that came is among them with equal chance.

    Vitter's algorithm R (docs/protocol_notes.md 5.6). The choice depends on the number of a sample alone,
    never on what it says, so means and the distribution of round trips and of requests in flight are those of
    all samples. Two runs with one seed choose alike.

    Attributes:
        sent: samples taken out so far.
        discarded: samples that found no place, or lost it, so far.

    Args:
        size: the most that are kept.
        seed: another one for each, so that several of them do not choose alike.
    """

    __slots__ = ("_chance", "_kept", "_seen", "_size", "discarded", "sent")

    def __init__(self, size: int, seed: int = 0) -> None:
        self._size = size
        self._chance = Random(seed)
        self._seen = 0
        self._kept: list[tuple[int, Sample]] = []
        self.sent = self.discarded = 0

    def add(self, sample: Sample) -> None:
        """A request was answered, or is lost."""
        number, self._seen = self._seen, self._seen + 1
        if number < self._size:
            self._kept.append((number, sample))
            return
        self.discarded += 1
        place = self._chance.randrange(number + 1)
        if place < self._size:
            self._kept[place] = number, sample

    def take(self) -> list[Sample]:
        """Those that were kept since the last call, in the order in which they came."""
        kept, self._kept, self._seen = self._kept, [], 0
        self.sent += len(kept)
        return [sample for _, sample in sorted(kept)]


class Limiter:
    """One partition at this enforcer.

    Attributes:
        partition: its name.
        limit: how many requests this enforcer may have in flight, at least 1.
        in_flight: how many it has; exempt ones count, so it may be above the limit.
        exempt: classes that need not wait.
        received: requests that were let through or refused so far.
        dropped: those of them that were refused.
        expired: slots that were given back by their deadline so far.
        exempted: class -> its requests that were exempt so far.
        waits: how long those that waited did.
        samples: round trips, kept until they are sent.

    Args:
        queue_max: waiters at a time.
        deadline_ns: after so long a slot is given back, and its request counts as dropped.
    """

    def __init__(
        self,
        partition: str,
        limit: int,
        samples: Reservoir,
        now_ns: Callable[[], int],
        *,
        queue_max: int,
        deadline_ns: int,
    ) -> None:
        self.partition = partition
        self.limit = limit
        self.in_flight = 0
        self.exempt: frozenset[str] = frozenset()
        self.received = self.dropped = self.expired = 0
        self.exempted: dict[str, int] = {}
        self.waits = Waits()
        self.samples = samples
        self._now_ns = now_ns
        self._queue_max = queue_max
        self._deadline_ns = deadline_ns
        # In the order of sending, so that the first ones are due first.
        self._open: dict[Ticket, None] = {}
        self._queue: dict[Waiter, Place] = {}
        self._peak = 0
        self._full_since_ns = -1
        self._full_ns = 0

    def begin(
        self, kind: str, *, by: Waiter | None = None, holds: bool = True, sampled: bool = True
    ) -> Ticket:
        """A request is sent. Whether it may be is asked before: `admits`.

        Args:
            kind: its class.
            by: who sends it. With a slot it has what it stood in line for.
            holds: it takes a slot.
            sampled: it is answered without a wait that the broker intends.
        """
        now_ns = self._now_ns()
        self.pass_by(kind)
        ticket = Ticket(now_ns, self.in_flight + 1, holds, sampled)
        self._open[ticket] = None
        if holds:
            if self._queue and by is not None and (place := self._queue.pop(by, None)) is not None:
                self.waits.note((now_ns - place.since_ns) / _NS_PER_S)
            self._take(now_ns)
        return ticket

    def restart(self, ticket: Ticket, sampled: bool) -> None:
        """Only now it was sent whole, and its round trip begins; a slot that it lost is taken again."""
        now_ns = self._now_ns()
        if ticket in self._open:
            del self._open[ticket]
        elif ticket.holds:
            self._take(now_ns)
        ticket.start_ns, ticket.sampled = now_ns, sampled
        ticket.inflight = self.in_flight if ticket.holds else self.in_flight + 1
        self._open[ticket] = None

    def pass_by(self, kind: str) -> None:
        """A request of this class is sent; of one that is neither measured nor has a slot, this is all."""
        self.received += 1
        if kind in self.exempt:
            self.exempted[kind] = self.exempted.get(kind, 0) + 1

    def end(self, ticket: Ticket) -> None:
        """Its answer has begun to come."""
        self._close(ticket, did_drop=False, sampled=ticket.sampled)

    def cancel(self, tickets: Iterable[Ticket]) -> None:
        """Nobody waits for their answers any more, or they will not come; nothing is learnt by that."""
        for ticket in tickets:
            self._close(ticket, did_drop=False, sampled=False)

    def expire(self) -> None:
        """Give back slots whose deadline has passed."""
        last_ns = self._now_ns() - self._deadline_ns
        late = []
        for ticket in self._open:
            if ticket.start_ns > last_ns:
                break
            late.append(ticket)
        for ticket in late:
            self.expired += ticket.holds
            # One that the broker keeps waiting on purpose is not lost by that.
            self._close(ticket, did_drop=True, sampled=ticket.sampled)

    def admits(self, waiter: Waiter) -> bool:
        """Whether its next request may be sent: there is a slot, and nobody was there before.

        It keeps its place until it takes the slot (`begin`) or makes way (`leave`), one of which it must do
        soon: a slot that is promised to it is nobody else's.
        """
        free = self.limit - self.in_flight
        return free > len(self._queue) or (free > 0 and waiter in islice(self._queue, free))

    def room(self, waiter: Waiter) -> int:
        """How many requests may be sent at once by who was just admitted, others who wait left out."""
        others = len(self._queue) - (waiter in self._queue)
        return max(1, self.limit - self.in_flight - others)

    @property
    def spare(self) -> bool:
        """Whether a request may be sent at once, by anyone."""
        return self.in_flight < self.limit and not self._queue

    def wait(self, waiter: Waiter) -> int | None:
        """Stand in line, or go on standing there.

        Returns:
            For how long it has stood there, ns; None: there is no room in the line.
        """
        place = self._queue.get(waiter)
        if place is None:
            if len(self._queue) >= self._queue_max:
                return None
            place = self._queue[waiter] = Place(self._now_ns())
        place.woken = False
        return self._now_ns() - place.since_ns

    def leave(self, waiter: Waiter) -> None:
        """It waits no more, or cannot go on though it is its turn; whose turn it is then is woken."""
        if self._queue.pop(waiter, None) is not None:
            self.wake()

    def refuse(self) -> None:
        """A request was answered with an error instead of being sent."""
        self.received += 1
        self.dropped += 1

    def set_limit(self, limit: int) -> None:
        """Another limit is in force."""
        if limit == self.limit:
            return
        self.limit = limit
        self._note_full(self._now_ns())
        self.wake()

    def wake(self) -> None:
        """Slots may be free: those whose turn it is ask again."""
        if not self._queue:
            return
        free = self.limit - self.in_flight
        if free > 0:
            for waiter, place in list(islice(self._queue.items(), free)):
                if not place.woken:
                    place.woken = True
                    waiter.wake()

    @property
    def waiting(self) -> int:
        """Length of the line."""
        return len(self._queue)

    @property
    def oldest_s(self) -> float:
        """How long the first in line has stood there, s."""
        for place in self._queue.values():
            return (self._now_ns() - place.since_ns) / _NS_PER_S
        return 0.0

    def take_use(self) -> tuple[int, int]:
        """The greatest in flight since the last call, and for how long it was the limit or more, ns."""
        now_ns = self._now_ns()
        peak, self._peak = max(self._peak, self.in_flight), self.in_flight
        self._note_full(now_ns)
        full_ns, self._full_ns = self._full_ns, 0
        return peak, full_ns

    def close(self) -> None:
        """No policy matches the partition any more: nobody waits for it."""
        queue, self._queue = list(self._queue), {}
        for waiter in queue:
            waiter.wake()

    def _take(self, now_ns: int) -> None:
        self.in_flight += 1
        if self.in_flight > self._peak:
            self._peak = self.in_flight
        if self._full_since_ns < 0 and self.in_flight >= self.limit:
            self._full_since_ns = now_ns

    def _close(self, ticket: Ticket, *, did_drop: bool, sampled: bool) -> None:
        if ticket not in self._open:
            return
        del self._open[ticket]
        if not ticket.holds and not sampled:
            return
        now_ns = self._now_ns()
        if sampled:
            rtt_ns = max(1, now_ns - ticket.start_ns)
            self.samples.add(Sample(ticket.start_ns, rtt_ns, ticket.inflight, did_drop))
        if ticket.holds:
            self.in_flight -= 1
            if self._full_since_ns >= 0 and self.in_flight < self.limit:
                self._note_full(now_ns)
            self.wake()

    def _note_full(self, now_ns: int) -> None:
        """Add up the time at the limit."""
        if self._full_since_ns >= 0:
            self._full_ns += now_ns - self._full_since_ns
        self._full_since_ns = now_ns if self.in_flight >= self.limit else -1
