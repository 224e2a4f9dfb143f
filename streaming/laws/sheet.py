"""Rows of packed records read in bulk: what `contract.fields` says of a field, here of a whole column.

What is not plainly right is left to the parser of single events, which knows what is wrong with it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming.columns.records import Records, too_far_ahead
from streaming.contract.errors import BadEvent
from streaming.contract.events import CONTRACT_VERSION
from streaming.contract.fields import INT64_MAX, TS_MAX_MS

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Doubles = NDArray[np.float64]
WORDS: Final = pa.dictionary(pa.int32(), pa.string())
"""Type of a text column of which many rows say the same."""


class NotPlain(Exception):
    """A column is of a type that is not plain for what it says; all rows are left to the parser."""


class Sheet:
    """Some rows of one type with the same columns.

    Args:
        rows: all of them.
        i: index of each in its Records.

    Attributes:
        good: which of them have been right in everything that was asked for.
    """

    def __init__(self, rows: pa.RecordBatch, i: Integers) -> None:
        self.rows, self.i = rows, i
        self.good: Flags = np.ones(len(i), dtype=np.bool_)
        if len(set(rows.schema.names)) < len(rows.schema.names):
            raise NotPlain

    def __len__(self) -> int:
        return len(self.i)

    def column(self, name: str) -> pa.Array:
        """A column as it came; nulls if there is none of this name."""
        place = self.rows.schema.get_field_index(name)
        return pa.nulls(len(self)) if place < 0 else self.rows.column(place)

    def only(self, which: Integers) -> "Sheet":
        """Some of the rows."""
        if len(which) == len(self):
            return self
        return Sheet(self.rows.take(pa.array(which)), self.i[which])

    def integers(
        self, name: str, default: Any | None, *, least: int = 0, most: int = INT64_MAX
    ) -> Integers:
        """As `fields.integer`; the default may be a column itself, and is not looked at."""
        values, given = integers_of(self.column(name))
        self.good &= ~given | ((values >= least) & (values <= most))
        filled: Integers = self._or_default(values, given, default)
        return filled

    def doubles(self, name: str, default: float) -> Doubles:
        """As `fields.number`, with a least of 0."""
        column = self.column(name)
        if not pa.types.is_float64(column.type):
            values, given = integers_of(column)
            numbers = values.astype(np.float64)
        else:
            given = _given(column)
            numbers = column.fill_null(0.0).to_numpy()
        self.good &= ~given | ((numbers >= 0.0) & np.isfinite(numbers))
        filled: Doubles = np.where(given, numbers, default)
        return filled

    def flags(self, name: str, default: bool | None) -> Flags:
        """As `fields.flag`."""
        values, given = flags_of(self.column(name))
        filled: Flags = self._or_default(values, given, default)
        return filled

    def words(self, name: str, default: str | None) -> pa.DictionaryArray:
        """As `fields.text`, for what many rows say alike: WORDS without nulls, no two words alike."""
        column = words_of(self.column(name))
        self._check_given(column, default)
        return words_of(column.dictionary_decode().fill_null(default or "")) if column.null_count else column

    def texts(self, name: str) -> pa.StringArray:
        """As `fields.text`, for what each row says for itself; null where nothing is said."""
        return texts_of(self.column(name))

    def lists(self, name: str) -> tuple["Sheet", Integers]:
        """A column of lists of objects: these, `i` being the row of each, and where each row's begin."""
        column = self.column(name)
        if not pa.types.is_list(column.type):
            raise NotPlain
        self._check_given(column, None)
        lengths = pc.list_value_length(column).fill_null(0).to_numpy()
        flat, row = column.flatten(), np.repeat(np.arange(len(self)), lengths)
        if not pa.types.is_struct(flat.type):
            if len(flat):
                raise NotPlain
            flat = pa.array([], pa.struct({}))
        items = Sheet(pa.RecordBatch.from_struct_array(flat), row)
        items.good &= _given(flat)
        return items, np.cumsum([0, *lengths])

    def refuse(self, words: pa.DictionaryArray, check: Callable[[str], Any]) -> None:
        """Leave the rows to the parser whose word `check` raises BadEvent for."""
        bad = []
        for number, word in enumerate(words.dictionary.to_pylist()):
            try:
                check(word)
            except BadEvent:
                bad.append(number)
        if bad:
            self.good &= ~np.isin(words.indices.to_numpy(), bad)

    def _check_given(self, column: pa.Array, default: Any | None) -> None:
        if default is None and column.null_count:
            self.good &= _given(column)

    def _or_default(self, values: Any, given: Flags, default: Any | None) -> Any:
        if default is None:
            self.good &= given
            return values
        return np.where(given, values, default)


