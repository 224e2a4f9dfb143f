"""The law of dispatch throttling: what may still be delivered in this period, and what to read for it.

Source: Pulsar's documentation, "Message dispatch throttling" (3.3.x): how it works, configurations and
its limitations; docs/contract.md 3.3; docs/protocol_notes.md 4.5.

A counter holds what was delivered and not yet paid off by the periods that ended since: each period's end
takes one period's rate off it, never below 0. Deliveries are charged after the fact, whatever their size, so
a period may be over-delivered and the next ones pay for it; what a period leaves unused is never carried on.

The page's example, 10 per second: after 11 delivered, 9 are available in the next period; after 30, nothing
in the next two, then 10 again.

>>> SECOND = 1000
>>> [available(rolled(11, 10, SECOND, 0, at), 10) for at in (999, 1000, 2000)]
[0, 9, 10]
>>> [available(rolled(30, 10, SECOND, 0, at), 10) for at in (1000, 2000, 3000)]
[0, 0, 10]
>>> wait_ms(30, 10, SECOND, 7)
2993

A broker, a topic and a subscription each have a counter for messages and one for bytes, and all apply
together. With preciseDispatcherFlowControl 10 messages in entries of 6 are 2 entries to read, not 10.

>>> precise_entries(10, 12, 2)
2

Where real Pulsar differs (docs/protocol_notes.md 4.5) and why we follow the page: its token buckets (PIP-322)
start their periods when the limiter is made, here periods are aligned to the epoch, so that every reader of
the log agrees on them; its preciseDispatcherFlowControl scales what the consumer permits and not the limit,
so 10 per second in batches of 6 still gives 60 at once, where the page's formula gives 2 entries; changing a
setting there forgets a debt, here debts are kept.
"""

from math import floor
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streaming.columns.compilable import compilable
from streaming.policy.dispatch_limits import NOT_LIMITED

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Doubles = NDArray[np.float64]

COUNT_MAX: Final = 2**63 - 1
"""Sums and times beyond 64 bits are cut here."""
NONE: Final = -1
"""No number: nothing limits."""

MSGS: Final = 0
BYTES: Final = 1
LEVELS: Final = ("broker", "topic", "subscription")
DIMENSIONS: Final = ("msgs", "bytes")

SEEN_MSGS: Final = 0
SEEN_BYTES: Final = 1
SEEN_ENTRIES: Final = 2
FORGET_MS: Final = 3_600_000
"""After an hour without a delivery a subscription's averages say nothing about the next one."""


@compilable
def added(count: int, more: int) -> int:
    """The sum of two counts, cut at 64 bits.

    >>> added(COUNT_MAX - 1, 5) == COUNT_MAX
    True
    """
    return COUNT_MAX if count > COUNT_MAX - more else count + more


@compilable
def whole(quotient: float) -> int:
    """A quotient rounded down, cut at 64 bits."""
    return COUNT_MAX if quotient >= 9.2e18 else floor(quotient)


@compilable
def rolled(acquired: int, rate: int, period_ms: int, since: int, now: int) -> int:
    """A counter after the periods that ended after `since` up to `now` (ms), each paying `rate` off.

    Args:
        acquired: what was delivered and not paid off at `since`.
        rate: per period; NOT_LIMITED: the counter does not count.
    """
    if rate == NOT_LIMITED:
        return 0
    periods = now // period_ms - since // period_ms
    # Compared before it is multiplied: the product of an age and a rate may pass 64 bits.
    if periods > acquired // rate:
        return 0
    return acquired - rate * periods


@compilable
def available(acquired: int, rate: int) -> int:
    """What may still be delivered in this period."""
    return max(0, rate - acquired)


