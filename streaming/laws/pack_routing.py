"""Packed records cut up: to each shard the rows whose events must be seen in order there."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns.byte_strings import Integers
from streaming.columns.json_rows import objects
from streaming.columns.packed import columns_in, decoded_bytes, schema_of, stream, unpack
from streaming.contract.errors import BadEvent
from streaming.contract.events import MAX_AHEAD_MS, Event
from streaming.laws.law import LawSpec
from streaming.laws.name_hashes import partition_of, shard_of
from streaming.laws.registry import LAWS
from streaming.laws.row_fields import is_text
from streaming.laws.sheet import joined

PLACE: Final = ("weir.partition", "weir.offset", "weir.ts", "weir.row")
"""Last columns of a part: of each row partition, offset and timestamp (ms) of its record, and its number."""
TOGETHER_BYTES: Final = 16 * 2**20
"""Of unpacked rows that are cut up together, dictionaries written out: this bounds memory, small records may
become very large."""
_TS: Final = PLACE.index("weir.ts")

Entries = Callable[[int], tuple[Integers, pa.Array]]
"""(shard) -> numbers of the rows that have entries for it, and the column with these entries alone."""


class Record(NamedTuple):
    """A packed record as Kafka has it.

    Attributes:
        value: its bytes.
        partition, offset: where it stands.
        ts: its timestamp, ms.
    """

    value: pa.Buffer
    partition: int
    offset: int
    ts: int


class RecordPart(NamedTuple):
    """Some rows of packed records, or a record as it came.

    Attributes:
        law: that decides them.
        shard: number of its shard.
        value: `packed.stream` of the rows with the columns PLACE, or the record's bytes.
        cut: which of the two.
        record: number of the record, or of the first one that rows come from.
    """

    law: str
    shard: int
    value: bytes
    cut: bool
    record: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Rows of one type.

    Attributes:
        type: of all of them.
        rows: the columns that they came with.
        place: PLACE of each, a column each.
        record: number of the first one's record.
        topic: where they come from.
        max_ahead_ms: how far an event may lie after its record's timestamp.
    """

    type: str
    rows: pa.RecordBatch
    place: Integers
    record: int
    topic: str
    max_ahead_ms: int

    def name(self, row: int) -> str:
        """Default id of a row."""
        partition, offset, _, number = self.place[row].tolist()
        return f"{self.topic}-{partition}-{offset}/{number}"


def parts(
    records: Sequence[Record], *, topic: str, shards: int, max_ahead_ms: int = MAX_AHEAD_MS,
    requests: bool = False,
) -> Iterator[RecordPart]:  # fmt: skip
    """The parts of packed records; one that cannot be used goes whole to a shard that says so.

    Args:
        records: of one topic.
        topic: its name.
        shards: per law.
        max_ahead_ms: how far an event may lie after its record's timestamp; beyond, it cannot be used.
        requests: whether requests stand there, so that events of other laws cannot be used.
    """
    alike: dict[Any, list[_Rows]] = {}
    size = 0
    for i, record in enumerate(records):
        try:
            law, own = _only_shard(record.value, shards)
            if requests and not law.on_requests:
                # The step of another law says so of each row.
                raise BadEvent(f"type: of the law {law.name}")
            if own is not None:
                # That shard unpacks it.
                yield RecordPart(law.name, own, record.value.to_pybytes(), False, i)
                continue
            type, rows = unpack(record.value)
        except BadEvent:
            home = shard_of(f"{topic}-{record.partition}-{record.offset}", shards)
            yield RecordPart(LAWS.reporting.name, home, record.value.to_pybytes(), False, i)
            continue
        number = np.arange(rows.num_rows)
        place = np.column_stack([np.full((len(number), 3), record[1:], dtype=np.int64), number])
        found = _Rows(type=type, rows=rows, place=place, record=i, topic=topic, max_ahead_ms=max_ahead_ms)
        # Reports have one row each and come by hundreds: together they cost half as much.
        alike.setdefault((type, rows.schema) if law.plain else i, []).append(found)
        # Of a single row no dictionary says anything twice.
        size += rows.nbytes if rows.num_rows == 1 else decoded_bytes(rows)
        if size >= TOGETHER_BYTES:
            yield from _cut(alike.values(), shards)
            alike, size = {}, 0
    yield from _cut(alike.values(), shards)


