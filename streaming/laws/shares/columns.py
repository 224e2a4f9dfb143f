"""What the rounds of the law of shares work on: columns of a shard's groups and brokers, what happens,
what is decided.
"""

from math import nan
from typing import Final, NamedTuple

import numpy as np

from streaming.columns.byte_strings import Integers
from streaming.columns.compiled import lean
from streaming.contract.usage_events import DIMENSIONS
from streaming.laws.row_fields import ends_of
from streaming.laws.shares.intake import NO_SOURCE, NOT_SAID, ReportBatch
from streaming.laws.shares.law import FREE, HUNGRY_PARTS, NOT_REPORTED, THROTTLED, Codes, Doubles, Flags

NOT_WRITTEN: Final = -1
"""For the time at which a group's shares were last written: they are still to be."""

SHARE: Final = 0
IDLE: Final = 1
EXPIRED: Final = 2
"""What a decision says: a share, or why there is none any more."""

NOWHERE: Final = -1
"""Number of the policies at hand while there are none, and of what there is not."""
MORE_ROOM: Final = -2
"""Instead of the number of the policies that a group waits for: it waits for room for what is decided."""
DONE: Final = 2**62
"""The same: it waits for nothing."""
WIDTH: Final = len(DIMENSIONS)


class Groups(NamedTuple):
    """Groups of a shard.

    Attributes:
        first: slot of each one's first broker, and one more.
        size: how many of its slots hold a broker; `end`, `every` and `newest` mean something while any does.
        end: when its open round ends, ms.
        every: length of the open round, ms, as the policies had it when the round began.
        newest: time of its newest report, ms.
        touched: a report came in the open round.
        told_end: end of the round whose shares stand, ms; 0: none stand, as in the next four.
        told_every: length of that round, ms.
        told_limited: dimensions that were limited in it.
        told_shadow: the shares are not enforced.
        written: time (ms) of their last writing or repeat, NOT_WRITTEN if that is still to be noted.
    """

    first: Integers
    size: Integers
    end: Integers
    every: Integers
    newest: Integers
    touched: Flags
    told_end: Integers
    told_every: Integers
    told_limited: Flags
    told_shadow: Flags
    written: Integers


class Members(NamedTuple):
    """Brokers that report of a group, in slots; those of a group by name, so that no sum depends on who
    reported first.

    Attributes:
        there: whether the slot holds one; the others say nothing.
        broker: its number among the names.
        ts: time of its last report, ms.
        used: rate per second in each of DIMENSIONS.
        throttled: THROTTLED, FREE or NOT_REPORTED in each of them.
        told: its last decision gave it shares, so its leaving must be told too.
        shares: those shares, NaN where it has none.
        held: which of them still count as its last share; unused ones are forgotten.
        told_used: the rates that were told with them; 0 where not limited.
    """

    there: Flags
    broker: Integers
    ts: Integers
    used: Doubles
    throttled: Codes
    told: Flags
    shares: Doubles
    held: Flags
    told_used: Doubles


class Steps(NamedTuple):
    """What happens to the groups: reports and ticks. Reports stand by group, each group's in order, so that
    they are read one after the other.

    Attributes:
        first: where each group's reports begin, and one more.
        event: of each report, number of its event.
        slot: of each report, where its broker stands.
        used: of each report, rates.
        throttled: of each report, THROTTLED, FREE or NOT_REPORTED.
        at, ts, source, ticks: of each event, see Reports.
        tick_at: times of the ticks, ms.
        tick_position: of each tick among all events of the batch.
        tick_source: see Reports.
        end: no more input will come.
        last: source and position of what happens at the end.
    """

    first: Integers
    event: Integers
    slot: Integers
    used: Doubles
    throttled: Codes
    at: Integers
    ts: Integers
    source: Integers
    ticks: Integers
    tick_at: Integers
    tick_position: Integers
    tick_source: Integers
    end: bool
    last: Integers


class Rules(NamedTuple):
    """The rhythm of rounds over time.

    Attributes:
        changes: distinct times (ms) at which any policy changes.
        every: length of a round (ms) before the first change, after it, and so on.
        expiry: how many rounds old a member's report may be, likewise.
    """

    changes: Integers
    every: Integers
    expiry: Integers


class Limits(NamedTuple):
    """Limits of groups, a row a group.

    Attributes:
        rates: per second, a column for each of DIMENSIONS; NaN: not limited.
        known: whether the policies know the group.
        shadow: decided, but nobody acts on it.
    """

    rates: Doubles
    known: Flags
    shadow: Flags


def no_limits(count: int) -> Limits:
    """Of groups that the policies do not know."""
    flags = np.zeros((2, count), dtype=np.bool_)
    return Limits(rates=np.full((count, len(DIMENSIONS)), nan), known=flags[0], shadow=flags[1])


class Progress(NamedTuple):
    """How far each group is.

    Attributes:
        row: number of its next report.
        tick: number of its next tick.
        fresh: its next report is known not to be stale.
        need: number of the policies that it waits for, MORE_ROOM or DONE.
        stale: in its only place, how many reports were stale.
    """

    row: Integers
    tick: Integers
    fresh: Flags
    need: Integers
    stale: Integers


