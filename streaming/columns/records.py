"""What goes into a shard's step: records as parallel columns."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming.columns.byte_strings import Integers, bytes_in
from streaming.columns.json_rows import objects
from streaming.columns.packed import DECODED_BYTES, ROWS_MAX, decoded_bytes, opened, unpack
from streaming.contract.errors import BadEvent

NO_ROW: Final = -1
"""Number of the row of a record that is not packed."""
_WRITTEN_AT_ONCE: Final = 512
_PLACE: Final = 4
"""Columns at the end of a part of packed records, see `unpacked`."""
_TOGETHER_BYTES: Final = 16 * 2**20
"""Of packs that are put together at most: it bounds what is copied at once."""
COLUMN_BYTES: Final = 2**30
"""Of one column of all packed records of a shard's batch, dictionaries written out: beyond 2 GiB Arrow
raises, or gives one whose offsets have overflowed."""
Flags = NDArray[np.bool_]
Part = TypeVar("Part")


class NameColumn(Sequence[str]):
    """Names by number: a name a record without a list as long as the records."""

    def __init__(self, names: Sequence[str], numbers: Integers) -> None:
        self._names, self._numbers = names, numbers

    def __getitem__(self, i: Any) -> Any:
        return self._names[self._numbers[i]]

    def take(self, which: Integers) -> "NameColumn":
        """The names of some of the records."""
        return NameColumn(self._names, self._numbers[which])

    def others(self, name: str) -> Flags:
        """Which have another name."""
        other: Flags = np.array([one != name for one in self._names], dtype=np.bool_)[self._numbers]
        return other

    def __len__(self) -> int:
        return len(self._numbers)


@dataclass(slots=True)
class Pack:
    """Rows of a packed record, or of a file of columns, among the records of a shard.

    Attributes:
        first: index of the first row among the records; the others follow.
        type: of all rows.
        rows: columns in the forms that `packed.unpack` gives.
        number: of each row in its Kafka record, from 0, or in its file, from 1.
    """

    first: int
    type: str
    rows: pa.RecordBatch
    number: Integers
    _written: tuple[int, pa.LargeBinaryArray] | None = field(default=None, init=False, repr=False)

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def object_of(self, i: int) -> bytes:
        """The JSON object of the row with this index among the records."""
        place = i - self.first
        begin = place - place % _WRITTEN_AT_ONCE
        if self._written is None or self._written[0] != begin:
            # Who asks for one mostly asks for the next one too, and many cost hardly more than one.
            self._written = begin, self.objects(begin, _WRITTEN_AT_ONCE)
        return bytes(self._written[1][place - begin].as_py())

    def objects(self, begin: int, count: int) -> pa.LargeBinaryArray:
        """The JSON objects of some rows, numbered from 0."""
        return objects(self.type, self.rows.slice(begin, count))


@dataclass(slots=True)
class Records:
    """Records of one shard, in any order, as parallel columns: lists, or arrays where they are many.

    Each row of a packed record is a record: first come those that hold one event each, then the rows of each
    of `packs`. All columns but `value` cover both.

    Attributes:
        topic: topic, or base name of a file.
        partition: partition; 0 for a file.
        offset: offset, or line number from 1.
        ts: record timestamp in ms; None for a line of a file, or for all of them.
        value: the bytes of those that are not packed; a list, or Arrow binary without nulls.
        file: number of the file, in the order given; None: the records come from Kafka.
        broadcast: whether every shard concerned got this record, as of policies and ticks and nothing else;
            None: there is one shard only.
        packs: rows of packed records, in the order of their indices.
        unusable: by index, why a packed record cannot be unpacked; its bytes are in `value`.
        sent: note for the shard of who has sent what so far (columns.sent); empty: nothing new.
        copies: records of the batch that are left out, since they stood before.
        requests: the topic on which requests stand; empty: they may stand anywhere, as in a file.
    """

    topic: Sequence[str] = field(default_factory=list)
    partition: Sequence[int] | Integers = field(default_factory=list)
    offset: Sequence[int] | Integers = field(default_factory=list)
    ts: Sequence[int | None] | Integers | None = field(default_factory=list)
    value: Sequence[bytes] | pa.ChunkedArray = field(default_factory=list)
    file: Sequence[int] | Integers | None = None
    broadcast: Sequence[bool] | Flags | None = None
    packs: list[Pack] = field(default_factory=list)
    unusable: dict[int, str] = field(default_factory=dict)
    sent: bytes = b""
    copies: int = 0
    requests: str = ""

    def __len__(self) -> int:
        return len(self.value) + sum(map(len, self.packs))

    def pack_of(self, i: int) -> Pack | None:
        """The pack that a record is a row of; None: it is not packed."""
        if i < len(self.value):
            return None
        return self.packs[bisect_right(self.packs, i, key=lambda pack: pack.first) - 1]

    def row_of(self, i: int) -> int:
        """Number of a record's row in its packed record; NO_ROW: it is none, or stands in a file."""
        pack = self.pack_of(i)
        return NO_ROW if pack is None or self.file is not None else int(pack.number[i - pack.first])

    def value_of(self, i: int) -> bytes:
        """The bytes of a record; of a row its JSON object."""
        pack = self.pack_of(i)
        if pack is not None:
            return pack.object_of(i)
        value = self.value[i]
        return value if isinstance(value, bytes) else bytes(value.as_py())

    def ts_of(self, i: int) -> int | None:
        """Timestamp of a record in ms; None for a line of a file."""
        ts = None if self.ts is None else self.ts[i]
        return None if ts is None else int(ts)

    def name_of(self, i: int) -> str:
        """Id of a record that names none itself (docs/contract.md 1)."""
        if self.file is not None:
            return f"{self.topic[i]}:{self.offset[i]}"
        row = self.row_of(i)
        return f"{self.topic[i]}-{self.partition[i]}-{self.offset[i]}{'' if row == NO_ROW else f'/{row}'}"

    def check_channel(self, i: int, for_all: bool) -> None:
        """A policy or tick that one shard alone saw, or an event that all saw, would be decided wrongly.

        Raises:
            BadEvent: it came by the wrong topic.
        """
        if self.broadcast is not None and self.broadcast[i] != for_all:
            raise BadEvent(f"type: {'for all shards' if for_all else 'for one shard'}; this topic is not")

    def is_elsewhere(self, i: int) -> bool:
        """Whether a record stands on another topic than requests."""
        return self.requests not in ("", self.topic[i])

    def no_requests(self) -> Flags:
        """Which can be no requests: those that all shards got, and those of another topic."""
        none: Flags = np.zeros(len(self), dtype=np.bool_)
        if self.broadcast is not None:
            none |= np.asarray(self.broadcast, dtype=np.bool_)
        if self.requests and isinstance(self.topic, NameColumn):
            none |= self.topic.others(self.requests)
        return none

    def order_of(self, i: int) -> tuple[int, int, int]:
        """Arrival of a record: (partition, offset, row), or in a replay (file, line, NO_ROW)."""
        place = self.partition if self.file is None else self.file
        return int(place[i]), int(self.offset[i]), self.row_of(i)

    def arrivals(self) -> tuple[Integers, Integers, Integers]:
        """`order_of` of all records, as columns."""
        first = self.partition if self.file is None else self.file
        rows = np.full(len(self), NO_ROW, dtype=np.int64)
        for pack in self.packs if self.file is None else ():
            rows[pack.first : pack.first + len(pack)] = pack.number
        return np.asarray(first, dtype=np.int64), np.asarray(self.offset, dtype=np.int64), rows

    def times(self) -> Integers:
        """Timestamps of all records in ms, -1 where there is none."""
        if self.ts is None:
            return np.full(len(self), -1)
        if isinstance(self.ts, np.ndarray):
            # A copy can be written to, what Arrow holds cannot, and Numba compiles anew for such arrays.
            return np.array(self.ts, dtype=np.int64)
        return np.array([-1 if ts is None else ts for ts in self.ts], dtype=np.int64)

    def sizes(self) -> Integers:
        """Bytes of all records that are not packed."""
        if isinstance(self.value, pa.ChunkedArray):
            parts = [np.diff(bytes_in(chunk)[1]) for chunk in self.value.chunks]
            return np.concatenate([np.empty(0, dtype=np.int64), *parts])
        return np.fromiter(map(len, self.value), np.int64, len(self.value))


