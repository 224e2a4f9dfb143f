"""Packed records cut up: to each shard the rows whose events must be seen in order there."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns.byte_strings import Integers
from streaming.columns.json_rows import NO_NULLS, NULLS, objects
from streaming.columns.packed import TYPE, stream, unpack
from streaming.contract.errors import BadEvent
from streaming.contract.events import MAX_AHEAD_MS, Event
from streaming.laws.law import LawSpec
from streaming.laws.name_hashes import crc32_of
from streaming.laws.registry import LAWS
from streaming.laws.routing import shard_of

ROW: Final = "weir.row"
"""Last column of a part: the number of each row in the record that it was cut from."""


Entries = Callable[[int], tuple[Integers, pa.Array]]
"""(shard) -> numbers of the rows that have entries for it, and the column with these entries alone."""


class Origin(NamedTuple):
    """Where rows come from.

    Attributes:
        type: of all of them.
        name: id of their record, `<topic>-<partition>-<offset>`.
        ts: its timestamp, ms.
        max_ahead_ms: how far an event may lie after that.
    """

    type: str
    name: str
    ts: int
    max_ahead_ms: int


class Part(NamedTuple):
    """Some rows of a packed record, or the record as it came.

    Attributes:
        law: that decides them.
        shard: number of its shard.
        value: `packed.stream` of the rows with their numbers, or the record's bytes.
        cut: which of the two.
    """

    law: str
    shard: int
    value: bytes
    cut: bool


def parts(
    value: pa.Buffer, *, name: str, ts: int, shards: int, max_ahead_ms: int = MAX_AHEAD_MS
) -> Iterator[Part]:
    """The parts of a packed record; one that cannot be used goes whole to a shard that says so.

    Args:
        value: the record's bytes.
        name: its id, `<topic>-<partition>-<offset>`.
        ts: its timestamp, ms.
        shards: per law.
        max_ahead_ms: how far an event may lie after that; beyond, it cannot be used.
    """
    try:
        law = law_of(_type_of(value))
        if shards == 1:
            # That shard unpacks it.
            yield Part(law.name, 0, value.to_pybytes(), False)
            return
        type, rows = unpack(value)
    except BadEvent:
        yield Part(LAWS.reporting.name, shard_of(name, shards), value.to_pybytes(), False)
        return
    if ROW in rows.schema.names:
        rows = rows.drop_columns(ROW)
    for shard, some, number in _by_shard(law, rows, Origin(type, name, ts, max_ahead_ms), shards):
        yield Part(law.name, shard, stream(type, some.append_column(ROW, pa.array(number))), True)


def law_of(type: str) -> LawSpec:
    """The law that decides events of a type, else the one that reports what is wrong."""
    return next((law for law in LAWS.by_name.values() if type in law.readers), LAWS.reporting)


def _type_of(value: pa.Buffer) -> str:
    try:
        with pa.ipc.open_stream(value) as reader:
            return str((reader.schema.metadata or {})[TYPE].decode())
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
        raise BadEvent(str(error)) from error


def _by_shard(
    law: LawSpec, rows: pa.RecordBatch, record: Origin, shards: int
) -> Iterator[tuple[int, pa.RecordBatch, Integers]]:
    """(shard, its rows, their numbers), by shard."""
    place = rows.schema.get_field_index(law.key_column)
    column = rows.column(place) if place >= 0 else pa.nulls(rows.num_rows)
    if pa.types.is_map(column.type) or pa.types.is_struct(column.type):
        yield from _entries_by_shard(law, rows, place, record, shards)
        return
    shard = _shards_of(law, rows, column, record, shards)
    order = np.argsort(shard.astype(np.uint16), kind="stable")
    sorted_rows = rows.take(pa.array(order))
    ends = np.searchsorted(shard[order], np.arange(shards + 1))
    for number in range(shards):
        begin, count = int(ends[number]), int(ends[number + 1] - ends[number])
        if count:
            yield number, _compact(sorted_rows.slice(begin, count)), order[begin : begin + count]


def _shards_of(
    law: LawSpec, rows: pa.RecordBatch, keys: pa.Array, record: Origin, shards: int
) -> Integers:
    """The shard of each row by its routing key; where the column does not say it, by the whole event."""
    shard = np.empty(rows.num_rows, dtype=np.int64)
    said = np.zeros(rows.num_rows, dtype=np.bool_)
    if pa.types.is_dictionary(keys.type):
        keys = keys.dictionary_decode() if keys.dictionary.null_count else keys
    if pa.types.is_dictionary(keys.type) or pa.types.is_string(keys.type):
        said = pc.greater(pc.binary_length(_text(keys)), 0).fill_null(False).to_numpy(zero_copy_only=False)
        if pa.types.is_dictionary(keys.type):
            of_name = crc32_of(keys.dictionary) % shards
            shard[said] = of_name[keys.indices.filter(pa.array(said)).to_numpy()]
        else:
            shard[said] = crc32_of(keys if said.all() else keys.filter(pa.array(said))) % shards
    for i in np.flatnonzero(~said).tolist():
        shard[i] = shard_of(_routing_key(law, rows, i, record), shards)
    return shard


def _text(keys: pa.Array) -> pa.Array:
    return keys.dictionary_decode() if pa.types.is_dictionary(keys.type) else keys


def _routing_key(law: LawSpec, rows: pa.RecordBatch, row: int, record: Origin) -> str:
    """The routing key of one row; its id if it cannot be used."""
    try:
        return law.routing_key(_event(rows, row, record), None)
    except BadEvent:
        return f"{record.name}/{row}"


def _event(rows: pa.RecordBatch, row: int, record: Origin) -> Event:
    """The event of one row.

    Raises:
        BadEvent: it cannot be used.
    """
    value = bytes(objects(record.type, rows.slice(row, 1), NULLS.get(record.type, NO_NULLS))[0].as_py())
    return LAWS.parse(
        value, default_id=f"{record.name}/{row}", default_ts=record.ts, max_ahead_ms=record.max_ahead_ms
    )


def _entries_by_shard(
    law: LawSpec, rows: pa.RecordBatch, place: int, record: Origin, shards: int
) -> Iterator[tuple[int, pa.RecordBatch, Integers]]:
    """As `_by_shard`, of rows with an object whose keys are routing keys: each shard gets its own entries.

    A row that cannot be used, in any of its entries, stays whole; one without entries is nobody's.
    """
    plain = np.zeros(rows.num_rows, dtype=np.bool_)
    if law.plain is not None:
        plain = law.plain(rows, np.full(rows.num_rows, record.ts), record.max_ahead_ms)
    whole = [i for i in np.flatnonzero(~plain).tolist() if not _is_good(rows, i, record)]
    home = np.array([shard_of(f"{record.name}/{i}", shards) for i in whole], dtype=np.int64)
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


def _is_good(rows: pa.RecordBatch, row: int, record: Origin) -> bool:
    try:
        _event(rows, row, record)
    except BadEvent:
        return False
    return True


def _map_entries(column: pa.MapArray, shards: int) -> Entries:
    """Cuts maps: for a shard, the numbers of the rows that have entries for it, and these."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    keys, items = column.keys.slice(first, count), column.items.slice(first, count)
    row = np.repeat(np.arange(len(column)), np.diff(offsets))
    shard = crc32_of(keys) % shards
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
    members = column.flatten()

    def cut(number: int) -> tuple[Integers, pa.Array]:
        own = [place for place, name in enumerate(names) if shard_of(name, shards) == number]
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
