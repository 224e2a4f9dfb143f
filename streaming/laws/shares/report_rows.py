"""Reads packed usage reports (docs/contract.md 1 and 3.2) as columns.

An accelerator and no second parser: `contract.events.parse` alone says what an event is. A row is *plain* if
this reader is sure that `parse` takes its JSON object and what it gives; all others go through `parse`. So a
rule that is missing here costs time only; a property test holds both equal.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from streaming.columns.byte_strings import Integers
from streaming.columns.compiled import lean
from streaming.contract.usage_events import COUNTS, DIMENSIONS
from streaming.laws.row_fields import Flags, RowFields, fields_of
from streaming.laws.sheet import Sheet

NOT_SAID: Final = -1
"""Instead of a number: nothing is said. In `throttled_ms`, that the broker does not report it."""
_WIDTH: Final = len(DIMENSIONS)


@dataclass(slots=True)
class ReportPart:
    """Reports: a row a report in `record` to `brokers`, a row an *entry*, which is what a report says of one
    group, in the others.

    Attributes:
        record: its number.
        at: when it is applied, ms.
        ts: when it was reported, ms.
        period_ms: the time that its counts cover.
        entries: how many it has.
        brokers: names.
        counts: a column for each of DIMENSIONS.
        throttled_ms: the same, or NOT_SAID.
        groups: names.
    """

    record: Integers
    at: Integers
    ts: Integers
    period_ms: Integers
    entries: Integers
    brokers: pa.StringArray
    counts: Integers
    throttled_ms: Integers
    groups: pa.StringArray


def read_reports(sheet: Sheet, times: Integers, max_ahead_ms: int) -> ReportPart:
    """The plain reports among rows of type `group_usage`; `record` is the index of one (Sheet.i).

    Args:
        sheet: the rows.
        times: timestamps of the rows' records, ms; -1: none.
        max_ahead_ms: how far an event may lie after its record's timestamp, if that has one.
    """
    ts, at = sheet.moments(times, max_ahead_ms)
    period_ms = sheet.integers("period_ms", NOT_SAID, minimum=1)
    brokers, _, usage = sheet.texts("broker"), sheet.texts("id"), _usage(sheet.rows)
    plain = sheet.plain & _there(brokers) & _there(usage)
    ends, groups, counts, throttled_ms, good = _entries(usage)
    names = groups.dictionary_encode()
    _check(ends, names.indices.to_numpy(), np.full(len(names.dictionary), NOT_SAID), good, plain)
    own = np.flatnonzero(plain)
    entries = np.diff(ends)
    part = ReportPart(
        record=sheet.i[own], at=at[own], ts=ts[own], period_ms=period_ms[own], entries=entries[own],
        brokers=brokers.take(pa.array(own)), counts=counts, throttled_ms=throttled_ms, groups=groups,
    )  # fmt: skip
    if len(own) < len(plain):
        kept = np.flatnonzero(np.repeat(plain, entries))
        part.counts, part.throttled_ms = counts[kept], throttled_ms[kept]
        part.groups = groups.take(pa.array(kept))
    return part


def plain_rows(rows: pa.RecordBatch, times: Integers, max_ahead_ms: int) -> Flags:
    """Which rows are plain; other arguments as of `read_reports`."""
    plain: Flags = np.zeros(rows.num_rows, dtype=np.bool_)
    plain[read_reports(Sheet(rows, np.arange(rows.num_rows)), times, max_ahead_ms).record] = True
    return plain


def _there(column: pa.Array) -> Flags:
    there: Flags = column.is_valid().to_numpy(zero_copy_only=False)
    return there


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


def _entries(usage: pa.MapArray) -> tuple[Integers, pa.Array, Integers, Integers, Flags]:
    """Of all reports: where each one's entries begin and the last one's end; then of each entry the group,
    the counts, the times, and whether these are plain.
    """
    offsets = usage.offsets.to_numpy().astype(np.int64)
    first, size = int(offsets[0]), int(offsets[-1] - offsets[0])
    told = usage.items.slice(first, size)
    counts, throttled_ms = (np.empty((size, _WIDTH), dtype=np.int64) for _ in range(2))
    fields = fields_of(told)
    for place, name in enumerate(COUNTS):
        counts[:, place] = _numbers(fields, name)
    good = fields.plain & (counts != NOT_SAID).any(axis=1)
    np.maximum(counts, 0, out=counts)
    place = told.type.get_field_index("throttledMs")
    good &= _times(pa.nulls(size) if place < 0 else told.field(place), throttled_ms)
    return offsets - first, usage.keys.slice(first, size), counts, throttled_ms, good


def _times(throttled: pa.Array, times: Integers) -> Flags:
    """Fill in how long each dimension was held back; whether an entry's are plain."""
    times[:] = NOT_SAID
    if pa.types.is_null(throttled.type):
        return np.ones(len(throttled), dtype=np.bool_)
    if pa.types.is_struct(throttled.type):
        fields = fields_of(throttled)
        for place, name in enumerate(DIMENSIONS):
            times[:, place] = _numbers(fields, name)
        return fields.plain
    # Maps too: only objects keyed by names of groups and the like are maps (docs/contract.md 1).
    return np.zeros(len(throttled), dtype=np.bool_)


@lean
def _check(ends: Integers, names: Any, last: Integers, good: Flags, plain: Flags) -> None:
    """Reports with an entry that is not plain, or a group twice, are not."""
    for row in range(len(plain)):
        for entry in range(ends[row], ends[row + 1]):
            if not good[entry] or last[names[entry]] == row:
                plain[row] = False
            last[names[entry]] = row
