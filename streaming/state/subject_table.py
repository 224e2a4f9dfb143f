"""The subjects of a shard: a row of numbers each, found by name.

A table is its names as Arrow text and its numbers as one structured array, so a row is one stretch of memory
and is kept, added and left out as one. Compiled code takes the fields as views of that array. They are
strided: the compiled part of a token bucket, whose rows have 104 bytes, takes 85 ns a request instead of 80
with an array a field; in whole steps of 1,600 ns a request the difference is within what can be measured.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming.columns.byte_strings import Integers

SUBJECT: Final = "subject"
"""The column of the names."""
LAST: Final = "last"
"""The field by which `bound` knows who is oldest."""
SPARE_PARTS: Final = 16
"""Room for so great a part more rows: most batches bring a few new subjects, and to copy all rows for them
took a millisecond for 10,000 rows of mutations, most of it for fresh pages of memory."""
_ROOM_MIN: Final = 2
"""Of fewer numpy says that a field's values lie side by side: laws would be compiled for that once more."""
Rows = NDArray[Any]
"""A structured array."""
Flags = NDArray[np.bool_]
_SLOT: Final = pa.field("slot", pa.uint8(), nullable=False)


class SubjectTable:
    """Rows by name; a law derives its table from this one.

    Attributes:
        dtype: the fields of a row, numbers or vectors of them.
        sparse: those vectors of which nearly all numbers are 0: only the others are written.
        names: Arrow text; no two alike.
        state: the rows, changed in place.
    """

    dtype: ClassVar[np.dtype[Any]]
    sparse: ClassVar[frozenset[str]] = frozenset()
    state: Rows

    def __init__(self) -> None:
        self.names: pa.Array = pa.array([], type=pa.string())
        self._hold(0)

    def __len__(self) -> int:
        return len(self.state)

    @classmethod
    def from_columns(cls, columns: Mapping[str, pa.Array]) -> Self:
        """The table that `columns` described; an empty mapping gives an empty table."""
        table = cls()
        if columns:
            table.names = columns[SUBJECT]
            table._hold(len(table.names))
            fill(table.state, columns)
        return table

    def columns(self) -> dict[str, pa.Array]:
        """The table as Arrow columns of one length, for the checkpoint; exact."""
        return {SUBJECT: self.names, **columns_of(self.state, self.sparse)}

    def rows(self, names: pa.Array) -> Integers:
        """Row of each name, -1 where it has none."""
        return places_in(self.names, names)

    def add(self, names: pa.Array, **fields: Any) -> Integers:
        """Append rows for names that have none, 0 but for these fields; returns their numbers."""
        fresh = np.zeros(len(names), dtype=self.dtype)
        for name, values in fields.items():
            fresh[name] = values
        return self.append(names, fresh)

    def append(self, names: pa.Array, state: Rows) -> Integers:
        """Append rows as they are; none of the names may have one already. Returns their numbers."""
        first, count = len(self), len(self) + len(state)
        self.names = pa.concat_arrays([self.names, names])
        if count > len(self._room):
            before = self.state
            self._hold(count)
            _whole(self.state)[:first] = _whole(before)
        self.state = self._room[:count]
        self.state[first:] = state
        return np.arange(first, count)

    def keep(self, which: Flags) -> None:
        """Let all other rows go."""
        if not which.all():
            self.names = self.names.filter(pa.array(which))
            kept = _whole(self.state)[which]
            self._hold(len(kept))
            _whole(self.state)[:] = kept

    def column(self, name: str) -> NDArray[Any]:
        """A field of all rows, by their numbers, to be changed in place; behind them is room for more."""
        return self._room[name]

    def bound(self, most: int, needed: Callable[[Integers], Flags] | None = None) -> None:
        """Hold the table to so many rows: those with the oldest `last` leave first, ties by name.

        Args:
            most: see there.
            needed: which of some rows leave only where all others have left; asked of no more than it takes.
        """
        surplus = len(self) - most
        if surplus <= 0:
            return
        by_age = pa.table({LAST: np.ascontiguousarray(self.state[LAST]), SUBJECT: self.names})
        sort_keys = [(LAST, "ascending"), (SUBJECT, "ascending")]
        leaving: Integers = pc.sort_indices(by_age, sort_keys=sort_keys).to_numpy().astype(np.int64)
        if needed is not None:
            stay, looked = np.zeros(len(self), dtype=np.bool_), 0
            while looked < len(self) and looked - np.count_nonzero(stay) < surplus:
                some = leaving[looked : 2 * (looked + surplus)]
                stay[some] = needed(some)
                looked += len(some)
            leaving = leaving[np.argsort(stay[leaving], kind="stable")]
        which = np.ones(len(self), dtype=np.bool_)
        which[leaving[:surplus]] = False
        self.keep(which)

    def _hold(self, count: int) -> None:
        """Have so many rows, all 0, and room for more."""
        self._room = np.zeros(max(_ROOM_MIN, count + count // SPARE_PARTS), dtype=self.dtype)
        self.state = self._room[:count]


def places_in(known: pa.Array, names: pa.Array) -> Integers:
    """Place of each name among the known ones, -1 where it is not among them."""
    found = pc.index_in(names, value_set=known)
    places: Integers = found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return places


def _whole(rows: Rows) -> NDArray[Any]:
    """Rows as pieces of memory: numpy copies these four times as fast as it copies field by field."""
    return rows.view(np.dtype((np.void, rows.dtype.itemsize)))


def columns_of(rows: Rows, sparse: frozenset[str] = frozenset()) -> dict[str, pa.Array]:
    """An Arrow column for each field of a structured array, by its name."""
    columns = {}
    for name in rows.dtype.names or ():
        values = rows[name]
        if name in sparse:
            columns[name] = _sparse_column(values)
        elif values.ndim == 1:
            columns[name] = pa.array(np.ascontiguousarray(values))
        else:
            columns[name] = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
    return columns


def fill(rows: Rows, columns: Mapping[str, pa.Array]) -> None:
    """Write what `columns_of` wrote into rows that are all 0; other columns are left aside."""
    for name in rows.dtype.names or ():
        column = columns[name]
        if pa.types.is_list(column.type):
            _put_sparse(column, rows[name])
        elif pa.types.is_fixed_size_list(column.type):
            rows[name] = column.flatten().to_numpy(zero_copy_only=False).reshape(rows[name].shape)
        else:
            rows[name] = column.to_numpy(zero_copy_only=False)


def _sparse_column(values: NDArray[Any]) -> pa.Array:
    """Vectors as lists of (slot, value) of what is not 0."""
    # By their bits, so that a negative zero comes back as one too.
    rows, slots = np.nonzero(values.view(np.int64))
    first = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum(np.bincount(rows, minlength=len(values)), out=first[1:])
    chosen = pa.array(values[rows, slots])
    pairs = pa.StructArray.from_arrays(
        [pa.array(slots.astype(np.uint8)), chosen],
        fields=[_SLOT, pa.field("value", chosen.type, nullable=False)],
    )
    return pa.ListArray.from_arrays(pa.array(first), pairs)


def _put_sparse(column: pa.Array, values: NDArray[Any]) -> None:
    offsets = column.offsets.to_numpy()
    rows = np.repeat(np.arange(len(column)), np.diff(offsets))
    pairs = column.values.slice(int(offsets[0]), len(rows))
    values[rows, pairs.field("slot").to_numpy()] = pairs.field("value").to_numpy()
