"""What a step of a law wrote: rows for the sinks."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns.byte_strings import Integers, bytes_in
from streaming.columns.json_rows import objects
from streaming.columns.packed import decoded_bytes
from streaming.columns.records import Records, some_at_a_time
from streaming.contract.decisions import CANDIDATE, DEADLETTER, DECISIONS
from streaming.contract.fields import INT64_MAX

DEAD_LETTER: Final = "dead_letter"
"""In `type` of an output that is none of a law's."""
PIECE_BYTES: Final = 32 * 2**20
"""Of a piece of outputs; decisions, with dictionaries written out, as JSON have some times as many."""
_DEAD: Final = {"sink": DEADLETTER, "key": "", "type": DEAD_LETTER, "id": ""}
"""What all dead letters have alike."""
_TYPES: Final = {
    "sink": pa.string(), "key": pa.string(), "value": pa.large_binary(), "ts": pa.int64(),
    "type": pa.string(), "id": pa.string(), "source": pa.int64(),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decisions(ABC):
    """Many decisions of one law.

    Attributes:
        type: of all of them.
        rows: columns, `id` and `ts` (event time, ms) among them.
        source: index of the record that each answers.
        keys: their keys, Arrow text.
        key: number of each one's key; None: `keys` has one for each.
    """

    type: str
    rows: pa.RecordBatch
    source: Integers
    keys: pa.Array
    key: Integers | None = None

    def __len__(self) -> int:
        return len(self.source)

    @property
    def ts(self) -> Integers:
        """Event time, ms."""
        return self.rows["ts"].to_numpy()  # type: ignore[no-any-return]

    @abstractmethod
    def values(self, end: str) -> pa.Array:
        """Their bytes, each with `end` behind it."""

    def column(self, name: str) -> pa.Array:
        """One of the columns of `Outputs`; `line`: values with a newline."""
        match name:
            case "value":
                return self.values("")
            case "line":
                return self.values("\n")
            case "key":
                return self.keys if self.key is None else self.keys.take(pa.array(self.key))
            case "id":
                return self.rows["id"].cast(pa.string())
            case "ts" | "source":
                return pa.array(getattr(self, name))
        return pa.repeat(pa.scalar({"sink": DECISIONS, "type": self.type}[name]), len(self))

    def sizes(self) -> Integers:
        """Bytes of each value as JSON and its key."""
        keys = np.diff(bytes_in(self.keys)[1])
        return np.diff(bytes_in(self.values(""))[1]) + (keys if self.key is None else keys[self.key])

    def pieces(self) -> Iterator[Self]:
        """The same in this order, halved as long as there are more than PIECE_BYTES."""
        count = len(self)
        if count < 2 or decoded_bytes(self.rows) <= PIECE_BYTES:
            yield self
            return
        for part in (slice(0, count // 2), slice(count // 2, count)):
            keys, key = (self.keys[part], None) if self.key is None else (self.keys, self.key[part])
            yield from replace(
                self, rows=self.rows[part], source=self.source[part], keys=keys, key=key
            ).pieces()

    def take(self, which: Integers) -> Self:
        """Some of them, in this order."""
        taken = pa.array(which)
        keys, key = (self.keys.take(taken), None) if self.key is None else (self.keys, self.key[which])
        return replace(self, rows=self.rows.take(taken), source=self.source[which], keys=keys, key=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionTexts(_Decisions):
    """Decisions that were written one by one: `rows` has the bytes of each as `value`, and the text that its
    partition is chosen by, if that is not its key.
    """

    def values(self, end: str) -> pa.Array:
        """Their bytes, each with `end` behind it."""
        texts = self.rows["value"]
        return pa.array([text + end.encode() for text in texts.to_pylist()], texts.type) if end else texts


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRows(_Decisions):
    """Decisions, a column a field: `rows` in the order of docs/contract.md's example, without `type`."""

    def values(self, end: str) -> pa.Array:
        """Their bytes, each with `end` behind it."""
        return objects(self.type, self.rows, end=end)

    def largest(self) -> int:
        """A bound of `sizes`, without writing anything: six bytes of JSON for one of text."""
        names = sum(map(len, self.rows.schema.names))
        return 6 * (widest(self.keys) + names + sum(map(widest, self.rows.columns))) + 100


Decided = DecisionTexts | DecisionRows
"""What a law decided, as text or as columns."""


def widest(column: pa.Array) -> int:
    """A bound of what one value of a column takes, bytes."""
    kind = column.type
    if not len(column):
        return 0
    if pa.types.is_dictionary(kind):
        return widest(column.dictionary)
    if pa.types.is_struct(kind):
        names = sum(len(kind.field(number).name) + 8 for number in range(kind.num_fields))
        return names + sum(map(widest, column.flatten()))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        parts = (column.keys, column.items) if pa.types.is_map(kind) else (column.values,)
        longest = int(np.diff(column.offsets.to_numpy()).max())
        return longest * (8 + sum(map(widest, parts)))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return int(np.diff(bytes_in(column)[1]).max()) + 8
    # A double is the longest number: 24 signs and a comma. What is none is looked at whole.
    return 25 if pa.types.is_primitive(kind) or pa.types.is_null(kind) else INT64_MAX


class DeadLetter(NamedTuple):
    """Its bytes, the time of the record that it is about (ms, 0: it has none), and the index of that one."""

    value: bytes
    ts: int
    source: int


@dataclass(slots=True)
class Outputs:
    """What one step wrote, read as parallel lists: first the dead letters, then the decisions.

    Attributes:
        letters: dead letters.
        columns: decisions.
        withheld: how many decisions it did not write, since their life time is over.
    """

    letters: list[DeadLetter] = field(default_factory=list)
    columns: list[Decided] = field(default_factory=list)
    withheld: int = 0

    def __len__(self) -> int:
        return len(self.letters) + sum(map(len, self.columns))

    def column(self, name: str) -> pa.Array:
        """One of the lists as Arrow.

        Args:
            name: `sink` (DECISIONS or DEADLETTER), `value` (a JSON object), `type`, `source` (index of the
                record answered), `key`, `id` (both empty for a dead letter) or `ts` (ms; 0: it has none).
        """
        said = [_DEAD[name] if name in _DEAD else getattr(letter, name) for letter in self.letters]
        parts = [pa.array(said, _TYPES[name])] if said or not self.columns else []
        parts += [columns.column(name) for columns in self.columns]
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)

    def pieces(self) -> Iterator["Outputs"]:
        """The same in this order, none empty: what is written of one fits into Arrow's 2 GiB a column."""
        for letters in some_at_a_time(self.letters, PIECE_BYTES, lambda letter: len(letter.value)):
            yield Outputs(letters=letters)
        for decided in self.columns:
            yield from (Outputs(columns=[piece]) for piece in decided.pieces())

    def replayed(self, records: Records) -> dict[str, pa.Array]:
        """What a replay of these records writes, with file and line of the one that each answers."""
        source = self.column("source").to_numpy()
        first = records.partition if records.file is None else records.file
        file, line = (np.asarray(column)[source] for column in (first, records.offset))
        return {
            "dead": pc.equal(self.column("sink"), DEADLETTER),
            **{name: self.column(name) for name in ("value", "ts", "type", "id")},
            "file": pa.array(file, pa.int32()),
            "line": pa.array(line, pa.int64()),
        }

    @property
    def value(self) -> list[bytes]:
        """The record's bytes, one JSON object."""
        return self.listed("value")

    @property
    def type(self) -> list[str]:
        """The decision's `type`, or `dead_letter`."""
        return self.listed("type")

    def listed(self, name: str) -> list[Any]:
        """One of them as a list."""
        # Several times faster than to_pylist, which makes a scalar object of each value.
        listed: list[Any] = self.column(name).to_numpy(zero_copy_only=False).tolist()
        return listed

    def add(self, decided: Decided | None) -> None:
        """Append what a law decided."""
        if decided is not None and len(decided):
            self.columns.append(decided)

    def tried(self, candidate: str) -> "Outputs":
        """The decisions as those by policies that are only tried; what cannot be used, the others tell of."""
        named: list[Decided] = []
        for decided in self.columns:
            assert isinstance(decided, DecisionRows), "only what is said again is written as text"
            name = pa.repeat(pa.scalar(candidate), len(decided))
            named.append(replace(decided, rows=decided.rows.append_column(CANDIDATE, name)))
        return Outputs(columns=named)

    def add_dead_letter(self, letter: bytes, *, ts: int | None, source: int) -> None:
        """Append a dead letter made by `dead_letter`."""
        self.letters.append(DeadLetter(letter, 0 if ts is None else ts, source))

    def surely_within(self, most: int) -> bool:
        """Whether no output has more bytes than this, key and value together; false: perhaps one has."""
        return not self.letters and all(
            isinstance(columns, DecisionRows) and columns.largest() <= most for columns in self.columns
        )
