"""How reports and ticks come to the law of shares: plain packed reports as columns, the others parsed.

What reads packed reports (docs/contract.md 1 and 3.2) is no second parser: `contract.events.parse` alone says
what an event is. A row is *plain* if it is sure that `parse` takes its JSON object and what it gives; all
others go through `parse`. So a rule that is missing here costs time only; a property test holds both equal.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns.byte_strings import Integers
from streaming.columns.compiled import lean
from streaming.contract.events import Event
from streaming.contract.usage_events import COUNTS, DIMENSIONS, GroupUsage
from streaming.laws.column_intake import ColumnIntake
from streaming.laws.law import Intake
from streaming.laws.row_fields import Flags, RowFields, ends_of, fields_of, listed
from streaming.laws.sheet import HEAD, Sheet

NO_SOURCE: Final = -1
"""Source of what the end of the input decides in a batch without events."""
NOT_SAID: Final = -1
"""Instead of a number: nothing is said. In `throttled_ms`, that the broker does not report it."""
_WIDTH: Final = len(DIMENSIONS)
_ENTRY: Final = pa.struct(
    [pa.field("group", pa.string()), *(pa.field(name, pa.int64()) for name in (*COUNTS, *DIMENSIONS))]
)
"""What a report says of one group: counts, and how long it was held back in each dimension, or NOT_SAID."""
_FIELDS: Final = (
    pa.field("broker", pa.string()),  # null: it is a tick
    pa.field("period_ms", pa.int64()),
    pa.field("usage", pa.list_(_ENTRY)),
)


class Reports(NamedTuple):
    """What brokers used of groups, in the order of docs/contract.md 1; a row per event and group.

    Rows of one event stand together, have one `source` and no group twice. All columns of numbers are
    int64, in rows one after the other (C order), and may be written to.

    Attributes:
        at: when the event is applied, ms.
        ts: when it was reported, ms.
        period_ms: the time that the counts cover; 1 or more.
        source: index of the event's record.
        ticks: how many of the batch's ticks come before it.
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
        tick_at: times of the ticks, in order, ms; a report says how many come before it.
        tick_source: index of each one's record.
    """

    reports: Reports
    tick_at: Integers
    tick_source: Integers

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> Self:
        """What the columns of `ReportIntake` say."""
        at, ts, period_ms, source = (rows[name].to_numpy() for name in ("at", "ts", "period_ms", "source"))
        is_tick = rows["broker"].is_null().to_numpy(zero_copy_only=False)
        row = np.repeat(np.arange(len(rows)), pc.list_value_length(rows["usage"]).to_numpy())
        group, *numbers = rows["usage"].flatten().flatten()
        counts, throttled_ms = (
            np.stack([column.to_numpy() for column in some], axis=1)
            for some in (numbers[:_WIDTH], numbers[_WIDTH:])
        )
        groups, brokers = group.dictionary_encode(), rows["broker"].dictionary_encode()
        reports = Reports(
            at=at[row], ts=ts[row], period_ms=period_ms[row], source=source[row],
            ticks=np.cumsum(is_tick)[row], counts=counts, throttled_ms=throttled_ms,
            group=groups.indices.to_numpy().astype(np.int64),
            broker=brokers.indices.fill_null(-1).to_numpy().astype(np.int64)[row],
            groups=groups.dictionary, brokers=brokers.dictionary,
        )  # fmt: skip
        return cls(reports, at[is_tick], source[is_tick])


def no_reports(*tick_at: int) -> ReportBatch:
    """No reports, but ticks of these times, ms, of no record."""
    ticks = [{"source": NO_SOURCE, "ts": at, "at": at, "period_ms": 0, "usage": []} for at in tick_at]
    return ReportBatch.of(pa.RecordBatch.from_pylist(ticks, pa.schema([*HEAD, *_FIELDS])))


class ReportIntake(ColumnIntake, Intake):
    """Reports and ticks of one batch."""

    type = "group_usage"
    fields = _FIELDS
    batch = ReportBatch

    def read(self, sheet: Sheet, ts: Integers) -> list[pa.Array]:
        """As `contract.usage_events.group_usage`."""
        return read_reports(sheet)

    def listed(self, events: Sequence[Event]) -> list[pa.Array]:
        """Those that the parser has read, ticks too."""
        reports = [event if isinstance(event, GroupUsage) else None for event in events]
        usage = [() if report is None else report.usage for report in reports]
        told = [pair for each in usage for pair in each]
        said = [
            (*report.counts, *(NOT_SAID if time is None else time for time in report.throttled_ms))
            for _, report in told
        ]
        numbers = np.array(said, np.int64).reshape(-1, 2 * _WIDTH).T.copy()
        groups = pa.array([name for name, _ in told], pa.string())
        return [
            pa.array([None if report is None else report.broker for report in reports], pa.string()),
            pa.array([0 if report is None else report.period_ms for report in reports], pa.int64()),
            listed(ends_of(np.array(list(map(len, usage)))), [groups, *map(pa.array, numbers)], _ENTRY),
        ]


def read_reports(sheet: Sheet) -> list[pa.Array]:
    """The columns of `ReportIntake`; `sheet.plain` says afterwards which rows they are right in."""
    sheet.require("broker")
    period_ms = sheet.integers("period_ms", NOT_SAID, minimum=1)
    usage = _usage(sheet.rows)
    sheet.plain &= usage.is_valid().to_numpy(zero_copy_only=False)
    ends, groups, numbers, good = _entries(usage)
    names = groups.dictionary_encode()
    last = np.full(len(names.dictionary), NOT_SAID)
    _check(ends, names.indices.to_numpy(), last, good, sheet.plain)
    return [sheet.texts("broker"), pa.array(period_ms), listed(ends, [groups, *numbers], _ENTRY)]


def plain_rows(rows: pa.RecordBatch, times: Integers, max_ahead_ms: int) -> Flags:
    """Which rows of type `group_usage` are plain.

    Args:
        rows: all of them.
        times: timestamps of their records, ms; -1: none.
        max_ahead_ms: how far an event may lie after its record's timestamp, if that has one.
    """
    sheet = Sheet(rows, np.arange(rows.num_rows))
    sheet.moments(times, max_ahead_ms)
    sheet.texts("id")
    read_reports(sheet)
    return sheet.plain


def _numbers(fields: RowFields, name: str) -> Integers:
    """Integers from 0 on, NOT_SAID where nothing is said; a row with anything else is not plain."""
    numbers = fields.integers(name, NOT_SAID, minimum=NOT_SAID)
    if numbers.min(initial=0) < 0:
        fields.plain &= (numbers >= 0) | ~fields.said(name)
    return numbers


def _usage(rows: pa.RecordBatch) -> pa.MapArray:
    """What is said by group; nulls where that is no map."""
    column = rows["usage"] if "usage" in rows.schema.names else pa.nulls(0)
    if pa.types.is_map(column.type) and pa.types.is_struct(column.type.item_type):
        return column
    return pa.nulls(rows.num_rows, pa.map_(pa.string(), pa.struct([])))


def _entries(usage: pa.MapArray) -> tuple[Integers, pa.Array, list[pa.Array], Flags]:
    """Of all reports: where each one's entries begin and the last one's end; then of each entry the group,
    the numbers of _ENTRY, and whether these are plain.
    """
    offsets = usage.offsets.to_numpy().astype(np.int64)
    first, size = int(offsets[0]), int(offsets[-1] - offsets[0])
    told = usage.items.slice(first, size)
    fields = fields_of(told)
    counts = [_numbers(fields, name) for name in COUNTS]
    good = np.logical_or.reduce([count != NOT_SAID for count in counts])
    place = told.type.get_field_index("throttledMs")
    times, plain = _times(pa.nulls(size) if place < 0 else told.field(place))
    numbers = [*(np.maximum(count, 0) for count in counts), *times]
    good &= fields.plain & plain
    return offsets - first, usage.keys.slice(first, size), list(map(pa.array, numbers)), good


def _times(throttled: pa.Array) -> tuple[list[Integers], Flags]:
    """How long each dimension was held back, and whether an entry's are plain."""
    # Maps are not: only objects keyed by names of groups and the like are maps (docs/contract.md 1).
    fields = fields_of(throttled) if pa.types.is_struct(throttled.type) else RowFields([], [], len(throttled))
    fields.plain &= pa.types.is_struct(throttled.type) or pa.types.is_null(throttled.type)
    return [_numbers(fields, name) for name in DIMENSIONS], fields.plain


@lean
def _check(ends: Integers, names: Any, last: Integers, good: Flags, plain: Flags) -> None:
    """Reports with an entry that is not plain, or a group twice, are not."""
    for row in range(len(plain)):
        for entry in range(ends[row], ends[row + 1]):
            if not good[entry] or last[names[entry]] == row:
                plain[row] = False
            last[names[entry]] = row