def _joined(some: list[_Rows]) -> _Rows:
    """Rows of one type and with the same columns."""
    if len(some) == 1:
        return some[0]
    place = np.concatenate([one.place for one in some])
    return replace(some[0], rows=joined([one.rows for one in some]), place=place)


def _cut(alike: Iterable[list[_Rows]], shards: int) -> Iterator[RecordPart]:
    """The parts of rows of which those with the same columns are listed together."""
    for given in map(_joined, alike):
        law = law_of(given.type)
        for shard, rows, number in _by_shard(law, given, shards):
            for name, column in zip(PLACE, given.place[number].T, strict=True):
                rows = rows.append_column(name, pa.array(np.ascontiguousarray(column)))
            yield RecordPart(law.name, shard, stream(given.type, rows), True, given.record)


def law_of(type: str) -> LawSpec:
    """The law that decides events of a type, else the one that reports what is wrong."""
    return next((law for law in LAWS.by_name.values() if type in law.readers), LAWS.reporting)


def _only_shard(value: pa.Buffer, shards: int) -> tuple[LawSpec, int | None]:
    """The law of a packed record, and the shard that all its rows surely belong to: nearly every one has one,
    since its rows are of one partition, and nothing but their routing keys is read; None: they are looked at.

    Raises:
        BadEvent: it is none, or says no type.
    """
    type, schema = schema_of(value)
    law = law_of(type)
    if shards == 1:
        return law, 0
    place = schema.get_field_index(law.key_column)
    if place < 0 or not is_text(schema.field(place).type):
        return law, None
    try:
        keys = columns_in(value, type, [law.key_column])[law.key_column]
    except BadEvent:
        # `unpack` takes more than it does, and says what is wrong.
        return law, None
    if keys.null_count or not pc.all(pc.greater(pc.binary_length(keys), 0)).as_py():
        return law, None
    found = partition_of(keys, shards)
    return law, int(found[0]) if len(found) and (found == found[0]).all() else None


def _by_shard(law: LawSpec, given: _Rows, shards: int) -> Iterator[tuple[int, pa.RecordBatch, Integers]]:
    """(shard, its rows, their numbers), by shard."""
    rows = given.rows
    place = rows.schema.get_field_index(law.key_column)
    column = rows.column(place) if place >= 0 else pa.nulls(rows.num_rows)
    if law.split is not None and (pa.types.is_map(column.type) or pa.types.is_struct(column.type)):
        yield from _entries_by_shard(law, given, place, shards)
        return
    shard = _shards_of(law, given, column, shards)
    order = np.argsort(shard.astype(np.uint16), kind="stable")
    sorted_rows = rows.take(pa.array(order))
    ends = np.searchsorted(shard[order], np.arange(shards + 1))
    for number in range(shards):
        begin, count = int(ends[number]), int(ends[number + 1] - ends[number])
        if count:
            yield number, _compact(sorted_rows.slice(begin, count)), order[begin : begin + count]


def _shards_of(law: LawSpec, given: _Rows, keys: pa.Array, shards: int) -> Integers:
    """The shard of each row by its routing key; where the column does not say it, by the whole event."""
    shard = np.empty(len(given.place), dtype=np.int64)
    said = np.zeros(len(given.place), dtype=np.bool_)
    if is_text(keys.type):
        repeat = pa.types.is_dictionary(keys.type)
        texts = keys.dictionary_decode() if repeat else keys
        said = pc.greater(pc.binary_length(texts), 0).fill_null(False).to_numpy(zero_copy_only=False)
        if repeat:
            of_name = partition_of(keys.dictionary, shards)
            shard[said] = of_name[keys.indices.filter(pa.array(said)).to_numpy()]
        else:
            shard[said] = partition_of(keys if said.all() else keys.filter(pa.array(said)), shards)
    for i in np.flatnonzero(~said).tolist():
        shard[i] = shard_of(_routing_key(law, given, i), shards)
    return shard


def _routing_key(law: LawSpec, given: _Rows, row: int) -> str:
    """The routing key of one row; its id if it cannot be used, or is of no law, as a tick."""
    try:
        event = _event(given, row)
    except BadEvent:
        return given.name(row)
    return law.routing_key(event, None) if law.is_own(type(event)) else given.name(row)


def _event(given: _Rows, row: int) -> Event:
    """The event of one row.

    Raises:
        BadEvent: it cannot be used.
    """
    value = bytes(objects(given.type, given.rows.slice(row, 1))[0].as_py())
    ts = int(given.place[row, _TS])
    return LAWS.parse(value, default_id=given.name(row), default_ts=ts, max_ahead_ms=given.max_ahead_ms)


