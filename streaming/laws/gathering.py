"""Events of one law in columns: rows of packs in bulk, single events one by one, both in one order."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from streaming.columns.records import Records
from streaming.contract.events import MAX_AHEAD_MS
from streaming.laws.sheet import HEAD, Flags, Integers, NotPlain, Sheet, alike, head_of, joined

_HEAD_NAMES: Final = [field.name for field in HEAD]
_TS: Final = _HEAD_NAMES.index("ts")


class Gathering(ABC):
    """What the intakes of laws have in common that take their events as columns.

    Args:
        records: the shard's.
        max_ahead_ms: how far an event may lie after its record's timestamp, if that has one.

    Attributes:
        type: of the events.
        fields: the columns of an event beside HEAD.
        newest: time (ms) of the newest event so far; -1: none.
    """

    type: ClassVar[str]
    fields: ClassVar[Sequence[pa.Field]]

    def __init__(self, records: Records, max_ahead_ms: int = MAX_AHEAD_MS) -> None:
        self.newest = -1
        self._records, self._max_ahead_ms = records, max_ahead_ms
        self._read: list[pa.RecordBatch] = []
        self._put: list[tuple[int, Any]] = []

    @abstractmethod
    def read(self, sheet: Sheet, ts: Integers) -> list[pa.Array]:
        """The columns of `fields`; `sheet.good` says afterwards which rows they are right in.

        Args:
            sheet: rows of packs.
            ts: time of each, ms.

        Raises:
            NotPlain: they cannot be read in bulk.
        """

    @abstractmethod
    def listed(self, events: Sequence[Any]) -> list[pa.Array]:
        """The columns of `fields` of events that were read one by one."""

    def scan(self) -> Flags:
        """Read the rows of packs; which of all records were taken, a flag a record."""
        taken = np.zeros(len(self._records), dtype=np.bool_)
        for rows, i in alike(self._records, self.type):
            with suppress(NotPlain):
                self._take(Sheet(rows, i), taken)
        return taken

    def put(self, i: int, event: Any) -> None:
        """Take the event of record `i`, which the parser has read."""
        self.newest = max(self.newest, event.at)
        self._put.append((i, event))

    def gathered(self) -> pa.RecordBatch | None:
        """All events, columns HEAD and `fields`, in the order of docs/contract.md 1; None: there are none."""
        if self._put:
            self._read.append(self._batch(self._heads(), self.listed([event for _, event in self._put])))
            self._put = []
        if not self._read:
            return None
        rows = joined(self._read)
        keys = [rows["at"].to_numpy()]
        keys += [column[rows["source"].to_numpy()] for column in self._records.arrivals()]
        if _in_order(keys):
            return rows
        return rows.take(pa.array(np.lexsort(keys[::-1])))

    def _take(self, sheet: Sheet, taken: Flags) -> None:
        head = head_of(sheet, self._records, self._max_ahead_ms)
        rows = self._batch(head, self.read(sheet, head[_TS].to_numpy()))
        if not sheet.good.all():
            rows = rows.filter(pa.array(sheet.good))
        if not len(rows):
            return
        taken[rows["source"].to_numpy()] = True
        self.newest = max(self.newest, int(rows["at"].to_numpy().max()))
        self._read.append(rows)

    def _heads(self) -> list[pa.Array]:
        events = [event for _, event in self._put]
        named = [[getattr(event, key) for event in events] for key in _HEAD_NAMES[1:]]
        heads = [[i for i, _ in self._put], *named]
        return [pa.array(values, field.type) for values, field in zip(heads, HEAD, strict=True)]

    def _batch(self, head: list[pa.Array], columns: list[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([*head, *columns], schema=pa.schema([*HEAD, *self.fields]))


def _in_order(keys: Sequence[Integers]) -> bool:
    """Whether rows ascend by these keys, the first one first."""
    alike = np.ones(max(0, len(keys[0]) - 1), dtype=np.bool_)
    for key in keys:
        step = np.diff(key)
        if (alike & (step < 0)).any():
            return False
        alike &= step == 0
    return True
