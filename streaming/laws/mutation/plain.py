"""Plain requests and refunds: those that can be read from Arrow columns in bulk.

It is an accelerator and no second parser: a row is *plain* where it is sure that `contract.events.parse`
takes it and what that gives; all others go through the parser. So a rule that is missing here costs time
only. tests/unit/streaming/laws/mutation/test_plain.py holds both equal.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming.columns.byte_strings import Bytes, Integers, bytes_in, is_canonical
from streaming.columns.compiled import lean
from streaming.columns.records import too_far_ahead
from streaming.contract.events import ANONYMOUS, CONTRACT_VERSION
from streaming.contract.fields import INT64_MAX, TS_MAX_MS
from streaming.laws.mutation.requests import (
    ANSWERED,
    DRY,
    LATE,
    REFUND,
    REJECT_LATE,
    STAMPED,
    STRICT,
    Requests,
    encoded,
)

Flags = NDArray[np.bool_]
TYPES: Final = ("request", "refund")
_ITEM: Final = pa.struct([("name", pa.string()), ("mutations", pa.int64())])
SCHEMA: Final = pa.schema(
    [
        ("type", pa.string()), ("v", pa.int64()), ("id", pa.string()), ("ts", pa.int64()),
        ("applied_ts", pa.int64()), ("of_ts", pa.int64()), ("proxy", pa.string()), ("user", pa.string()),
        ("client_id", pa.string()), ("strict", pa.bool_()), ("validate_only", pa.bool_()),
        ("items", pa.list_(_ITEM)), ("subject", pa.string()), ("deadline_ms", pa.int64()),
        ("on_late", pa.string()), ("late", pa.bool_()), ("answered", pa.string()),
    ]
)  # fmt: skip
"""What the parser reads of a request or refund, by the names of docs/contract.md 3.1."""

def plain(rows: pa.RecordBatch, type: str, source: Integers, times: Integers, max_ahead_ms: int) -> Requests:
    """The plain ones of some rows.

    Args:
        rows: as `columns.packed.unpack` or `columns.json_columns.read` gives them.
        type: one of TYPES.
        source: index of the record of each row.
        times: timestamp of that record, ms; -1: none.
        max_ahead_ms: how far an event may lie after that.

    Returns:
        Columns in which an `id` that is not said is null.
    """
    reading = _Reading(rows.schema.names, rows.columns, len(rows))
    reading.integers("v", CONTRACT_VERSION, minimum=CONTRACT_VERSION, maximum=CONTRACT_VERSION)
    ts = reading.integers("ts", times, maximum=TS_MAX_MS)
    at = np.maximum(ts, reading.integers("applied_ts", ts, maximum=TS_MAX_MS))
    of_ts, deadline_ms = reading.integers("of_ts", ts, maximum=TS_MAX_MS), np.full(len(ts), -1)
    flags = STAMPED * reading.said("subject")
    name, proxy = reading.texts("id"), encoded(reading.names("proxy", ""))
    if type == "refund":
        flags |= REFUND
    else:
        deadline_ms = reading.integers("deadline_ms", deadline_ms, minimum=-1)
        flags |= (
            STRICT * reading.flags("strict", True) | DRY * reading.flags("validate_only", False)
            | LATE * reading.flags("late", False) | ANSWERED * reading.words("answered", "not_before")
            | REJECT_LATE * reading.words("on_late", "reject", "allow")
        )  # fmt: skip
    user, client_id = reading.names("user", ANONYMOUS), reading.names("client_id", "")
    subject = reading.subjects()
    first, items, names, mutations = reading.items()
    reading.plain &= ~too_far_ahead(at, times, max_ahead_ms)
    if type == "refund":
        # What several items add up to is left to the parser.
        reading.plain &= items == 1
    read = Requests(
        source=source, at=at, ts=ts, of_ts=of_ts, deadline_ms=deadline_ms, flags=flags, first=first,
        items=items, mutations=mutations, names=names, id=name, proxy=proxy, user=user, client_id=client_id,
        subject=subject,
    )  # fmt: skip
    return read if reading.plain.all() else _only(read, np.flatnonzero(reading.plain))


def _only(requests: Requests, rows: Integers) -> Requests:
    """Some of the rows; items that are nobody's stay behind in their columns."""
    of_items, place = ("mutations", "names"), pa.array(rows)
    return requests._replace(
        **{
            name: column[rows] if isinstance(column, np.ndarray) else column.take(place)
            for name, column in requests._asdict().items()
            if name not in of_items
        }
    )