@compilable
def ended_ms(periods: int, period_ms: int, now: int) -> int:
    """Time until so many periods have ended, cut at 64 bits."""
    if periods == 0:
        return 0
    if periods > COUNT_MAX // period_ms - now // period_ms:
        return COUNT_MAX
    return (now // period_ms + periods) * period_ms - now


@compilable
def wait_ms(acquired: int, rate: int, period_ms: int, now: int) -> int:
    """Time until the period in which something is available again, 0 if it is now.

    >>> wait_ms(9, 10, 1000, 500), wait_ms(10, 10, 1000, 500), wait_ms(25, 10, 5000, 1)
    (0, 500, 9999)
    """
    return ended_ms(acquired // rate, period_ms, now)


@compilable
def paid_ms(acquired: int, rate: int, period_ms: int, now: int) -> int:
    """Time until periods have paid everything off, if nothing more is delivered; 0 if nothing is owed.

    >>> [paid_ms(count, 10, 1000, 500) for count in (0, 1, 10, 11)]
    [0, 500, 500, 1500]
    """
    return ended_ms((acquired - 1) // rate + 1, period_ms, now)


@compilable
def precise_entries(msgs: int, seen_msgs: int, seen_entries: int) -> int:
    """Entries that hold `msgs`, rounded up (Pulsar's preciseDispatcherFlowControl).

    >>> precise_entries(10, 0, 0), precise_entries(10, 60, 10), precise_entries(1, 60, 10)
    (10, 2, 1)

    Args:
        seen_msgs: messages delivered so far.
        seen_entries: the entries that held them; with either 0, an entry is taken to hold one message.
    """
    if seen_msgs == 0 or seen_entries == 0:
        return msgs
    if msgs > COUNT_MAX // seen_entries:
        return whole(np.ceil(msgs / (seen_msgs / seen_entries)))
    # In whole numbers: 2 / (6 / 3) in doubles may fall on the wrong side of a whole number.
    return (msgs * seen_entries - 1) // seen_msgs + 1


@compilable
def entries_of_bytes(size: int, published: float, seen_bytes: int, seen_entries: int) -> int:
    """Entries that fit in `size` bytes, at least 1 (the page's limitations, by bytes).

    >>> entries_of_bytes(1000, 134.0, 0, 0), entries_of_bytes(1000, 0.0, 1340, 10)
    (7, 7)
    >>> entries_of_bytes(1000, 0.0, 0, 0), entries_of_bytes(50, 134.0, 0, 0)
    (1, 1)

    Args:
        published: mean size of a published entry, 0: not known.
        seen_bytes: bytes delivered so far: the second choice for a mean.
        seen_entries: the entries that held them.
    """
    if published > 0.0:
        return max(1, whole(size / published))
    if seen_bytes == 0 or seen_entries == 0:
        return 1
    if size > COUNT_MAX // seen_entries:
        return max(1, whole(size / (seen_bytes / seen_entries)))
    return max(1, size * seen_entries // seen_bytes)


@compilable
def least_available(acquired: Integers, rate: Integers) -> int:
    """The smallest that a dimension's levels leave available; NONE: no level limits it."""
    least = NONE
    for level in range(len(rate)):
        if rate[level] != NOT_LIMITED:
            here = available(acquired[level], rate[level])
            least = here if least == NONE else min(least, here)
    return least


@compilable
def entries_to_read(
    msgs: int, size: int, published: float, seen: Integers, precise: bool, by_entry: bool
) -> int:
    """Entries to read for what is available (docs/contract.md 3.3); NONE: nothing limits.

    Args:
        msgs: messages available, or entries if they are counted; NONE: not limited.
        size: bytes available; NONE: not limited.
        published: mean size of a published entry, 0: not known.
        seen: messages, bytes and entries delivered so far.
        precise: preciseDispatcherFlowControl.
        by_entry: dispatchThrottlingOnBatchMessageEnabled.
    """
    if msgs == 0 or size == 0:
        return 0
    entries = NONE
    if msgs != NONE:
        divided = precise and not by_entry
        entries = precise_entries(msgs, seen[SEEN_MSGS], seen[SEEN_ENTRIES]) if divided else msgs
    if size != NONE:
        fitting = entries_of_bytes(size, published, seen[SEEN_BYTES], seen[SEEN_ENTRIES])
        entries = fitting if entries == NONE else min(entries, fitting)
    return entries


@compilable
def roll_row(acquired: Integers, rate: Integers, period_ms: int, since: int, now: int) -> None:
    """Bring the two counters of a row from `since` to `now`, in place."""
    for dimension in range(len(DIMENSIONS)):
        acquired[dimension] = rolled(acquired[dimension], rate[dimension], period_ms, since, now)


@compilable
def roll_rows(
    rows: Integers, acquired: Integers, rolled_at: Integers, rate: Integers, period_ms: Integers, upto: int
) -> None:
    """Bring these rows to `upto` ms, in place; `rate` and `period_ms` have one entry for each of `rows`."""
    for place in range(len(rows)):
        row = rows[place]
        roll_row(acquired[row], rate[place], period_ms[place], rolled_at[row], upto)
        rolled_at[row] = upto


@compilable
def charge_row(acquired: Integers, rate: Integers, units: int, size: int) -> None:
    """Add a delivery to the counters of a row that limit, in place."""
    if rate[MSGS] != NOT_LIMITED:
        acquired[MSGS] = added(acquired[MSGS], units)
    if rate[BYTES] != NOT_LIMITED:
        acquired[BYTES] = added(acquired[BYTES], size)


@compilable
def last_to_free(
    acquired: Integers, rate: Integers, period_ms: Integers, rows: Integers, now: int
) -> tuple[int, int]:
    """The longest wait of all counters of `rows`, and whose it is (level * 2 + dimension; NONE: no wait)."""
    longest = 0
    freed_by = NONE
    for level in range(len(rows)):
        row = rows[level]
        for dimension in range(len(DIMENSIONS)):
            if rate[row, dimension] == NOT_LIMITED:
                continue
            wait = wait_ms(acquired[row, dimension], rate[row, dimension], period_ms[row], now)
            if wait > longest:  # not >=: the first level, then dimension, wins a tie
                longest = wait
                freed_by = level * len(DIMENSIONS) + dimension
    return longest, freed_by


@compilable
def all_paid_ms(acquired: Integers, rate: Integers, period_ms: Integers, rows: Integers, now: int) -> int:
    """Time until all counters of `rows` are 0, if nothing more is delivered."""
    longest = 0
    for row in rows:
        for dimension in range(len(DIMENSIONS)):
            if rate[row, dimension] != NOT_LIMITED:
                paid = paid_ms(acquired[row, dimension], rate[row, dimension], period_ms[row], now)
                longest = max(longest, paid)
    return longest


@compilable
def walk(
    order: Integers, at: Integers, delivered: Integers, published: Doubles, charged: Flags, precise: bool,
    by_entry: bool, rows: Integers, last: Integers, rolled_at: Integers, acquired: Integers, rate: Integers,
    period_ms: Integers, seen: Integers, left: Integers, throttle_ms: Integers, freed_by: Integers,
    to_read: Integers, counted: Integers, owed_ms: Integers,
) -> None:  # fmt: skip
    """Take deliveries in order through the counters of their levels; exact sequential arithmetic.

    Event columns (one entry an event): `at` in ms, brought to the broker's clock in place, `delivered`
    (messages, bytes, entries), `published` (mean entry, 0: not known), whether it is `charged`, and `rows` of
    its broker, topic and subscription. `order` holds the events to walk, in order; `precise` and `by_entry`
    as in `entries_to_read`. State columns (one entry a row): `last` event and `rolled_at` in ms, `acquired`,
    `rate` and `period_ms` of its counters, `seen` (a subscription's deliveries so far). Results (one entry an
    event): `left` available (NONE: not limited), `throttle_ms`, `freed_by` (level * 2 + dimension of the
    counter that frees last, NONE: not throttled), `to_read` entries, `counted` (its counters after it, a row
    a level), `owed_ms` until these are 0.
    """
    for i in order:
        subscription = rows[i, 2]
        now = at[i] = max(at[i], last[rows[i, 0]])  # the broker's clock
        if now - last[subscription] > FORGET_MS:
            seen[subscription] = 0
        for place in range(len(delivered[i])):
            seen[subscription, place] = added(seen[subscription, place], delivered[i, place])
        units = delivered[i, SEEN_ENTRIES] if by_entry else delivered[i, SEEN_MSGS]
        for row in rows[i]:
            roll_row(acquired[row], rate[row], period_ms[row], rolled_at[row], now)
            rolled_at[row] = now
            last[row] = now
            if charged[i]:
                charge_row(acquired[row], rate[row], units, delivered[i, SEEN_BYTES])
        throttle_ms[i], freed_by[i] = last_to_free(acquired, rate, period_ms, rows[i], now)
        owed_ms[i] = all_paid_ms(acquired, rate, period_ms, rows[i], now)
        for level in range(len(LEVELS)):
            for dimension in range(len(DIMENSIONS)):
                counted[i, level, dimension] = acquired[rows[i, level], dimension]
        for dimension in range(len(DIMENSIONS)):
            left[i, dimension] = least_available(acquired[rows[i], dimension], rate[rows[i], dimension])
        to_read[i] = entries_to_read(
            left[i, MSGS], left[i, BYTES], published[i], seen[subscription], precise, by_entry
        )
