"""What one set of policies says of names, as columns: equal sayings share a number, names find it by bytes.

Many names say the same, and a law asks for the same names batch after batch. So what is said of a name is
worked out once a set, and found by compiled code from then on. A set never changes; one index belongs to one.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming.columns.byte_strings import (
    NOWHERE,
    Bytes,
    Index,
    Integers,
    bytes_in,
    bytes_of,
    found,
    index_of,
)
from streaming.columns.compiled import lean

MAX_NAMES: Final = 131_072
"""Names of a set that are remembered; what is said of further ones is worked out anew each time."""
FRESH_PARTS: Final = 8
"""The index is made anew when so great a part of the names is not in it."""
NOTHING: Final = -1
"""Number of what is said where nothing is."""
_UNKNOWN: Final = -2
_NO_BYTES: Final = bytes_of("")

Said = TypeVar("Said", bound=Hashable)


class LimitIndex(Generic[Said]):
    """What is said of names that are all known from the start.

    Args:
        listed: what is said of each.

    Attributes:
        kinds: all that is said, each once; its place is its number.
        index: of the names.
        number: of what is said of each of them.
    """

    def __init__(self, listed: Mapping[str, Said]) -> None:
        self.kinds: list[Said] = []
        self._number_of: dict[Said, int] = {}
        self._fields: dict[str, NDArray[Any]] = {}
        self._fill({name: self._number(said) for name, said in listed.items()})

    def field(self, name: str, numbers: Integers, nothing: Any) -> NDArray[Any]:
        """An attribute of what is said, by number; `nothing` where nothing is."""
        return self.column(name, nothing)[numbers]

    def column(self, name: str, nothing: Any) -> NDArray[Any]:
        """An attribute of all kinds by number, and at the end, where NOTHING finds it, `nothing`."""
        column = self._fields.get(name)
        if column is None or len(column) <= len(self.kinds):
            values = [*(getattr(said, name) for said in self.kinds), nothing]
            column = self._fields[name] = np.array(values, dtype=np.asarray(nothing).dtype)
        return column

    def _number(self, said: Said) -> int:
        number = self._number_of.setdefault(said, len(self.kinds))
        if number == len(self.kinds):
            self.kinds.append(said)
        return number

    def _fill(self, numbers: Mapping[str, int]) -> None:
        self.index: Index = index_of(pa.array(numbers, pa.string()))
        self.number: Integers = np.fromiter(numbers.values(), np.int64, len(numbers))


class LearntLimits(LimitIndex[Said]):
    """What is said of names that are asked for one by one.

    Args:
        find: what is said of a name, None for nothing; asked once a name.
    """

    def __init__(self, find: Callable[[str], Said | None]) -> None:
        super().__init__({})
        self._find = find
        self._known: dict[str, int] = {}

    def of(self, names: pa.Array) -> Integers:
        """Number of what is said of each of these names, NOTHING where nothing is."""
        text, ends = bytes_in(names)
        numbers = np.empty(len(names), dtype=np.int64)
        if _find_all(self.index, self.number, text, ends, numbers):
            missing = np.flatnonzero(numbers == _UNKNOWN)
            numbers[missing] = [self._learn(name) for name in names.take(pa.array(missing)).to_pylist()]
            # Not for every name: an index of all costs as much as learning a part of them.
            if (len(self._known) - len(self.number)) * FRESH_PARTS > len(self._known):
                self._fill(self._known)
        return numbers

    def _learn(self, name: str) -> int:
        """Number of what is said of a name that the index does not hold."""
        number = self._known.get(name)
        if number is None:
            said = self._find(name)
            number = NOTHING if said is None else self._number(said)
            if len(self._known) < MAX_NAMES:
                self._known[name] = number
        return number


@lean
def _find_all(index: Index, number: Integers, text: Bytes, ends: Integers, numbers: Integers) -> int:
    """Fill in the number of each name, _UNKNOWN where the index does not hold it; how many of these."""
    unknown = 0
    for i in range(len(numbers)):
        place = found(index, text, ends[i], ends[i + 1], _NO_BYTES, 0, 0)
        if place == NOWHERE:
            numbers[i] = _UNKNOWN
            unknown += 1
        else:
            numbers[i] = number[place]
    return unknown
