"""Clients and subscriptions that have one thing on its way at a time, each in the order of the log.

Compiled, and plain Python besides: the laws' own steps decide, one event after the other.
"""

from heapq import heappop, heappush
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streaming.columns.byte_strings import Integers
from streaming.columns.compilable import compilable
from streaming.laws.dispatch.law import charge_row, last_to_free, roll_row
from streaming.laws.mutation.law import PERMISSIVE, REFUND, Events, Flags, Results, State, Terms, walk
from weir.plan.verdicts import ALLOWED, EXACT_MAX, REFUSED, THROTTLED, Outcomes

TRIES: Final = 10
"""How often a client asks for the same at most."""
HELD_MAX_MS: Final = 3_600_000
"""A request that is not sent an hour after its time is given up."""
_LAST: Final = -1


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
def ask(
    order: Integers, client: Integers, events: Events, terms: Terms, state: State, results: Results,
    outcome: Outcomes, delay_ms: Integers,
) -> None:  # fmt: skip
    """Have clients send their requests, wait as they are told, and try again.

    Args:
        order: rows of the events, in the order of the log.
        client: who sends each of `order`.
        events, terms, state, results: as of the law's `walk`; changed in place.
        outcome, delay_ms: out, an entry for each of `order`; ALLOWED: sent in time and let through.
    """
    first, behind = lined_up(client)
    own_at, tries = events.at[order], np.zeros(len(order), dtype=np.int64)
    done = np.zeros(len(events.mutations), dtype=np.bool_)
    heap = [(own_at[place], place) for place in first]
    heap.sort()
    while len(heap) > 0:
        now, place = heappop(heap)
        i = order[place]
        events.at[i] = now
        walk(order[place : place + 1], events, terms, 0, state, results)
        free_at = now
        if events.mode[i] != REFUND:
            wait_ms = min(results.wait_ms[i], EXACT_MAX)
            tries[place] += 1
            if _refused(i, events, results, done):
                free_at = now + wait_ms
                if tries[place] < TRIES and free_at - own_at[place] < HELD_MAX_MS:
                    heappush(heap, (free_at, place))
                    continue
                outcome[place], delay_ms[place] = REFUSED, now - own_at[place]
            else:
                # Of what got through, only an older client's permissive request is told to wait.
                free_at = now + (wait_ms if events.mode[i] == PERMISSIVE else 0)
                delay_ms[place] = free_at - own_at[place]
                outcome[place] = THROTTLED if delay_ms[place] > 0 else ALLOWED
        following = behind[place]
        while following != _LAST and free_at - own_at[following] >= HELD_MAX_MS:
            if events.mode[order[following]] == REFUND:
                break
            outcome[following], delay_ms[following] = REFUSED, HELD_MAX_MS
            following = behind[following]
        if following != _LAST:
            heappush(heap, (max(free_at, own_at[following]), following))


@compilable
def deliver(
    reader: Integers, at: Integers, units: Integers, size: Integers, charged: Flags, rows: Integers,
    changes: Integers, rate: NDArray[np.int64], period_ms: NDArray[np.int64], counters: int,
    outcome: Outcomes, delay_ms: Integers,
) -> None:  # fmt: skip
    """Deliver to each reader in its order, and only while something is left in all its counters.

    Args:
        reader: whose each delivery is; broker, topic and subscription make one.
        at: when each was delivered, ms.
        units, size: messages, or entries where those count, and bytes of each.
        charged: whether it is charged.
        rows: of each one's broker, topic and subscription.
        changes: times (ms) from which other rates hold,
        rate, period_ms: of each counter: before the first change, then after each.
        counters: how many rows there are.
        outcome, delay_ms: out.
    """
    first, behind = lined_up(reader)
    acquired, rolled_at = np.zeros((counters, 2), dtype=np.int64), np.zeros(counters, dtype=np.int64)
    heap = [(at[place], place) for place in first]
    heap.sort()
    while len(heap) > 0:
        now, place = heappop(heap)
        stage = np.searchsorted(changes, now, side="right")
        for row in rows[place]:
            roll_row(acquired[row], rate[stage, row], period_ms[stage, row], rolled_at[row], now)
            rolled_at[row] = now
        wait_ms, _ = last_to_free(acquired, rate[stage], period_ms[stage], rows[place], now)
        if wait_ms > 0 and now < EXACT_MAX:
            heappush(heap, (now + min(wait_ms, EXACT_MAX), place))
            continue
        if charged[place]:
            for row in rows[place]:
                charge_row(acquired[row], rate[stage, row], units[place], size[place])
        delay_ms[place] = now - at[place]
        outcome[place] = THROTTLED if now > at[place] else ALLOWED
        if behind[place] != _LAST:
            heappush(heap, (max(now, at[behind[place]]), behind[place]))