def unpacked(
    *, topic: NameColumn, partition: Integers, offset: Integers, ts: Integers, value: pa.ChunkedArray,
    broadcast: Flags | None, packed: Flags, cut: Flags | None = None,
) -> Records:  # fmt: skip
    """Records from Kafka, the packed ones among them taken apart; columns as those of `Records`.

    Args:
        packed: which of them are packed, parts of packed ones too.
        cut: which of them are such parts: from `packed.stream`, with partition, offset and timestamp of each
            row's record and the number of the row in it as the last columns; None: none.
    """
    if not packed.any():
        return Records(
            topic=topic, partition=partition, offset=offset, ts=ts, value=value, broadcast=broadcast
        )
    found, places, reasons = _taken_apart(value, packed, cut)

    def put_together() -> Records:
        single = ~packed
        single[list(reasons)] = True
        alone = np.flatnonzero(single)
        sizes = [len(pack) for _, pack in found]
        at = np.concatenate([alone, np.repeat(np.array([i for i, _ in found], dtype=np.int64), sizes)])
        arrived = [np.array(column[at], dtype=np.int64) for column in (partition, offset, ts)]
        for (i, pack), first in zip(found, (len(alone) + np.cumsum([0, *sizes])).tolist(), strict=False):
            pack.first = first
            for column, own in zip(arrived, places.get(i, ()), strict=False):
                column[first : first + len(pack)] = own
        return Records(
            topic=topic.take(at), partition=arrived[0], offset=arrived[1], ts=arrived[2],
            value=value.filter(pa.array(single)), broadcast=None if broadcast is None else broadcast[at],
            packs=_together([pack for _, pack in found], None if broadcast is None else broadcast[at]),
            unusable={int(np.searchsorted(alone, i)): reason for i, reason in reasons.items()},
        )  # fmt: skip

    records = put_together()
    if len(records.packs) * DECODED_BYTES > COLUMN_BYTES:
        much = _too_much(sorted(found, key=lambda one: (partition[one[0]], offset[one[0]])), value)
        if much:
            reasons |= much
            found = [(i, pack) for i, pack in found if i not in much]
            records = put_together()
    return records


