"""How reports and ticks come to the law of shares: plain packed reports as columns, the others parsed."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from streaming.columns.byte_strings import Integers
from streaming.columns.records import Records
from streaming.contract.events import MAX_AHEAD_MS, Event, Tick
from streaming.contract.usage_events import DIMENSIONS, GroupUsage
from streaming.laws.law import Entries, Entry, Flags, Intake
from streaming.laws.row_fields import places
from streaming.laws.shares.report_rows import NOT_SAID, ReportPart, read_reports
from streaming.laws.sheet import alike
from streaming.policy.timeline import PolicyTimeline

_NONE: Final = np.empty(0, dtype=np.int64)
_WIDTH: Final = len(DIMENSIONS)
GROUP_USAGE: Final = "group_usage"
NO_SOURCE: Final = -1
"""Source of what the end of the input decides in a batch without events."""


class Reports(NamedTuple):
    """What brokers used of groups, in the order of docs/contract.md 1; a row per event and group.

    Rows of one event stand together, have one `source` and no group twice. All columns of numbers are
    int64, in rows one after the other (C order), and may be written to.

    Attributes:
        at: when the event is applied, ms.
        ts: when it was reported, ms.
        period_ms: the time that the counts cover; 1 or more.
        source: index of the event's record.
        ticks: how many of the batch's ticks (`Batch.entries`) come before it.
        counts: of the period, a column for each of DIMENSIONS.
        throttled_ms: how long the broker held traffic back, a column for each of DIMENSIONS, or NOT_SAID.
        group: number of the group.
        broker: number of the broker.
        groups: their names; no two alike.
        brokers: their names; no two alike.
    """

    at: Integers
    ts: Integers
    period_ms: Integers
    source: Integers
    ticks: Integers
    counts: Integers
    throttled_ms: Integers
    group: Integers
    broker: Integers
    groups: pa.StringArray
    brokers: pa.StringArray


class ReportBatch(NamedTuple):
    """A batch of the law.

    Attributes:
        reports: in order.
        ticks: in order; a report says how many come before it.
    """

    reports: Reports
    ticks: list[Entry]


class ReportIntake(Intake):
    """Reports and ticks of one batch."""

    def __init__(self, records: Records, max_ahead_ms: int = MAX_AHEAD_MS) -> None:
        self.newest = -1
        self._max_ahead_ms = max_ahead_ms
        self._parts: list[ReportPart] = []
        self._put: list[tuple[int, GroupUsage]] = []
        self._ticks = Entries(records, max_ahead_ms)
        self._records = records

    def scan(self) -> Flags:
        """Read the plain packed reports."""
        records = self._records
        taken: Flags = np.zeros(len(records), dtype=np.bool_)
        for sheet in alike(records, GROUP_USAGE):
            part = read_reports(sheet, records.times()[sheet.i], self._max_ahead_ms)
            taken[part.record] = True
            self._parts.append(part)
            self.newest = max(self.newest, int(part.at.max(initial=self.newest)))
        return taken

    def scanned(self) -> Iterator[tuple[Integers, Integers]]:
        """Of the plain ones: their records, and when each is applied, ms."""
        return ((part.record, part.at) for part in self._parts)

    def put(self, i: int, event: Event) -> None:
        """Take a report or tick."""
        self.newest = max(self.newest, event.at)
        if isinstance(event, Tick):
            self._ticks.put(i, event)
        else:
            assert isinstance(event, GroupUsage)
            self._put.append((i, event))

    def events(self, timeline: PolicyTimeline, *, replay: bool) -> ReportBatch | None:
        """All of them, in the order of docs/contract.md 1."""
        ticks = self._ticks.events(timeline, replay=replay) or []
        whole = _joined([*self._parts, *([_parsed(self._put)] if self._put else [])])
        if not len(whole.at) and not ticks:
            return None
        record = np.concatenate([whole.record, np.array([tick.source for tick in ticks], dtype=np.int64)])
        at = np.concatenate([whole.at, np.array([tick.event.at for tick in ticks], dtype=np.int64)])
        first, second, row = (column[record] for column in self._records.arrivals())
        order = np.lexsort((record, row, second, first, at))
        is_tick = order >= len(whole.record)
        ticks_before = np.cumsum(is_tick.astype(np.int64))[~is_tick]
        return ReportBatch(_rows(whole, order[~is_tick], ticks_before), ticks)


def _rows(whole: ReportPart, order: Integers, ticks: Integers) -> Reports:
    """The entries of some records in this order; `ticks` is how many ticks come before each record."""
    ends = np.cumsum(whole.entries)
    entries = whole.entries[order]
    rows = places(ends[order] - entries, entries)
    groups, brokers = whole.groups.take(pa.array(rows)), whole.brokers.take(pa.array(order))
    group, broker = groups.dictionary_encode(), brokers.dictionary_encode()
    return Reports(
        at=np.repeat(whole.at[order], entries),
        ts=np.repeat(whole.ts[order], entries),
        period_ms=np.repeat(whole.period_ms[order], entries),
        source=np.repeat(whole.record[order], entries),
        ticks=np.repeat(ticks, entries),
        counts=whole.counts[rows],
        throttled_ms=whole.throttled_ms[rows],
        group=_numbers(group),
        broker=np.repeat(_numbers(broker), entries),
        groups=group.dictionary,
        brokers=broker.dictionary,
    )


def no_reports() -> Reports:
    """None."""
    return _rows(_parsed([]), _NONE, _NONE)


def _parsed(events: Sequence[tuple[int, GroupUsage]]) -> ReportPart:
    told = [pair for _, event in events for pair in event.usage]
    heads = [(i, event.at, event.ts, event.period_ms, len(event.usage)) for i, event in events]
    record, at, ts, period_ms, entries = np.array(heads, np.int64).reshape(-1, 5).T.copy()
    said = [
        (*report.counts, *(NOT_SAID if time is None else time for time in report.throttled_ms))
        for _, report in told
    ]
    counts, throttled_ms = np.split(np.array(said, np.int64).reshape(-1, 2 * _WIDTH), 2, axis=1)
    return ReportPart(
        record=record, at=at, ts=ts, period_ms=period_ms, entries=entries,
        brokers=pa.array([event.broker for _, event in events], pa.string()),
        counts=counts.copy(), throttled_ms=throttled_ms.copy(),
        groups=pa.array([name for name, _ in told], pa.string()),
    )  # fmt: skip


def _joined(parts: Sequence[ReportPart]) -> ReportPart:
    if len(parts) == 1:
        return parts[0]
    joined = {}
    for name in ReportPart.__slots__:
        columns = [getattr(part, name) for part in (_parsed([]), *parts)]
        joined[name] = (pa.concat_arrays if name in ("brokers", "groups") else np.concatenate)(columns)
    return ReportPart(**joined)


def _numbers(column: pa.DictionaryArray) -> Integers:
    numbers: Integers = column.indices.to_numpy().astype(np.int64)
    return numbers