class Told(NamedTuple):
    """What was decided: closed rounds, and a row for each decision of them.

    Attributes:
        position: of the event that closed the round.
        source: index of its record.
        group: whose round.
        end, every, limited, shadow: see Groups.
        first: number of its first decision.
        broker: of each decision, number of the broker.
        why: of each decision, SHARE, IDLE or EXPIRED.
        used: of each decision, rates.
        shares: of each decision, NaN where there is none.
        filled: numbers of rounds and of decisions so far.
    """

    position: Integers
    source: Integers
    group: Integers
    end: Integers
    every: Integers
    limited: Flags
    shadow: Flags
    first: Integers
    broker: Integers
    why: Codes
    used: Doubles
    shares: Doubles
    filled: Integers


class Takers(NamedTuple):
    """Room for those who share a dimension of one group.

    Attributes:
        slot: of each.
        used, hungry, last, shares: see `law.divide`.
    """

    slot: Integers
    used: Doubles
    hungry: Flags
    last: Doubles
    shares: Doubles


def room_for(takers: int) -> Takers:
    """Room for so many."""
    used, last, shares = np.empty((3, takers))
    return Takers(np.empty(takers, np.int64), used, np.empty(takers, np.bool_), last, shares)


def no_told(rounds: int, decisions: int) -> Told:
    """Room for so many."""
    return Told(
        position=np.empty(rounds, np.int64), source=np.empty(rounds, np.int64),
        group=np.empty(rounds, np.int64), end=np.empty(rounds, np.int64), every=np.empty(rounds, np.int64),
        limited=np.empty((rounds, WIDTH), np.bool_), shadow=np.empty(rounds, np.bool_),
        first=np.empty(rounds, np.int64), broker=np.empty(decisions, np.int64),
        why=np.empty(decisions, np.int8), used=np.empty((decisions, WIDTH)),
        shares=np.empty((decisions, WIDTH)), filled=np.zeros(2, np.int64),
    )  # fmt: skip


def with_room(told: Told, rounds: int, decisions: int) -> Told:
    """The same with room for so many more; where it grows, it does so at once by as much as it holds."""
    rounds, decisions = int(told.filled[0]) + rounds, int(told.filled[1]) + decisions
    if rounds <= len(told.group) and decisions <= len(told.why):
        return told
    wide = no_told(len(told.group) + rounds, len(told.why) + decisions)
    for name, column in told._asdict().items():
        getattr(wide, name)[: len(column)] = column
    return wide


def steps_of(batch: ReportBatch, group: Integers, slot: Integers, count: int, *, end: bool) -> Steps:
    """What a batch does to the groups.

    Args:
        batch: see there.
        group: of each report, number of its group.
        slot: of each report, where its broker stands.
        count: how many groups there are.
        end: no more input will come.
    """
    reports, ticks = batch.reports, len(batch.tick_at)
    source, rows = reports.source, len(reports.source)
    other = np.diff(source, prepend=NO_SOURCE) != 0
    begins, number = np.flatnonzero(other), np.cumsum(other) - 1
    before = reports.ticks[begins]
    after = np.searchsorted(before, np.arange(ticks), side="right")
    first = ends_of(np.bincount(group, minlength=count))
    steps = Steps(
        first=first, event=np.empty(rows, np.int64), slot=np.empty(rows, np.int64),
        used=np.empty((rows, WIDTH)), throttled=np.empty((rows, WIDTH), np.int8), at=reports.at[begins],
        ts=reports.ts[begins], source=source[begins], ticks=before,
        tick_at=batch.tick_at, tick_position=np.arange(ticks) + after, tick_source=batch.tick_source, end=end,
        last=np.array([_last_source(batch), len(begins) + ticks]),
    )  # fmt: skip
    _sort(group, first.copy(), slot, number, reports.period_ms, reports.counts, reports.throttled_ms,
          steps.event, steps.slot, steps.used, steps.throttled)  # fmt: skip
    return steps


def _last_source(batch: ReportBatch) -> int:
    """The record of the batch's last event."""
    reports, ticks = batch.reports, batch.tick_source
    if len(reports.source) and reports.ticks[-1] == len(ticks):
        return int(reports.source[-1])
    return int(ticks[-1]) if len(ticks) else NO_SOURCE


@lean
def _sort(
    group: Integers, place: Integers, slot: Integers, number: Integers, period_ms: Integers,
    counts: Integers, throttled_ms: Integers, events: Integers, slots: Integers, used: Doubles,
    throttled: Codes,
) -> None:  # fmt: skip
    """Fill the last four columns by group; `place` says where each group's reports begin."""
    for row in range(len(group)):
        to = place[group[row]]
        place[group[row]] = to + 1
        events[to], slots[to] = number[row], slot[row]
        period = period_ms[row]
        # So many that it is throttled; not 20 times the time, which may be more than an integer holds.
        hungry_ms = period // HUNGRY_PARTS + (period % HUNGRY_PARTS != 0)
        for dimension in range(WIDTH):
            used[to, dimension] = counts[row, dimension] * 1000.0 / period
            time_ms = throttled_ms[row, dimension]
            if time_ms == NOT_SAID:
                throttled[to, dimension] = NOT_REPORTED
            else:
                throttled[to, dimension] = THROTTLED if time_ms >= hungry_ms else FREE