def _taken_apart(
    value: pa.ChunkedArray, packed: Flags, cut: Flags | None
) -> tuple[list[tuple[int, Pack]], dict[int, list[Integers]], dict[int, str]]:
    """By number of the record: packs, where the rows of parts stood, and why there is no pack."""
    found: list[tuple[int, Pack]] = []
    places: dict[int, list[Integers]] = {}
    reasons: dict[int, str] = {}
    for i in np.flatnonzero(packed).tolist():
        if cut is not None and cut[i]:
            type, rows = opened(value[i].as_buffer())
            *places[i], number = (column.to_numpy() for column in rows.columns[-_PLACE:])
            own = rows.select(range(rows.num_columns - _PLACE))
            found.append((i, Pack(0, type, own, number)))
            continue
        try:
            type, rows = unpack(value[i].as_buffer())
        except BadEvent as error:
            reasons[i] = error.reason
        else:
            found.append((i, Pack(0, type, rows, np.arange(rows.num_rows))))
    return found, places, reasons


def _too_much(found: Sequence[tuple[int, Pack]], value: pa.ChunkedArray) -> dict[int, str]:
    """Those to leave out for no column to have more than COLUMN_BYTES, and why: first who says most by the
    byte, such as one long name in a hundred thousand rows.
    """
    total, much = Counter[str](), dict[int, str]()
    said = [
        {name: decoded_bytes(pack.rows.select([name])) for name in pack.rows.schema.names}
        for _, pack in found
    ]
    sizes = [sum(own.values()) for own in said]
    sent = [value[i].as_buffer().size for i, _ in found]
    for at in sorted(range(len(found)), key=lambda at: sizes[at] / sent[at]):
        if all(total[name] + more <= COLUMN_BYTES for name, more in said[at].items()):
            total.update(said[at])
            continue
        size = f"{sizes[at]} bytes decompressed of {sent[at]}"
        much[found[at][0]] = f"{size}; with others of its batch it is too much to hold"
    return much


def _together(packs: Sequence[Pack], broadcast: Flags | None) -> list[Pack]:
    """The same rows in the same order in fewer packs.

    To look through 5,000 rows costs hardly more than through 100, and records that are cut by routing key
    leave many small packs.
    """

    def alike(one: Pack, other: Pack) -> bool:
        return (
            one.type == other.type
            and (broadcast is None or broadcast[one.first] == broadcast[other.first])
            and one.rows.schema.equals(other.rows.schema, check_metadata=True)
        )

    groups: list[list[Pack]] = []
    size = count = 0
    for pack in packs:
        size, count = size + pack.rows.nbytes, count + len(pack)
        if groups and size <= _TOGETHER_BYTES and count <= ROWS_MAX and alike(groups[-1][0], pack):
            groups[-1].append(pack)
        else:
            groups.append([pack])
            size, count = pack.rows.nbytes, len(pack)
    return [pack for group in groups for pack in _joined(group)]


def _joined(packs: list[Pack]) -> list[Pack]:
    """Packs that are alike as one; as they are where that cannot be or would be more than a record may be."""
    if len(packs) == 1:
        return packs
    try:
        whole = pa.Table.from_batches([pack.rows for pack in packs]).unify_dictionaries()
    except pa.ArrowException:
        # Such as more text than one column may hold.
        return packs
    (rows,) = whole.combine_chunks().to_batches()
    if decoded_bytes(rows) > DECODED_BYTES:
        return packs
    return [Pack(packs[0].first, packs[0].type, rows, np.concatenate([pack.number for pack in packs]))]


def some_at_a_time(parts: Iterable[Part], most: int, size_of: Callable[[Part], int]) -> Iterator[list[Part]]:
    """Parts in turn, as many together as have `most` bytes with the last one.

    Of more bytes than a column can hold Arrow makes none, or one that ends the process.
    """
    some: list[Part] = []
    size = 0
    for part in parts:
        some.append(part)
        size += size_of(part)
        if size >= most:
            yield some
            some, size = [], 0
    if some:
        yield some


def chosen(rows: pa.RecordBatch | pa.Table, wanted: pa.Array | pa.ChunkedArray) -> Any:
    """The rows that are wanted; mostly that is all of them, and then nothing is copied."""
    return rows if pc.all(wanted).as_py() else rows.filter(wanted)


def too_far_ahead(at: Integers, times: Integers, max_ahead_ms: int) -> NDArray[np.bool_]:
    """Which events `contract.events.parse` refuses for that; the compiled readers leave them to it.

    Args:
        at: when each is applied, ms.
        times: timestamps of their records, ms; -1: none.
        max_ahead_ms: how far an event may lie after its record's timestamp, if that has one.
    """
    ahead: NDArray[np.bool_] = (times >= 0) & (at - times > max_ahead_ms)
    return ahead
