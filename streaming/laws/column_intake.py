"""Events of one law in columns: rows of packs in bulk, single events one by one, both in one order."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from streaming.columns.byte_strings import Integers
from streaming.columns.records import Records
from streaming.contract.events import MAX_AHEAD_MS
from streaming.laws.row_fields import Flags
from streaming.laws.sheet import HEAD, Sheet, alike, head_of, joined
from streaming.policy.timeline import PolicyTimeline

_HEAD_NAMES: Final = [field.name for field in HEAD]
_TS: Final = _HEAD_NAMES.index("ts")


class ColumnIntake(ABC):
    """What the intakes of laws have in common that take their events as columns.

    Args:
        records: the shard's.
        max_ahead_ms: how far an event may lie after its record's timestamp, if that has one.

    Attributes:
        type: of the events.
        fields: the columns of an event beside HEAD.
        batch: what the law folds; its `of` takes all events, columns HEAD and `fields`, in order.
        newest: time (ms) of the newest event so far; -1: none.
    """

    type: ClassVar[str]
    fields: ClassVar[Sequence[pa.Field]]
    batch: ClassVar[Any]

    def __init__(self, records: Records, max_ahead_ms: int = MAX_AHEAD_MS) -> None:
        self.newest = -1
        self._records, self._max_ahead_ms = records, max_ahead_ms
        self._read: list[pa.RecordBatch] = []
        self._put: list[tuple[int, Any]] = []

    @abstractmethod
    def read(self, sheet: Sheet, ts: Integers) -> list[pa.Array]:
        """The columns of `fields`; `sheet.plain` says afterwards which rows they are right in.

        Args:
            sheet: rows of packs.
            ts: time of each, ms.
        """

    def listed(self, events: Sequence[Any]) -> list[pa.Array]:
        """The columns of `fields` of events that were read one by one: their attributes of these names."""
        return [
            pa.array([getattr(event, field.name) for event in events], field.type) for field in self.fields
        ]

    def scan(self) -> Flags:
        """Read the rows of packs; which of all records were taken, a flag a record."""
        taken = np.zeros(len(self._records), dtype=np.bool_)
        for sheet in alike(self._records, self.type):
            self._take(sheet, taken)
        return taken

    def scanned(self) -> Iterator[tuple[Integers, Integers]]:
        """Of those rows: their records, and when each is applied, ms."""
        return ((rows["source"].to_numpy(), rows["at"].to_numpy()) for rows in self._read)

    def put(self, i: int, event: Any) -> None:
        """Take the event of record `i`, which the parser has read."""
        self.newest = max(self.newest, event.at)
        self._put.append((i, event))

    def events(self, timeline: PolicyTimeline, *, replay: bool) -> Any | None:
        """All of them, in the order of docs/contract.md 1; None: there are none."""
        if self._put:
            self._read.append(self._parsed())
            self._put = []
        if not self._read:
            return None
        rows = joined(self._read)
        order = ordered(rows["at"].to_numpy(), rows["source"].to_numpy(), self._records)
        in_order = (order == np.arange(len(order))).all()
        return self.batch.of(rows if in_order else rows.take(pa.array(order)))

    def _take(self, sheet: Sheet, taken: Flags) -> None:
        head = head_of(sheet, self._records, self._max_ahead_ms)
        rows = self._batch(head, self.read(sheet, head[_TS].to_numpy()))
        if not sheet.plain.all():
            rows = rows.filter(pa.array(sheet.plain))
        if not len(rows):
            return
        taken[rows["source"].to_numpy()] = True
        self.newest = max(self.newest, int(rows["at"].to_numpy().max()))
        self._read.append(rows)

    def _parsed(self) -> pa.RecordBatch:
        events = [event for _, event in self._put]
        named = [[getattr(event, key) for event in events] for key in _HEAD_NAMES[1:]]
        heads = [[i for i, _ in self._put], *named]
        head = [pa.array(values, field.type) for values, field in zip(heads, HEAD, strict=True)]
        return self._batch(head, self.listed(events))

    def _batch(self, head: list[pa.Array], columns: list[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([*head, *columns], schema=pa.schema([*HEAD, *self.fields]))


def ordered(at: Integers, source: Integers, records: Records) -> Integers:
    """The rows of some events in the order of docs/contract.md 1: time, then arrival.

    Args:
        at: when each is applied, ms.
        source: index of the record of each.
        records: these.
    """
    arrivals = [column[source] for column in records.arrivals()]
    rows = np.arange(len(at))
    if not _ascend(arrivals):
        rows = np.lexsort(arrivals[::-1])
        at = at[rows]
    # Stable, and quick where the input consists of a few stretches in order, as partitions are.
    return rows if (at[1:] >= at[:-1]).all() else rows[np.argsort(at, kind="stable")]


def _ascend(columns: Sequence[Integers]) -> bool:
    """Whether rows of some columns are in order, the first column counting most."""
    same: Flags = np.ones(max(0, len(columns[0]) - 1), dtype=np.bool_)
    for column in columns:
        step = np.diff(column)
        if (same & (step < 0)).any():
            return False
        same &= step == 0
    return True
