"""What a step of a law wrote: rows for the sinks."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa

from streaming.contract.decisions import DEADLETTER, DECISIONS, decided_subject
from streaming.laws.texts import Bytes, Integers

ADMISSION: Final = "admission"
_ID_AT: Final = len(b'{"type":"admission","id":"')


@dataclass(frozen=True, kw_only=True)
class Admissions:
    """Many decisions of the mutation law as columns.

    Attributes:
        text: their bytes, one after the other.
        ends: where each begins in `text`, and where the last one ends.
        ts: event time, ms.
        source: index of the record that each answers.
        subjects: the keys, Arrow text.
        subject: number of each decision's key.
    """

    text: Bytes
    ends: Integers
    ts: Integers
    source: Integers
    subjects: pa.Array
    subject: Integers

    def __len__(self) -> int:
        return len(self.ts)

    def as_arrow(self) -> pa.Array:
        """The decisions as Arrow binary, without a copy of their bytes; together less than 2 GB."""
        ends = pa.py_buffer(self.ends.astype(np.int32))
        return pa.BinaryArray.from_buffers(pa.binary(), len(self), [None, ends, pa.py_buffer(self.text)])

    @cached_property
    def values(self) -> list[bytes]:
        """The decisions one by one."""
        whole, ends = self.text.tobytes(), self.ends.tolist()
        return [whole[begin:end] for begin, end in pairwise(ends)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One output; see `Outputs` for its fields."""

    sink: str
    key: str
    value: bytes
    ts: int
    type: str
    id: str
    source: int


@dataclass(slots=True)
class Outputs:
    """What one step wrote, read as parallel lists: first the rows made one by one, then admissions.

    Attributes:
        rows: dead letters, and decisions of other laws than that of mutations.
        admissions: decisions of the mutation law, if there are any.
    """

    rows: list[Row] = field(default_factory=list)
    admissions: Admissions | None = None

    def __len__(self) -> int:
        return len(self.rows) + (0 if self.admissions is None else len(self.admissions))

    @property
    def sink(self) -> list[str]:
        """DECISIONS or DEADLETTER."""
        return [row.sink for row in self.rows] + [DECISIONS] * (len(self) - len(self.rows))

    @property
    def key(self) -> list[str]:
        """The record key: the decision's subject; empty for a dead letter."""
        keys = [row.key for row in self.rows]
        if self.admissions is not None:
            names = self.admissions.subjects.to_pylist()
            keys += [names[number] for number in self.admissions.subject.tolist()]
        return keys

    @property
    def value(self) -> list[bytes]:
        """The record's bytes, one JSON object."""
        return [row.value for row in self.rows] + ([] if self.admissions is None else self.admissions.values)

    @property
    def ts(self) -> list[int]:
        """Event time in ms; 0 where a dead letter has none."""
        ts = [row.ts for row in self.rows]
        return ts if self.admissions is None else ts + self.admissions.ts.tolist()

    @property
    def type(self) -> list[str]:
        """The decision's `type`, or `dead_letter`."""
        return [row.type for row in self.rows] + [ADMISSION] * (len(self) - len(self.rows))

    @property
    def id(self) -> list[str]:
        """The decision's `id`; empty for a dead letter."""
        values = [] if self.admissions is None else self.admissions.values
        return [row.id for row in self.rows] + [_id_of(value) for value in values]

    @property
    def source(self) -> list[int]:
        """Index of the input record that each answers."""
        source = [row.source for row in self.rows]
        return source if self.admissions is None else source + self.admissions.source.tolist()

    def add(self, decided: list[tuple[int, dict[str, Any]]] | Admissions) -> None:
        """Append what a law decided, as its `fold` returns it; admissions once."""
        if isinstance(decided, Admissions):
            assert self.admissions is None
            self.admissions = decided if len(decided) else None
            return
        for i, decision in decided:
            self.add_decision(decision, source=i)

    def add_decision(self, decision: dict[str, Any], *, source: int) -> None:
        """Append a decision; `decision` holds at least type, id, ts and whom it is about."""
        self.rows.append(
            Row(
                sink=DECISIONS,
                key=decided_subject(decision),
                value=orjson.dumps(decision),
                ts=decision["ts"],
                type=decision["type"],
                id=decision["id"],
                source=source,
            )
        )

    def add_repeat(self, value: bytes, *, subject: str, type: str, id: str, now: int, source: int) -> None:
        """Append a standing decision said again; it counts as of `now`, not as of its first writing."""
        self.rows.append(
            Row(sink=DECISIONS, key=subject, value=value, ts=now, type=type, id=id, source=source)
        )

    def add_dead_letter(self, letter: bytes, *, ts: int | None, source: int) -> None:
        """Append a dead letter made by `dead_letter`."""
        self.rows.append(
            Row(
                sink=DEADLETTER,
                key="",
                value=letter,
                ts=0 if ts is None else ts,
                type="dead_letter",
                id="",
                source=source,
            )
        )

    def sizes(self) -> Integers:
        """Bytes of each value and its key, in the order of the lists."""
        sizes = np.array([len(row.value) + len(row.key.encode()) for row in self.rows], dtype=np.int64)
        if self.admissions is None:
            return sizes
        keys = np.array([len(name.encode()) for name in self.admissions.subjects.to_pylist()], dtype=np.int64)
        return np.concatenate([sizes, np.diff(self.admissions.ends) + keys[self.admissions.subject]])

    def bury(self, position: int, letter: bytes) -> None:
        """Put a dead letter in the place of an output."""
        if position >= len(self.rows):
            columns = (self.sink, self.key, self.value, self.ts, self.type, self.id, self.source)
            names = ("sink", "key", "value", "ts", "type", "id", "source")
            listed = [Row(**dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]
            self.rows, self.admissions = listed, None
        self.rows[position] = replace(self.rows[position], sink=DEADLETTER, key="", value=letter)


def _id_of(value: bytes) -> str:
    """The id in an admission's bytes."""
    end = value.index(b'"', _ID_AT)
    if b"\\" in value[_ID_AT:end]:
        return str(orjson.loads(value)["id"])
    return value[_ID_AT:end].decode()