class _Reading:
    """Columns of rows on their way.

    Attributes:
        plain: which rows have been plain so far.
    """

    def __init__(self, names: Sequence[str], columns: Sequence[pa.Array], count: int) -> None:
        self._columns = dict(zip(names, map(_without_null_texts, columns), strict=True))
        self._count = count
        self.plain: Flags = np.ones(count, dtype=np.bool_)

    def said(self, name: str) -> Integers:
        """1 where a column is not null, else 0."""
        column = self._columns.get(name)
        if column is None:
            return np.zeros(self._count, dtype=np.int64)
        if not column.null_count:
            return np.ones(self._count, dtype=np.int64)
        there: Integers = column.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
        return there

    def integers(
        self, name: str, default: Any, *, minimum: int = 0, maximum: int = INT64_MAX
    ) -> Integers:
        """A column of integers; `default`, one or an array, where it is null."""
        column = self._column(name, pa.types.is_int64)
        if column is None:
            values = np.broadcast_to(np.asarray(default, dtype=np.int64), self._count)
        elif column.null_count:
            said = column.is_valid().to_numpy(zero_copy_only=False)
            values = np.where(said, column.fill_null(0).to_numpy(), default)
        else:
            values = column.to_numpy()
        self.plain &= (values >= minimum) & (values <= maximum)
        return values

    def flags(self, name: str, default: bool) -> Flags:
        """A column of true and false."""
        column = self._column(name, pa.types.is_boolean)
        if column is None:
            return np.full(self._count, default)
        values: Flags = column.fill_null(default).to_numpy(zero_copy_only=False)
        return values

    def words(self, name: str, *words: str) -> Flags:
        """Whether a column says the first of these words; null is none, and any other word not plain."""
        column = self._column(name, _is_text)
        if column is None:
            return np.zeros(self._count, dtype=np.bool_)
        text = column.cast(pa.string())
        known = pc.is_in(text, pa.array([None, *words], pa.string()))
        self.plain &= known.to_numpy(zero_copy_only=False)
        is_first: Flags = pc.equal(text, words[0]).fill_null(False).to_numpy(zero_copy_only=False)
        return is_first

    def texts(self, name: str) -> pa.Array:
        """A column of texts, Arrow string, with its nulls."""
        column = self._column(name, _is_text)
        return pa.nulls(self._count, pa.string()) if column is None else column.cast(pa.string())

    def names(self, name: str, default: str) -> pa.Array:
        """A column of texts without nulls, Arrow string or NAMES."""
        column = self._column(name, _is_text)
        if column is None:
            zeros = pa.array(np.zeros(self._count, dtype=np.int32))
            return pa.DictionaryArray.from_arrays(zeros, pa.array([default], pa.string()))
        return column.cast(pa.string()).fill_null(default) if column.null_count else column

    def subjects(self) -> pa.Array:
        """The quota entities that are said, NAMES; only canonical ones are plain."""
        subject = encoded(self.names("subject", ""))
        text, ends = bytes_in(subject.dictionary)
        canonical = np.empty(len(subject.dictionary), dtype=np.bool_)
        _judge_all(text, ends, canonical)
        if not canonical.all():
            self.plain &= canonical[subject.indices.to_numpy()]
        return subject

    def items(self) -> tuple[Integers, Integers, pa.Array, Integers]:
        """Of each row its first item and how many it has; of each item its name and mutations."""
        column = self._column("items", _is_list_of_structs)
        if column is None:
            self.plain[:] = False
            none = np.zeros(self._count, dtype=np.int64)
            return none, none, pa.array([], pa.large_string()), np.zeros(0, dtype=np.int64)
        ends = column.offsets.to_numpy().astype(np.int64)
        first, items = ends[:-1], np.diff(ends)
        if column.null_count:
            self.plain &= column.is_valid().to_numpy(zero_copy_only=False)
        values = column.values
        inside = _Reading([field.name for field in values.type], values.flatten(), len(values))
        mutations, names = inside.integers("mutations", -1), inside.texts("name")
        inside.plain &= names.is_valid().to_numpy(zero_copy_only=False)
        if not inside.plain.all():
            bad = np.zeros(len(mutations) + 1, dtype=np.int64)
            np.cumsum(~inside.plain, out=bad[1:])
            self.plain &= bad[ends[1:]] == bad[first]
        return first, items, names.cast(pa.large_string()), mutations

    def _column(self, name: str, fits: Callable[[pa.DataType], bool]) -> pa.Array | None:
        """A column, None: nothing is said in it; where it is of another kind, only what is null is plain."""
        column = self._columns.get(name)
        if column is None or column.null_count == self._count:
            return None
        if not fits(column.type):
            self.plain &= column.is_null().to_numpy(zero_copy_only=False)
            return None
        return column


def _without_null_texts(column: pa.Array) -> pa.Array:
    """A column in which null is said in one way, and not by a null text in a dictionary."""
    if pa.types.is_dictionary(column.type) and column.dictionary.null_count:
        return column.cast(column.type.value_type)
    return column


def _is_text(kind: pa.DataType) -> bool:
    texts = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(texts))


def _is_list_of_structs(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) and pa.types.is_struct(kind.value_type))


@lean
def _judge_all(text: Bytes, ends: Integers, canonical: Flags) -> None:
    for number in range(len(canonical)):
        canonical[number] = is_canonical(text, ends[number], ends[number + 1])
