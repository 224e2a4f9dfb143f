"""The fields of many events at once: columns read as `contract.fields` reads one event's.

What `contract.fields` would refuse, or what needs a closer look, is not refused here: its row is not *plain*
and is left to the contract's parser. So a rule that is missing here costs time only.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming.columns.byte_strings import Integers
from streaming.contract.fields import INT64_MAX

Flags = NDArray[np.bool_]
WORDS: Final = pa.dictionary(pa.int32(), pa.string())
"""Type of a text column of which many rows say the same."""


class RowFields:
    """Columns of some rows, in the forms of `columns.packed.unpack`, on their way to what they say.

    Args:
        names: of the columns.
        columns: of one length.
        count: that length.

    Attributes:
        plain: which rows have been plain so far; it may be narrowed from outside.
    """

    def __init__(self, names: Sequence[str], columns: Sequence[pa.Array], count: int) -> None:
        self._columns = dict(zip(names, columns, strict=True))
        self._count = count
        # Which of two fields of one name counts, where one is null, is the parser's rule.
        self.plain: Flags = np.full(count, len(self._columns) == len(columns))

    def said(self, name: str) -> Flags:
        """Where a column is not null."""
        column = self._columns.get(name)
        if column is None:
            return np.zeros(self._count, dtype=np.bool_)
        there: Flags = column.is_valid().to_numpy(zero_copy_only=False)
        return there

    def integers(
        self, name: str, default: Integers | int, *, minimum: int = 0, maximum: int = INT64_MAX
    ) -> Integers:
        """A column of integers; `default`, one or of each row, where it is null; that is tested too."""
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

    def numbers(self, name: str) -> NDArray[np.float64]:
        """A column of finite numbers; 0 where it is null."""
        column = self._column(name, is_number)
        if column is None:
            return np.zeros(self._count)
        # An integer that no double holds is the nearest one, as to the parser.
        numbers: NDArray[np.float64] = column.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy()
        self.plain &= np.isfinite(numbers)
        return numbers

    def flags(self, name: str, default: bool) -> Flags:
        """A column of true and false."""
        column = self._column(name, pa.types.is_boolean)
        if column is None:
            return np.full(self._count, default)
        values: Flags = column.fill_null(default).to_numpy(zero_copy_only=False)
        return values

    def words(self, name: str, words: Sequence[str], default: int) -> Integers:
        """A column of some words: the number of each one, `default` where it is null.

        Any other word is not plain, nor is a default below 0.
        """
        column = self._column(name, is_text)
        numbers: Integers = np.full(self._count, default, dtype=np.int64)
        if column is not None:
            found = pc.index_in(column.cast(pa.string()), pa.array(words, pa.string())).fill_null(-1)
            said = column.is_valid().to_numpy(zero_copy_only=False)
            numbers[said] = found.to_numpy()[said]
        self.plain &= numbers >= 0
        return numbers

    def texts(self, name: str) -> pa.Array:
        """A column of texts, Arrow string, with its nulls."""
        column = self._column(name, is_text)
        return pa.nulls(self._count, pa.string()) if column is None else column.cast(pa.string())

    def names(self, name: str, default: str) -> pa.Array:
        """A column of texts, Arrow string or a dictionary of them; `default` where it is null."""
        column = self._column(name, is_text)
        if column is None:
            zeros = pa.array(np.zeros(self._count, dtype=np.int32))
            return pa.DictionaryArray.from_arrays(zeros, pa.array([default], pa.string()))
        return column.cast(pa.string()).fill_null(default) if column.null_count else column

    def lists(self, name: str, of: Callable[[pa.DataType], bool]) -> tuple[Integers, pa.Array]:
        """A column of lists: where each begins among the elements and the last one ends, and the elements.

        Null is an empty list. Elements that stand before the first list or after the last one may be there.
        """
        column = self._column(name, lambda kind: pa.types.is_list(kind) and of(kind.value_type))
        if column is None:
            return np.zeros(self._count + 1, dtype=np.int64), pa.nulls(0)
        if column.null_count:
            # A null may stand over elements; its list has none.
            column = pc.if_else(column.is_valid(), column, pa.scalar([], column.type))
        return column.offsets.to_numpy().astype(np.int64), column.values

    def structs(self, name: str) -> "RowFields":
        """A column of objects, as the columns of their fields; null is an object that says nothing."""
        column = self._column(name, pa.types.is_struct)
        return RowFields([], [], self._count) if column is None else fields_of(column)

    def _column(self, name: str, fits: Callable[[pa.DataType], bool]) -> pa.Array | None:
        """A column; None: nothing is said in it, or it is of another kind, and then only null is plain."""
        column = self._columns.get(name)
        if column is None or column.null_count == self._count:
            return None
        if not fits(column.type):
            self.plain &= column.is_null().to_numpy(zero_copy_only=False)
            return None
        return column


def fields_of(objects: pa.Array) -> RowFields:
    """Arrow structs as the columns of their fields."""
    return RowFields([field.name for field in objects.type], objects.flatten(), len(objects))


def is_text(kind: pa.DataType) -> bool:
    """Whether a column is of texts."""
    return bool(pa.types.is_string(kind.value_type if pa.types.is_dictionary(kind) else kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether a column is of numbers."""
    return bool(pa.types.is_float64(kind) or pa.types.is_int64(kind))


def worded(number: Integers, words: pa.Array, without: Flags | None = None) -> pa.DictionaryArray:
    """Words by their numbers, null where they are `without` one."""
    return pa.DictionaryArray.from_arrays(pa.array(number.astype(np.int32), mask=without), words)


def listed(ends: Integers, fields: Sequence[pa.Array], kind: pa.StructType) -> pa.ListArray:
    """A column of lists of objects.

    Args:
        ends: where each list begins among the objects, and the last one ends.
        fields: of the objects.
        kind: what these are.
    """
    objects = pa.StructArray.from_arrays(fields, fields=list(kind))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), objects)


def ends_of(counts: NDArray[Any]) -> Integers:
    """Where stretches of so many elements begin, one after the other, and where the last one ends."""
    ends = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=ends[1:])
    return ends


def places(first: Integers, count: Integers) -> Integers:
    """The numbers from each `first` on, `count` of them, one stretch after the other."""
    ends = np.cumsum(count)
    numbers: Integers = np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - (ends - count), count)
    return numbers