def _given(column: pa.Array) -> Flags:
    given: Flags = column.is_valid().to_numpy(zero_copy_only=False)
    return given


def integers_of(column: pa.Array) -> tuple[Integers, Flags]:
    """A column's integers, 0 where there is none, and where there are.

    Raises:
        NotPlain: it holds something else, or numbers beyond 64 bits.
    """
    if not pa.types.is_integer(column.type) and not pa.types.is_null(column.type):
        raise NotPlain
    try:
        values = pc.cast(column, pa.int64())
    except pa.ArrowInvalid as error:
        raise NotPlain from error
    return values.fill_null(0).to_numpy(), _given(column)


def flags_of(column: pa.Array) -> tuple[Flags, Flags]:
    """A column's flags, false where there is none, and where there are.

    Raises:
        NotPlain: it holds something else.
    """
    if not pa.types.is_boolean(column.type) and not pa.types.is_null(column.type):
        raise NotPlain
    values = pc.cast(column, pa.bool_())
    return values.fill_null(False).to_numpy(zero_copy_only=False), _given(column)


def texts_of(column: pa.Array) -> pa.StringArray:
    """A column's texts.

    Raises:
        NotPlain: it holds something else.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if not _is_text(kind) and not pa.types.is_null(kind):
        raise NotPlain
    return pc.cast(column, pa.string())


def words_of(column: pa.Array) -> pa.DictionaryArray:
    """A column's texts as WORDS, no two words alike and none of them null.

    Raises:
        NotPlain: it holds something else.
    """
    if not pa.types.is_dictionary(column.type):
        return texts_of(column).dictionary_encode()
    # A foreign dictionary may hold null, and words twice; Arrow compares numbers, not words.
    own = texts_of(column.dictionary).dictionary_encode()
    return pa.DictionaryArray.from_arrays(own.indices.take(column.indices.cast(pa.int32())), own.dictionary)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


HEAD: Final = (
    pa.field("source", pa.int64()), pa.field("id", pa.string()), pa.field("ts", pa.int64()),
    pa.field("at", pa.int64()),
)  # fmt: skip
"""What every law's events have: index of the record, name, time and applied time (ms)."""


def head_of(sheet: Sheet, records: Records, max_ahead_ms: int) -> list[pa.Array]:
    """The columns of HEAD; what `contract.events.parse` would refuse is not good."""
    sheet.integers("v", CONTRACT_VERSION, least=1, most=CONTRACT_VERSION)
    times = records.times()[sheet.i]
    ts = sheet.integers("ts", times, most=TS_MAX_MS)
    sheet.good &= ts >= 0
    at = np.maximum(ts, sheet.integers("applied_ts", ts, most=TS_MAX_MS))
    sheet.good &= ~too_far_ahead(at, times, max_ahead_ms)
    if records.broadcast is not None:
        sheet.good &= ~np.asarray(records.broadcast, dtype=np.bool_)[sheet.i]
    ids = sheet.texts("id")
    if ids.null_count:
        unnamed = np.flatnonzero(~_given(ids))
        names = pa.array([records.name_of(i) for i in sheet.i[unnamed].tolist()], pa.string())
        ids = pc.replace_with_mask(ids, pc.is_null(ids), names)
    return [pa.array(sheet.i), ids, pa.array(ts), pa.array(at)]


def alike(records: Records, type: str) -> Iterator[tuple[pa.RecordBatch, Integers]]:
    """The rows of all packs of one type, those with the same columns together; and their indices."""
    found: dict[tuple[tuple[str, str], ...], list[tuple[pa.RecordBatch, Integers]]] = {}
    for pack in records.packs:
        if pack.type == type:
            schema = pack.rows.schema
            key = tuple(zip(schema.names, map(str, schema.types), strict=True))
            i = np.arange(pack.first, pack.first + len(pack.rows))
            found.setdefault(key, []).append((pack.rows.replace_schema_metadata(None), i))
    for pieces in found.values():
        yield joined([rows for rows, _ in pieces]), np.concatenate([i for _, i in pieces])


def joined(pieces: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Rows with the same columns, one after the other."""
    if len(pieces) == 1:
        return pieces[0]
    columns = [pa.concat_arrays(parts) for parts in zip(*(piece.columns for piece in pieces), strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pieces[0].schema)
