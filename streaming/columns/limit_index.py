"""What one set of policies says of names, as columns: equal sayings share a number, names find it by bytes.

Many names say the same, and a law asks for the same names batch after batch. So what is said of a name is
worked out once a set, and found by compiled code from then on. A set never changes; one index belongs to one.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import islice
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
MAX_NAME_CHARS: Final = 32 * 2**20
"""Names of a set that are remembered, and characters in all of them; what is said of further ones is worked
out anew each time."""
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
        names: no two alike.
        said: of each of them.

    Attributes:
        kinds: all that is said, each once; its place is its number.
        index: of the names.
        number: of what is said of each of them.
    """

    def __init__(self, names: Sequence[str] = (), said: Sequence[Said] = ()) -> None:
        self.kinds: list[Said] = []
        self._number_of: dict[Said, int] = {}
        self._columns: dict[str, NDArray[Any]] = {}
        self._fill(names, self._numbers(said))

    def field(self, name: str, numbers: Integers, nothing: Any) -> NDArray[Any]:
        """An attribute of what is said, by number; `nothing` where nothing is."""
        return self.column(name, nothing)[numbers]

    def column(self, name: str, nothing: Any) -> NDArray[Any]:
        """An attribute of all kinds by number, and at the end, where NOTHING finds it, `nothing`."""
        column = self._columns.get(name)
        if column is None or len(column) <= len(self.kinds):
            values = [*(getattr(said, name) for said in self.kinds), nothing]
            column = self._columns[name] = np.array(values, dtype=np.asarray(nothing).dtype)
        return column

    def _fill(self, names: Iterable[str], number: Integers) -> None:
        self.index: Index = index_of(pa.array(names, pa.string()))
        self.number: Integers = number

    def _numbers(self, said: Sequence[Said | None]) -> Integers:
        """The number of each; kinds that are new get one."""
        # Most are one and the same object, which is told apart much faster than what it says.
        objects = {id(each): each for each in said}
        numbers = {key: self._number(each) for key, each in objects.items()}
        return np.fromiter(map(numbers.__getitem__, map(id, said)), np.int64, len(said))

    def _number(self, said: Said | None) -> int:
        if said is None:
            return NOTHING
        number = self._number_of.setdefault(said, len(self.kinds))
        if number == len(self.kinds):
            self.kinds.append(said)
        return number


class LearntLimits(LimitIndex[Said]):
    """What is said of names that are asked for one by one.

    Args:
        find: what is said of a name, None for nothing; asked once a name.
        alike: a number for each name, from 0 on the same number only where the same is said; one below 0 is
            that name's alone, and another time another's. None: nobody knows.
    """

    def __init__(
        self, find: Callable[[str], Said | None], alike: Callable[[pa.Array], Integers] | None = None
    ) -> None:
        super().__init__()
        self._find, self._alike = find, alike
        self._of_kind: dict[int, int] = {}
        self._known: dict[str, int] = {}
        self._chars = 0

    def of(self, names: pa.Array) -> Integers:
        """Number of what is said of each of these names, NOTHING where nothing is."""
        text, ends = bytes_in(names)
        numbers = np.empty(len(names), dtype=np.int64)
        if _find_all(self.index, self.number, text, ends, numbers):
            missing = np.flatnonzero(numbers == _UNKNOWN)
            numbers[missing] = self._learnt(names.take(pa.array(missing)))
            # Not for every name: an index of all costs as much as learning a part of them.
            if (len(self._known) - len(self.number)) * FRESH_PARTS > len(self._known):
                self._fill(self._known, np.fromiter(self._known.values(), np.int64, len(self._known)))
        return numbers

    def _learnt(self, names: pa.Array) -> Integers:
        """Numbers of what is said of names that the index lacks; of those that are alike one is learnt."""
        if self._alike is None:
            return np.array(self._learn(names.to_pylist()), dtype=np.int64)
        kinds, first, kind = np.unique(self._alike(names), return_index=True, return_inverse=True)
        numbers = np.array([self._of_kind.get(one, _UNKNOWN) for one in kinds.tolist()], dtype=np.int64)
        fresh = np.flatnonzero(numbers == _UNKNOWN)
        numbers[fresh] = self._learn(names.take(pa.array(first[fresh])).to_pylist())
        fresh = fresh[kinds[fresh] >= 0]
        learnt = zip(kinds[fresh].tolist(), numbers[fresh].tolist(), strict=True)
        self._of_kind |= islice(learnt, MAX_NAMES - len(self._of_kind))
        return numbers[kind]

    def _learn(self, names: list[str]) -> list[int]:
        """Numbers of what is said of names that the index lacks; they are noted while there is room."""
        fresh = [name for name in dict.fromkeys(names) if name not in self._known]
        learnt = dict(zip(fresh, self._numbers(list(map(self._find, fresh))).tolist(), strict=True))
        numbers = [learnt[name] if name in learnt else self._known[name] for name in names]
        for name, number in islice(learnt.items(), MAX_NAMES - len(self._known)):
            if self._chars + len(name) > MAX_NAME_CHARS:
                break
            self._chars += len(name)
            self._known[name] = number
        return numbers


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
