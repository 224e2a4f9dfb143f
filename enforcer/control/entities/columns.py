"""Numbers of many subjects as columns: a tenth of what objects take, and added up by arrays.

A subject's row is a number. What changes by the minute stands in slots of time that all rows share, so that
a new slot is one line of an array and not one object a row.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from streaming.kafka_io.newest import Newest

K = TypeVar("K", bound=Hashable)

Kind = tuple[type[np.generic], float, *tuple[int, ...]]
"""Of a column: its type, what stands in a new row, and the shape of that where it is not one number."""
_FIRST: Final = 256
_SHORTEST_MS: Final = 1_000


class Columns(Generic[K]):
    """The rows.

    Args:
        rows_max: rows kept; beyond it the subject silent longest goes first, and is counted.
        columns: by name.
        slots: columns that have a number for each slot of time, or for the newest few alone.
        slot_ms, slots_kept: how long a slot is, and how many there are.
        group: as of Newest.

    Attributes:
        rows: number of the row of each subject.
        names: the subject of each row.
        columns, slots: the arrays by name, no two alike; rows last, those beyond the subjects' number unused.
    """

    def __init__(
        self,
        rows_max: int,
        columns: Mapping[str, Kind],
        slots: Mapping[str, Kind],
        *,
        slot_ms: int,
        slots_kept: int,
        group: Callable[[K], Hashable | None] = lambda _key: None,
    ) -> None:
        self._most = rows_max
        self._slot_ms, self._slots_kept = slot_ms, slots_kept
        self.rows: Newest[K, int] = Newest(rows_max, group=group)
        self.names: list[K] = []
        slotted = {name: (*kind[:2], *(kind[2:] or (slots_kept,))) for name, kind in slots.items()}
        self._kinds = {**columns, **slotted}
        self._size = min(_FIRST, rows_max)
        made = {name: np.zeros((*kind[2:], self._size), kind[0]) for name, kind in self._kinds.items()}
        self.columns: dict[str, NDArray[Any]] = {name: made[name] for name in columns}
        self.slots: dict[str, NDArray[Any]] = {name: made[name] for name in slots}
        self._slot = 0

    def __len__(self) -> int:
        return len(self.names)

    def row(self, key: K) -> int:
        """The row of a subject that is spoken of; made if it has none."""
        row = self.rows.get(key)
        if row is None:
            row = self._free(key)
        return self.rows.heard(key, lambda: row)

    def last(self, now_ms: int) -> int:
        """The newest slot at a time; nothing is begun by being asked for, since this machine may be ahead."""
        return max(self._slot, now_ms // self._slot_ms)

    def newest_slots(self, count: int, now_ms: int) -> range:
        """So many up to the newest slot at a time, without those that are not begun."""
        return range(max(self.last(now_ms) - count, self._slot - self._slots_kept) + 1, self._slot + 1)

    def place(self, ts: int) -> int | None:
        """Where the slot of a time stands, None if it is too old; newer ones are begun."""
        slot = ts // self._slot_ms
        if slot > self._slot:
            first = max(self._slot + 1, slot - self._slots_kept + 1)
            for begun in range(first, slot + 1):
                for name, held in self.slots.items():
                    held[begun % len(held), : len(self.names)] = self._kinds[name][1]
            self._slot = slot
        return slot % self._slots_kept if slot > self._slot - self._slots_kept else None

    def rate(self, name: str, row: int, since: int, now_ms: int) -> float:
        """The mean per second of what stands in a row's slots, counted since a time; of a second at least."""
        begun = now_ms // self._slot_ms - self._slots_kept + 1
        places = [slot % self._slots_kept for slot in self.newest_slots(self._slots_kept, now_ms)]
        amount = self.slots[name][places, row].sum(dtype=float)
        return float(amount * 1000 / max(_SHORTEST_MS, now_ms - max(since, begun * self._slot_ms)))

    def _free(self, key: K) -> int:
        """A row for a new subject, that of the one silent longest if there is no other."""
        if len(self.names) < self._most:
            row = len(self.names)
            self.names.append(key)
            if row == self._size:
                self._grow(min(self._most, 2 * self._size))
        else:
            _, row = next(self.rows.items())
            self.names[row] = key
        for arrays in (self.columns, self.slots):
            for name, held in arrays.items():
                held[..., row] = self._kinds[name][1]
        return row

    def _grow(self, size: int) -> None:
        for arrays in (self.columns, self.slots):
            for name, held in arrays.items():
                # One after the other: all at once would be there twice.
                arrays[name] = np.zeros((*held.shape[:-1], size), held.dtype)
                arrays[name][..., : self._size] = held
        self._size = size
