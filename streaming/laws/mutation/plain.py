"""Plain requests and refunds: those that can be read from Arrow columns in bulk.

It is an accelerator and no second parser: a row is *plain* where it is sure that `contract.events.parse`
takes it and what that gives; all others go through the parser. So a rule that is missing here costs time
only. tests/unit/streaming/laws/mutation/test_plain.py holds both equal.
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns.byte_strings import Bytes, Integers, bytes_in, is_canonical
from streaming.columns.compiled import lean
from streaming.columns.records import too_far_ahead
from streaming.contract.events import ANONYMOUS, CONTRACT_VERSION, OWN_AHEAD_MS
from streaming.contract.fields import TS_MAX_MS
from streaming.laws.mutation.law import ALLOW, REJECT, THROTTLE
from streaming.laws.mutation.requests import (
    ANSWERED,
    DECIDED,
    DRY,
    LATE,
    OF_ITEMS,
    OUTCOMES,
    REFUND,
    REJECT_LATE,
    STAMPED,
    STRICT,
    Requests,
    encoded,
)
from streaming.laws.row_fields import Flags, RowFields, ends_of, fields_of, is_text, places

REFUND_TYPE: Final = "refund"
TYPES: Final = ("request", REFUND_TYPE)
_ITEM: Final = pa.struct([("name", pa.string()), ("mutations", pa.int64())])
_DECIDED: Final = pa.struct(
    [
        ("outcome", pa.string()), ("rejected", pa.list_(pa.string())), ("throttle_time_ms", pa.int64()),
        ("tokens", pa.float64()),
    ]
)  # fmt: skip
SCHEMA: Final = pa.schema(
    [
        ("type", pa.string()), ("v", pa.int64()), ("id", pa.string()), ("ts", pa.int64()),
        ("applied_ts", pa.int64()), ("of_ts", pa.int64()), ("proxy", pa.string()), ("user", pa.string()),
        ("client_id", pa.string()), ("strict", pa.bool_()), ("validate_only", pa.bool_()),
        ("items", pa.list_(_ITEM)), ("subject", pa.string()), ("deadline_ms", pa.int64()),
        ("asked_ts", pa.int64()), ("on_late", pa.string()), ("late", pa.bool_()),
        ("answered", pa.string()), ("decided", _DECIDED),
    ]
)  # fmt: skip
"""What the parser reads of a request or refund, by the names of docs/contract.md 3.1."""


class _Items(NamedTuple):
    """Where the items of each row begin and the last one's end; of each item its name and mutations."""

    ends: Integers
    names: pa.Array
    mutations: Integers


class _Decisions(NamedTuple):
    """What `decided` says, where it says something; see `Requests`."""

    outcome: Integers
    wait_ms: Integers
    gone: Flags


def plain(rows: pa.RecordBatch, type: str, source: Integers, times: Integers, max_ahead_ms: int) -> Requests:
    """The plain ones of some rows.

    Args:
        rows: as `columns.packed.unpack` or `columns.json_lines.arrow.read` gives them.
        type: one of TYPES.
        source: index of the record of each row.
        times: timestamp of that record, ms; -1: none.
        max_ahead_ms: how far an event may lie after that.

    Returns:
        Columns in which an `id` that is not said is null.
    """
    fields = RowFields(rows.schema.names, rows.columns, len(rows))
    fields.integers("v", CONTRACT_VERSION, minimum=CONTRACT_VERSION, maximum=CONTRACT_VERSION)
    ts = fields.integers("ts", times, maximum=TS_MAX_MS)
    at = fields.integers("applied_ts", ts, maximum=TS_MAX_MS)
    of_ts, deadline_ms = fields.integers("of_ts", ts, maximum=TS_MAX_MS), np.full(len(ts), -1)
    flags, items = STAMPED * fields.said("subject"), _items(fields)
    told = _Decisions(np.zeros_like(ts), np.zeros_like(ts), np.zeros(len(items.mutations), dtype=np.bool_))
    if type == REFUND_TYPE:
        flags |= REFUND
        # What several items add up to is left to the parser.
        fields.plain &= np.diff(items.ends) == 1
    else:
        deadline_ms = fields.integers("deadline_ms", deadline_ms, minimum=-1)
        fields.plain &= (deadline_ms >= 0) | ~fields.said("deadline_ms")
        under_way_ms = np.maximum(0, ts - fields.integers("asked_ts", ts, maximum=TS_MAX_MS))
        flags |= _request_flags(fields) | LATE * ((deadline_ms >= 0) & (under_way_ms > deadline_ms))
        deadline_ms = np.where(deadline_ms < 0, deadline_ms, np.maximum(0, deadline_ms - under_way_ms))
        if (flags & DECIDED).any():
            told = _told(fields, flags, items)
    at = _applied(fields, ts, at, times, flags, max_ahead_ms)
    read = Requests(
        source=source, at=at, ts=ts, of_ts=of_ts, deadline_ms=deadline_ms, flags=flags, first=items.ends[:-1],
        items=np.diff(items.ends), outcome=told.outcome, wait_ms=told.wait_ms, mutations=items.mutations,
        gone=told.gone, names=items.names, id=fields.texts("id"), proxy=encoded(fields.names("proxy", "")),
        user=fields.names("user", ANONYMOUS), client_id=fields.names("client_id", ""),
        subject=_subjects(fields),
    )  # fmt: skip
    return read if fields.plain.all() else _only(read, np.flatnonzero(fields.plain))