def _entries_by_shard(
    law: LawSpec, given: _Rows, place: int, shards: int
) -> Iterator[tuple[int, pa.RecordBatch, Integers]]:
    """As `_by_shard`, of rows with an object whose keys are routing keys: each shard gets its own entries.

    A row that cannot be used, in any of its entries, stays whole; one without entries is nobody's.
    """
    rows = given.rows
    plain = np.zeros(rows.num_rows, dtype=np.bool_)
    if law.plain is not None:
        times = np.ascontiguousarray(given.place[:, _TS])
        plain = law.plain(rows, times, given.max_ahead_ms)
    whole = [i for i in np.flatnonzero(~plain).tolist() if not _is_good(given, i)]
    home = np.array([shard_of(given.name(i), shards) for i in whole], dtype=np.int64)
    stays = np.zeros(rows.num_rows, dtype=np.bool_)
    stays[whole] = True
    cut = (_map_entries if pa.types.is_map(rows.column(place).type) else _struct_entries)(
        rows.column(place), shards
    )
    for number in range(shards):
        here, entries = cut(number)
        kept = ~stays[here]
        parts = [(here[kept], entries if kept.all() else entries.filter(pa.array(kept)))]
        own = np.array(whole, dtype=np.int64)[home == number]
        if len(own):
            parts.append((own, rows.column(place).take(pa.array(own))))
        for numbers, column in parts:
            if len(numbers):
                yield number, _compact(_heads(rows, numbers, place, column)), numbers


def _heads(rows: pa.RecordBatch, numbers: Integers, place: int, column: pa.Array) -> pa.RecordBatch:
    """Some of the rows with another column in this place; what it replaces is large, and not taken."""
    taken = pa.array(numbers)
    columns = [column if at == place else rows.column(at).take(taken) for at in range(rows.num_columns)]
    return pa.RecordBatch.from_arrays(columns, rows.schema.names)


def _is_good(given: _Rows, row: int) -> bool:
    try:
        _event(given, row)
    except BadEvent:
        return False
    return True


def _map_entries(column: pa.MapArray, shards: int) -> Entries:
    """Cuts maps: for a shard, the numbers of the rows that have entries for it, and these."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    keys, items = column.keys.slice(first, count), column.items.slice(first, count)
    row = np.repeat(np.arange(len(column)), np.diff(offsets))
    shard = partition_of(keys, shards)
    # All are put in order at once: to take them shard by shard costs half as much again.
    order = np.argsort(shard.astype(np.uint16), kind="stable")
    taken = pa.array(order)
    keys, items, row = keys.take(taken), items.take(taken), row[order]
    bounds = np.searchsorted(shard[order], np.arange(shards + 1))

    def cut(number: int) -> tuple[Integers, pa.Array]:
        begin, count = int(bounds[number]), int(bounds[number + 1] - bounds[number])
        own = row[begin : begin + count]
        begins = np.flatnonzero(np.diff(own, prepend=-1))
        ends = pa.array(np.append(begins, count), pa.int32())
        return own[begins], pa.MapArray.from_arrays(ends, keys.slice(begin, count), items.slice(begin, count))

    return cut


def _struct_entries(column: pa.StructArray, shards: int) -> Entries:
    """The same of structs, a field a key; null is no entry."""
    names = [column.type.field(number).name for number in range(column.type.num_fields)]
    members, homes = column.flatten(), partition_of(pa.array(names, pa.string()), shards)

    def cut(number: int) -> tuple[Integers, pa.Array]:
        own = np.flatnonzero(homes == number).tolist()
        there = np.zeros(len(column), dtype=np.bool_)
        for place in own:
            there |= members[place].is_valid().to_numpy(zero_copy_only=False)
        some = [members[place].filter(pa.array(there)) for place in own]
        here = np.flatnonzero(there)
        if not len(here):
            return here, column.slice(0, 0)
        return here, pa.StructArray.from_arrays(some, [names[place] for place in own])

    return cut


def _compact(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows without the dictionaries that have more names than they have rows."""
    for place, column in enumerate(rows.columns):
        if pa.types.is_dictionary(column.type) and len(column.dictionary) > len(column):
            rows = rows.set_column(place, rows.schema.names[place], column.dictionary_decode())
    return rows
