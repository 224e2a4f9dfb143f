"""Clients and subscriptions that have one thing on its way at a time, each in the order of the log.

Compiled, and plain Python besides: the laws' own steps decide, one event after the other. A log comes some at
a time: what would be sent later than what is known of it stays open, and comes again with what follows.
"""

from heapq import heappop, heappush
from typing import Final

import numpy as np

from streaming.columns.byte_strings import Integers
from streaming.columns.compilable import compilable
from streaming.columns.outputs import DecisionRows
from streaming.laws.dispatch.law import charge_row, last_to_free, roll_row
from streaming.laws.law import FOR_EVER, Batch
from streaming.laws.mutation.law import PERMISSIVE, REFUND, Events, Flags, Results, State, Terms, walk
from weir.plan.verdicts import ALLOWED, EXACT_MAX, REFUSED, THROTTLED, Outcomes, Verdicts

TRIES: Final = 10
"""How often a client asks for the same at most."""
HELD_MAX_MS: Final = 3_600_000
"""A request that is not sent an hour after its time is given up."""
HELD_MAX: Final = 2**19
"""So many requests, and as many deliveries, wait at once at most."""
NOT_DUE: Final = -1
"""In place of a time (ms): something of the same client or reader stands before it."""
_LAST: Final = -1
NOBODY: Final[Integers] = np.empty(0, dtype=np.int64)
"""Sources of what waits, where nothing does."""


class Waiting:
    """A law's clients that wait; of this one nobody does: all is as recorded.

    Attributes:
        beyond: so many could not wait since more than HELD_MAX did.
        closed: of what is told by the round: all of these times (ms) is told.
    """

    beyond, closed = 0, FOR_EVER

    def step(
        self, batch: Batch | None, decided: DecisionRows | None, recorded: Verdicts | None, upto: int
    ) -> tuple[Verdicts | None, Integers]:
        """What comes to be before a time of all so far, and the sources of those that still wait.

        Args:
            batch: what the law was asked next; its events are not changed. None: nothing.
            decided: what it said of that as recorded.
            recorded: what that comes to.
            upto: ms; all that follows is of this time or later. FOR_EVER: nothing follows.
        """
        return recorded, NOBODY


@compilable
def lined_up(client: Integers) -> tuple[Integers, Integers]:
    """Each client's first event, and the event behind each of its client; _LAST: none.

    >>> [column.tolist() for column in lined_up(np.array([1, 0, 1, 1]))]
    [[1, 0], [2, -1, 3, -1]]
    """
    first = np.full(client.max() + 1, _LAST)
    behind, last = np.full(len(client), _LAST), np.full(len(first), _LAST)
    for place in range(len(client)):
        own = client[place]
        if last[own] == _LAST:
            first[own] = place
        else:
            behind[last[own]] = place
        last[own] = place
    return first, behind


@compilable
def _refused(i: int, events: Events, results: Results, done: Flags) -> bool:
    """Whether an item was refused that no earlier try got through; what got through is not asked again."""
    refused = False
    for item in range(events.first[i], events.first[i] + events.items[i]):
        if results.rejected[item] and not done[item]:
            refused = True
        elif not done[item]:
            done[item] = True
            events.mutations[item] = 0.0
    return refused


@compilable
def _head(
    place: int, free_at: int, behind: Integers, mode: Integers, own_at: Integers, outcome: Outcomes,
    delay_ms: Integers, open: Flags,
) -> int:  # fmt: skip
    """The first from `place` on that its client still sends when it is free; the others are given up."""
    while place != _LAST and free_at - own_at[place] >= HELD_MAX_MS and mode[place] != REFUND:
        outcome[place], delay_ms[place], open[place] = REFUSED, HELD_MAX_MS, False
        place = behind[place]
    return place


