"""Groups and their brokers as Arrow columns for the checkpoint, and as arrays for the compiled law.

Both are in one order, groups by name and a group's brokers by name, so the same history gives the same bytes
however it was cut into batches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns.byte_strings import Integers
from streaming.columns.compiled import lean
from streaming.laws.row_fields import ends_of
from streaming.laws.shares.columns import WIDTH, Groups, Members
from streaming.laws.shares.law import NOT_REPORTED, Flags
from streaming.state.subject_table import places_in

_WIDE: Final = ("used", "throttled", "shares", "held", "told_used", "told_limited")
"""Columns with a value for each of DIMENSIONS."""
_OF_GROUPS: Final = Groups._fields[2:]
_OF_MEMBERS: Final = Members._fields[2:]
"""Those of the checkpoint; the others follow from the lists of members."""
_TYPES: Final[dict[str, Any]] = {
    "touched": np.bool_, "told_limited": np.bool_, "told_shadow": np.bool_, "there": np.bool_,
    "used": np.float64, "throttled": np.int8, "told": np.bool_, "shares": np.float64, "held": np.bool_,
    "told_used": np.float64,
}  # fmt: skip
"""Of the columns that are not int64."""
_NOBODY: Final[dict[str, Any]] = {"throttled": NOT_REPORTED, "shares": nan}
"""What slots hold that nobody is in, where it is not 0."""


@dataclass(slots=True)
class State:
    """The groups of a shard.

    Attributes:
        names: of the groups, ascending; no two alike.
        brokers: names of all brokers, ascending; no two alike.
        groups: a row per group.
        members: a slot per group and broker.
    """

    names: pa.Array
    brokers: pa.Array
    groups: Groups
    members: Members

    @classmethod
    def empty(cls) -> Self:
        """No groups."""
        none = pa.array([], type=pa.string())
        groups = Groups(np.zeros(1, np.int64), *(_blank(name, 0) for name in Groups._fields[1:]))
        return cls(none, none, groups, Members(*(_blank(name, 0) for name in Members._fields)))

    @classmethod
    def of(cls, columns: Mapping[str, pa.Array]) -> Self:
        """The groups that `columns` described; nothing may be written to these arrays."""
        listed = columns["members"]
        first = listed.offsets.to_numpy().astype(np.int64)
        rows = listed.values
        dictionary = rows.field("broker")
        fields = dict(zip(rows.type.names, rows.flatten(), strict=True))
        members = _numbers(fields, _OF_MEMBERS, len(rows))
        groups = _numbers(columns, _OF_GROUPS, len(first) - 1)
        broker = dictionary.indices.to_numpy().astype(np.int64)
        return cls(
            columns["group"], dictionary.dictionary,
            Groups(first=first, size=np.diff(first), **groups),
            Members(there=np.ones(len(rows), dtype=np.bool_), broker=broker, **members),
        )  # fmt: skip

    def columns(self) -> dict[str, pa.Array]:
        """The groups as Arrow columns; slots are all taken."""
        members = _columns(self.members, _OF_MEMBERS)
        numbers = pa.array(self.members.broker.astype(np.int32))
        members["broker"] = pa.DictionaryArray.from_arrays(numbers, self.brokers)
        rows = pa.StructArray.from_arrays(list(members.values()), names=list(members))
        listed = pa.ListArray.from_arrays(pa.array(self.groups.first.astype(np.int32)), rows)
        return {"group": self.names, **_columns(self.groups, _OF_GROUPS), "members": listed}

    def widened(self, names: pa.Array, brokers: pa.Array) -> tuple["State", Integers, Integers]:
        """A copy to write to, which knows these groups and brokers too, and the number of each of them."""
        names, group, group_was = _merged(self.names, names)
        brokers, broker, broker_was = _merged(self.brokers, brokers)
        first = ends_of(_spread("size", np.diff(self.groups.first), group_was, len(names)))
        groups = (
            _spread(name, column, group_was, len(names))
            for name, column in zip(Groups._fields[1:], self.groups[1:], strict=True)
        )
        copies: list[Any] = [column.copy() for column in self.members]
        members = Members(*copies)._replace(broker=broker_was[self.members.broker])
        return State(names, brokers, Groups(first, *groups), members), group, broker

    def slots(self, group: Integers, broker: Integers) -> Integers:
        """The slot of each of these pairs; where there is none, it is made."""
        slots = np.empty(len(group), dtype=np.int64)
        if _find(group, broker, self.groups.first, self.members.broker, slots):
            missing = slots < 0
            self._add(np.unique(group[missing] * len(self.brokers) + broker[missing]))
            _find(group, broker, self.groups.first, self.members.broker, slots)
        return slots

    def _add(self, keys: Integers) -> None:
        """Add slots: group times number of brokers plus broker, ascending."""
        size, count = len(self.brokers), len(self.names)
        group = np.repeat(np.arange(count), np.diff(self.groups.first))
        own = group * size + self.members.broker
        keys = np.concatenate([own, keys])
        order = np.argsort(keys, kind="stable")
        was = np.empty(len(keys), dtype=np.int64)
        was[order] = np.arange(len(keys))
        members = (
            _spread(name, column, was[: len(own)], len(keys))
            for name, column in zip(Members._fields, self.members, strict=True)
        )
        self.members = Members(*members)._replace(broker=keys[order] % size)
        first = np.searchsorted(keys[order], np.arange(count + 1) * size)
        self.groups = self.groups._replace(first=first.astype(np.int64))

    def narrowed(self) -> "State":
        """Without the slots that nobody is in, the groups without brokers and the names that nobody has."""
        there, some = self.members.there, self.groups.size > 0
        used = np.zeros(len(self.brokers), dtype=np.bool_)
        used[self.members.broker[there]] = True
        if there.all() and some.all() and used.all():
            return self
        members = Members(*_only(self.members, there))
        return State(
            self.names.filter(pa.array(some)), self.brokers.filter(pa.array(used)),
            Groups(ends_of(self.groups.size[some]), *_only(self.groups[1:], some)),
            members._replace(broker=(np.cumsum(used) - 1)[members.broker]),
        )  # fmt: skip


def _merged(known: pa.Array, names: pa.Array) -> tuple[pa.Array, Integers, Integers]:
    """All names in order, the number of each of `names` and of each of `known` among them."""
    number = places_in(known, names)
    fresh = number < 0
    if not fresh.any():
        return known, number, np.arange(len(known))
    together = pa.concat_arrays([known, names.filter(pa.array(fresh))])
    order = pc.sort_indices(together).to_numpy().astype(np.int64)
    place = np.empty(len(together), dtype=np.int64)
    place[order] = np.arange(len(together))
    number[fresh] = len(known) + np.arange(int(fresh.sum()))
    return together.take(pa.array(order)), place[number], place[: len(known)]


def _only(columns: Sequence[Any], which: Flags) -> list[Any]:
    return [column[which] for column in columns]


def _blank(name: str, count: int) -> Any:
    shape = (count, WIDTH) if name in _WIDE else (count,)
    return np.full(shape, _NOBODY.get(name, 0), dtype=_TYPES.get(name, np.int64))


def _spread(name: str, column: Any, places: Integers, count: int) -> Any:
    """A new column of `count` rows, with those of `column` in these places."""
    if len(places) == count:
        return column.copy()
    wide = _blank(name, count)
    wide[places] = column
    return wide


def _columns(table: Groups | Members, names: tuple[str, ...]) -> dict[str, pa.Array]:
    """Arrow columns; of wide ones a column for each dimension, left out where it says nothing."""
    columns: dict[str, pa.Array] = {}
    for name in names:
        values = getattr(table, name)
        if values.ndim == 1:
            columns[name] = pa.array(values)
            continue
        blank = _NOBODY.get(name, 0)
        for dimension in range(WIDTH):
            column = values[:, dimension].copy()
            if not (np.isnan(column) if blank != blank else column == blank).all():
                columns[f"{name}.{dimension}"] = pa.array(column)
    return columns


def _numbers(columns: Mapping[str, pa.Array], names: tuple[str, ...], count: int) -> dict[str, Any]:
    """What `_columns` was made of."""
    found = {}
    for name in names:
        if name in _WIDE:
            found[name] = _blank(name, count)
            for dimension in range(WIDTH):
                column = columns.get(f"{name}.{dimension}")
                if column is not None:
                    found[name][:, dimension] = column.to_numpy(zero_copy_only=False)
        else:
            found[name] = columns[name].to_numpy(zero_copy_only=False)
    return found


@lean
def _find(group: Integers, broker: Integers, first: Integers, brokers: Integers, slots: Integers) -> bool:
    """Fill in the slot of each pair, -1 where there is none; whether one is missing."""
    missing = False
    for i in range(len(group)):
        low, high = first[group[i]], first[group[i] + 1]
        end = high
        while low < high:
            middle = (low + high) // 2
            if brokers[middle] < broker[i]:
                low = middle + 1
            else:
                high = middle
        if low < end and brokers[low] == broker[i]:
            slots[i] = low
        else:
            slots[i] = -1
            missing = True
    return missing
