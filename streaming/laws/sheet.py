"""Rows of packed records as laws read them: their columns, and what all events have in common.

What is not plainly right is left to the parser of single events, which knows what is wrong with it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming.columns.byte_strings import Integers
from streaming.columns.records import Records, too_far_ahead
from streaming.contract.errors import BadEvent
from streaming.contract.events import CONTRACT_VERSION
from streaming.contract.fields import TS_MAX_MS
from streaming.laws.row_fields import RowFields

Doubles = NDArray[np.float64]
MISSING: Final = -(2**62)
"""Default of integers that must be there: less than any that is plain."""


class Sheet(RowFields):
    """Some rows of one type with the same columns.

    Args:
        rows: all of them.
        i: index of each among what they belong to: its Records, or the rows whose lists hold it.
    """

    def __init__(self, rows: pa.RecordBatch, i: Integers) -> None:
        super().__init__(rows.schema.names, rows.columns, len(i))
        self.rows, self.i = rows, i

    def __len__(self) -> int:
        return len(self.i)

    def only(self, which: Integers) -> "Sheet":
        """Some of the rows."""
        if len(which) == len(self):
            return self
        return Sheet(self.rows.take(pa.array(which)), self.i[which])

    def moments(self, times: Integers, max_ahead_ms: int) -> tuple[Integers, Integers]:
        """`ts` and the applied time of each, ms; what `contract.events.parse` would refuse is not plain."""
        self.integers("v", CONTRACT_VERSION, minimum=1, maximum=CONTRACT_VERSION)
        ts = self.integers("ts", times, maximum=TS_MAX_MS)
        at = np.maximum(ts, self.integers("applied_ts", ts, maximum=TS_MAX_MS))
        self.plain &= ~too_far_ahead(at, times, max_ahead_ms)
        return ts, at

    def require(self, *names: str) -> None:
        """Leave the rows to the parser in which one of these columns says nothing."""
        for name in names:
            self.plain &= self.said(name)

    def sizes(self, name: str) -> Doubles:
        """A column of finite numbers of 0 or more; 0 where it is null."""
        numbers = self.numbers(name)
        self.plain &= numbers >= 0.0
        return numbers

    def encoded(self, name: str) -> pa.DictionaryArray:
        """A column of texts as WORDS, no two words alike; the empty one where it is null."""
        return words_of(self.names(name, ""))

    def elements(self, name: str, of: Callable[[pa.DataType], bool]) -> tuple[pa.Array, Integers, Integers]:
        """A column of lists that must be there: elements, the row of each, where each row's begin."""
        self.require(name)
        ends, elements = self.lists(name, lambda kind: of(kind) or pa.types.is_null(kind))
        elements, ends = elements.slice(ends[0], ends[-1] - ends[0]), ends - ends[0]
        return elements, np.repeat(np.arange(len(self)), np.diff(ends)), ends

    def refuse(self, words: pa.DictionaryArray, check: Callable[[str], Any]) -> None:
        """Leave the rows to the parser whose word `check` raises BadEvent for."""
        bad = []
        for number, word in enumerate(words.dictionary.to_pylist()):
            try:
                check(word)
            except BadEvent:
                bad.append(number)
        if bad:
            self.plain &= ~np.isin(words.indices.to_numpy(), bad)


def objects_of(elements: pa.Array, row: Integers) -> Sheet:
    """Elements of lists that are objects, `i` being the row of each; null is none."""
    if pa.types.is_null(elements.type):
        elements = pa.nulls(len(elements), pa.struct([]))
    items = Sheet(pa.RecordBatch.from_struct_array(elements), row)
    items.plain &= elements.is_valid().to_numpy(zero_copy_only=False)
    return items


def words_of(texts: pa.Array) -> pa.DictionaryArray:
    """Texts as WORDS, no two words alike."""
    if not pa.types.is_dictionary(texts.type):
        return texts.cast(pa.string()).dictionary_encode()
    # A foreign dictionary may hold words twice; laws compare numbers, not words.
    own = texts.dictionary.cast(pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(own.indices.take(texts.indices), own.dictionary)


HEAD: Final = (
    pa.field("source", pa.int64()), pa.field("id", pa.string()), pa.field("ts", pa.int64()),
    pa.field("at", pa.int64()),
)  # fmt: skip
"""What every law's events have: index of the record, name, time and applied time (ms)."""


def head_of(sheet: Sheet, records: Records, max_ahead_ms: int) -> list[pa.Array]:
    """The columns of HEAD; what `contract.events.parse` would refuse is not plain."""
    ts, at = sheet.moments(records.times()[sheet.i], max_ahead_ms)
    ids = named(sheet.texts("id"), sheet.i, records)
    return [pa.array(sheet.i), ids, pa.array(ts), pa.array(at)]


def named(ids: pa.Array, source: Integers, records: Records) -> pa.Array:
    """The ids of events of these records; those that say none have their records'."""
    if not ids.null_count:
        return ids
    unnamed = ids.is_null()
    missing = source[unnamed.to_numpy(zero_copy_only=False)].tolist()
    return pc.replace_with_mask(ids, unnamed, pa.array(map(records.name_of, missing), pa.string()))


def alike(records: Records, type: str) -> Iterator[Sheet]:
    """The rows of all packs of one type, those with the same columns together.

    What every shard got came by the wrong topic, which the parser's way says: it is not plain.
    """
    found: dict[tuple[tuple[str, str], ...], list[tuple[pa.RecordBatch, Integers]]] = {}
    for pack in records.packs:
        if pack.type == type:
            schema = pack.rows.schema
            key = tuple(zip(schema.names, map(str, schema.types), strict=True))
            i = np.arange(pack.first, pack.first + len(pack.rows))
            found.setdefault(key, []).append((pack.rows.replace_schema_metadata(None), i))
    for pieces in found.values():
        sheet = Sheet(joined([rows for rows, _ in pieces]), np.concatenate([i for _, i in pieces]))
        if records.broadcast is not None:
            sheet.plain &= ~np.asarray(records.broadcast, dtype=np.bool_)[sheet.i]
        yield sheet


def joined(pieces: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Rows with the same columns, one after the other."""
    if len(pieces) == 1:
        return pieces[0]
    # One batch, or an error: a column of 2 GiB of text stays in parts, and none may be lost.
    (rows,) = pa.Table.from_batches(pieces).unify_dictionaries().combine_chunks().to_batches()
    return rows