@compilable
def ask(
    upto: int, client: Integers, free_at: Integers, own_at: Integers, due: Integers, tries: Integers,
    done: Flags, events: Events, terms: Terms, state: State, results: Results, outcome: Outcomes,
    delay_ms: Integers, open: Flags,
) -> None:  # fmt: skip
    """Have clients send their requests, wait as they are told, and try again, up to a time.

    Args:
        upto: ms; what would be sent then or later stays open.
        client: who sends each event; these are in the order of the log.
        free_at: of each client: when it may send, ms; changed in place.
        own_at: when each would be sent by itself, ms.
        due: of whatever is its client's first: when it is sent, ms; NOT_DUE: of others. Changed in place.
        tries: how often each was sent. Changed in place.
        done: of each item: it was let through. Changed in place.
        events, terms, state, results: as of the law's `walk`; changed in place.
        outcome, delay_ms: out, of those that are not open any more; ALLOWED: sent in time and let through.
        open: all of them at first; changed in place.
    """
    first, behind = lined_up(client)
    for own in range(len(first)):
        if first[own] != _LAST and due[first[own]] == NOT_DUE:
            place = _head(first[own], free_at[own], behind, events.mode, own_at, outcome, delay_ms, open)
            first[own] = place
            if place != _LAST:
                due[place] = max(free_at[own], own_at[place])
    heap = [(due[place], place) for place in first if place != _LAST]
    heap.sort()
    while len(heap) > 0 and heap[0][0] < upto:
        now, place = heappop(heap)
        events.at[place] = now
        # For a literal 0 the law would be compiled once more.
        walk(np.arange(place, place + 1), events, terms, int(np.int64(0)), state, results)
        free = now
        if events.mode[place] != REFUND:
            wait_ms = min(results.wait_ms[place], EXACT_MAX)
            tries[place] += 1
            if _refused(place, events, results, done):
                free = now + wait_ms
                if tries[place] < TRIES and free - own_at[place] < HELD_MAX_MS:
                    due[place] = free
                    heappush(heap, (free, place))
                    continue
                outcome[place], delay_ms[place] = REFUSED, now - own_at[place]
            else:
                # Of what got through, only an older client's permissive request is told to wait.
                free = now + (wait_ms if events.mode[place] == PERMISSIVE else 0)
                delay_ms[place] = free - own_at[place]
                outcome[place] = THROTTLED if delay_ms[place] > 0 else ALLOWED
        open[place], free_at[client[place]] = False, free
        following = _head(behind[place], free, behind, events.mode, own_at, outcome, delay_ms, open)
        if following != _LAST:
            due[following] = max(free, own_at[following])
            heappush(heap, (due[following], following))


@compilable
def deliver(
    since: int, upto: int, reader: Integers, own_at: Integers, units: Integers, size: Integers,
    charged: Flags, rows: Integers, rate: Integers, period_ms: Integers, acquired: Integers,
    rolled_at: Integers, outcome: Outcomes, delay_ms: Integers, open: Flags,
) -> None:  # fmt: skip
    """Deliver to each reader in its order, only while something is left in all its counters, up to a time.

    Args:
        since: ms; what waits is tried again then: other rates may let it go earlier, by the same it waits on.
        upto: ms; what would be delivered then or later stays open.
        reader: whose each delivery is; broker, topic and subscription make one.
        own_at: when each was delivered, ms.
        units, size: messages, or entries where those count, and bytes of each.
        charged: whether it is charged.
        rows: of each one's broker, topic and subscription.
        rate, period_ms: of each counter.
        acquired, rolled_at: what each counter holds, and up to when it is paid off; changed in place.
        outcome, delay_ms: out, of those that are not open any more.
        open: all of them at first; changed in place.
    """
    first, behind = lined_up(reader)
    heap = [(max(since, own_at[place]), place) for place in first if place != _LAST]
    heap.sort()
    while len(heap) > 0 and heap[0][0] < upto:
        now, place = heappop(heap)
        for row in rows[place]:
            roll_row(acquired[row], rate[row], period_ms[row], rolled_at[row], now)
            rolled_at[row] = now
        wait_ms, _ = last_to_free(acquired, rate, period_ms, rows[place], now)
        if wait_ms > 0 and now < EXACT_MAX:
            heappush(heap, (now + min(wait_ms, EXACT_MAX), place))
            continue
        if charged[place]:
            for row in rows[place]:
                charge_row(acquired[row], rate[row], units[place], size[place])
        delay_ms[place], open[place] = now - own_at[place], False
        outcome[place] = THROTTLED if now > own_at[place] else ALLOWED
        following = behind[place]
        if following != _LAST:
            heappush(heap, (max(now, own_at[following]), following))
