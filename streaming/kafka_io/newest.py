"""What views of Weir's topics keep: the newest of each subject, with a bound. Pure."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class Newest(Generic[K, R]):
    """Rows by subject; beyond the bound the subject that was silent longest goes first, and is counted.

    Args:
        most: rows kept.
        group: subjects of one group are found together; None: it is of none.
        weight: rows that one counts for.
    """

    def __init__(
        self,
        most: int,
        *,
        group: Callable[[K], Hashable | None] = lambda _key: None,
        weight: Callable[[R], int] = lambda _row: 1,
    ) -> None:
        self._most, self._group, self._weight = most, group, weight
        self._rows: OrderedDict[K, R] = OrderedDict()
        # Lists: of most groups there is one, and of a long one the first leaves first.
        self._groups: dict[Any, list[K]] = {}
        self.count = 0
        """For how many rows all count together."""
        self.dropped = 0
        """How many rows went for lack of room."""

    def __len__(self) -> int:
        return self.count

    def items(self) -> Iterator[tuple[K, R]]:
        """Subjects and their rows, the one silent longest first."""
        return iter(self._rows.items())

    def get(self, key: K) -> R | None:
        """The row of a subject, None if it has none."""
        return self._rows.get(key)

    def of_group(self, group: Hashable) -> list[tuple[K, R]]:
        """The subjects of a group and their rows."""
        return [(key, self._rows[key]) for key in self._groups.get(group, ())]

    def heard(self, key: K, make: Callable[[], R], *, newer: bool = True) -> R:
        """The row of a subject that is spoken of, made if it has none.

        Args:
            key: the subject.
            make: its row.
            newer: else it is as silent as before.
        """
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = make()
            if (group := self._group(key)) is not None:
                self._groups.setdefault(group, []).append(key)
            self.resize(self._weight(row))
        elif newer:
            self._rows.move_to_end(key)
        return row

    def put(self, key: K, row: R) -> None:
        """Replace the row of a subject, by one of the same weight."""
        self.heard(key, lambda: row)
        self._rows[key] = row

    def resize(self, by: int) -> None:
        """A row counts for so many more; who was silent longest makes room."""
        self.count += by
        while self.count > self._most:
            self.dropped += self.remove(next(iter(self._rows)))

    def remove(self, key: K) -> int:
        """Let a subject go; for how many rows it counted."""
        weight = self._weight(self._rows.pop(key))
        self.count -= weight
        if (group := self._group(key)) is not None:
            self._groups[group].remove(key)
            if not self._groups[group]:
                del self._groups[group]
        return weight