def _request_flags(fields: RowFields) -> Integers:
    flags: Integers = (
        STRICT * fields.flags("strict", True) | DRY * fields.flags("validate_only", False)
        | LATE * fields.flags("late", False) | REJECT_LATE * fields.words("on_late", ("allow", "reject"), 0)
        | ANSWERED * fields.said("answered") | DECIDED * fields.said("decided")
    )  # fmt: skip
    fields.words("answered", ("not_before",), 0)
    return flags


def _items(fields: RowFields) -> _Items:
    ends, values = fields.lists("items", pa.types.is_struct)
    fields.plain &= fields.said("items")
    inside = fields_of(values) if len(values) else RowFields([], [], 0)
    names, mutations = inside.texts("name"), inside.integers("mutations", -1)
    inside.plain &= names.is_valid().to_numpy(zero_copy_only=False)
    fields.plain &= _of_each(~inside.plain, ends) == 0
    return _Items(ends=ends, names=names.cast(pa.large_string()), mutations=mutations)


def _told(fields: RowFields, flags: Integers, items: _Items) -> _Decisions:
    """What was decided where it was asked; it is plain if all items were rejected or none, in order."""
    inside = fields.structs("decided")
    outcome = inside.words("outcome", OUTCOMES, -1)
    wait_ms = inside.integers("throttle_time_ms", -1)
    inside.numbers("tokens")
    inside.plain &= inside.said("rejected")
    ends, names = inside.lists("rejected", is_text)
    rejected, count = np.diff(ends), np.diff(items.ends)
    all_gone = rejected > 0
    same = rejected == count
    # Names of requests of which as many were rejected as they have items: the same names in the same order?
    pairs = np.flatnonzero(all_gone & same)
    if len(pairs):
        texts = names.cast(pa.string()).cast(pa.large_string())
        one = texts.take(pa.array(places(ends[pairs], rejected[pairs])))
        other = items.names.take(pa.array(places(items.ends[pairs], rejected[pairs])))
        differ = ~pc.equal(one, other).fill_null(False).to_numpy(zero_copy_only=False)
        same[pairs] = _of_each(differ, ends_of(rejected[pairs])) == 0
    strict = flags & STRICT != 0
    inside.plain &= (
        (flags & (ANSWERED | LATE) == 0) & (~all_gone | same) & (all_gone == (outcome == REJECT))
        & (outcome != np.where(strict, THROTTLE, REJECT)) & ((wait_ms > 0) == (outcome != ALLOW))
    )  # fmt: skip
    decided = flags & DECIDED != 0
    fields.plain &= inside.plain | ~decided
    gone = np.zeros(len(items.mutations), dtype=np.bool_)
    gone[places(items.ends[:-1][all_gone & decided], count[all_gone & decided])] = True
    return _Decisions(np.where(decided, outcome, 0), np.where(decided, wait_ms, 0), gone)


def _of_each(which: Flags, ends: Integers) -> Integers:
    """How many of the elements of each list are marked."""
    counts: Integers = np.diff(ends_of(which)[ends])
    return counts


def _applied(
    fields: RowFields, ts: Integers, at: Integers, times: Integers, flags: Integers, max_ahead_ms: int
) -> Integers:
    """When each is applied: what a proxy said of its own by a clock that leads, at its record's time; what it
    asks, not before its `ts`.
    """
    own = flags & (REFUND | DECIDED) != 0
    at = np.where(own, at, np.maximum(ts, at))
    fields.plain &= own | ~too_far_ahead(at, times, max_ahead_ms)
    applied: Integers = np.where(own & too_far_ahead(at, times, OWN_AHEAD_MS), times, at)
    return applied


def _subjects(fields: RowFields) -> pa.Array:
    """The quota entities that are said; only canonical ones are plain."""
    subject = fields.names("subject", "")
    repeat = pa.types.is_dictionary(subject.type)
    words = subject.dictionary if repeat else subject
    text, ends = bytes_in(words)
    canonical = np.empty(len(words), dtype=np.bool_)
    _judge_all(text, ends, canonical)
    if not canonical.all():
        fields.plain &= canonical[subject.indices.to_numpy()] if repeat else canonical
    return subject


@lean
def _judge_all(text: Bytes, ends: Integers, canonical: Flags) -> None:
    for number in range(len(canonical)):
        canonical[number] = is_canonical(text, ends[number], ends[number + 1])


def _only(requests: Requests, rows: Integers) -> Requests:
    """Some of the rows; items that are nobody's stay behind in their columns."""
    place = pa.array(rows)
    return requests._replace(
        **{
            name: column[rows] if isinstance(column, np.ndarray) else column.take(place)
            for name, column in requests._asdict().items()
            if name not in OF_ITEMS
        }
    )
