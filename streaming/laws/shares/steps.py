"""A batch of reports and ticks as the compiled rounds take it: by group."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from streaming.columns.byte_strings import Integers
from streaming.columns.compiled import lean
from streaming.laws.law import Entry
from streaming.laws.shares.columns import WIDTH, Codes, Doubles, Steps
from streaming.laws.shares.law import FREE, NOT_REPORTED, THROTTLED
from streaming.laws.shares.reports import NOT_SAID, Reports, Rows

NO_SOURCE: Final = -1
"""Source of what the end of the input decides in a batch without events."""
HUNGRY_PARTS: Final = 20
"""Throttled for one part in so many of the period (5 %): hungry."""


def steps_of(
    reports: Reports, group: Integers, slot: Integers, count: int, ticks: Sequence[Entry], *, end: bool
) -> Steps:
    """What a batch does to the groups.

    Args:
        reports: in order.
        group: of each of them, number of its group.
        slot: of each of them, where its broker stands.
        count: how many groups there are.
        ticks: in order.
        end: no more input will come.
    """
    source, rows = reports.source, len(reports.source)
    begins = np.flatnonzero(np.diff(source, prepend=NO_SOURCE)) if rows else np.empty(0, np.int64)
    number = np.zeros(rows, dtype=np.int64)
    number[begins[1:]] = 1
    number = np.cumsum(number)
    before = reports.ticks[begins]
    after = np.searchsorted(before, np.arange(len(ticks)), side="right")
    first = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(group, minlength=count), out=first[1:])
    steps = Steps(
        first=first, event=np.empty(rows, np.int64), slot=np.empty(rows, np.int64),
        used=np.empty((rows, WIDTH)), throttled=np.empty((rows, WIDTH), np.int8), at=reports.at[begins],
        ts=reports.ts[begins], source=source[begins], ticks=before,
        position=np.arange(len(begins)) + before,
        tick_at=np.array([tick.event.at for tick in ticks], np.int64),
        tick_position=np.arange(len(ticks)) + after,
        tick_source=np.array([tick.source for tick in ticks], np.int64), end=end,
        last=np.array([_last_source(reports, ticks), len(begins) + len(ticks)]),
    )  # fmt: skip
    _sort(group, first.copy(), slot, number, reports.period_ms, reports.counts, reports.throttled_ms,
          steps.event, steps.slot, steps.used, steps.throttled)  # fmt: skip
    return steps


def no_reports() -> Reports:
    """None."""
    return Rows().finish()


def _last_source(reports: Reports, ticks: Sequence[Entry]) -> int:
    """The record of the batch's last event."""
    if len(reports.source) and reports.ticks[-1] == len(ticks):
        return int(reports.source[-1])
    return ticks[-1].source if ticks else NO_SOURCE


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
