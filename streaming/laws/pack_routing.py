"""Packed records cut up: to each shard the rows whose events must be seen in order there."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns.byte_strings import Integers
from streaming.columns.json_rows import NO_NULLS, NULLS, objects
from streaming.columns.name_hashes import crc32_of
from streaming.columns.packed import TYPE, stream, unpack
from streaming.contract.errors import BadEvent
from streaming.contract.events import Event
from streaming.laws.law import LawSpec
from streaming.laws.registry import LAWS
from streaming.laws.routing import shard_of

ROW: Final = "weir.row"
"""Last column of a part: the number of each row in the record that it was cut from."""


Entries = Callable[[int], tuple[Integers, pa.Array]]
"""(shard) -> numbers of the rows that have entries for it, and the column with these entries alone."""


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


def parts(value: pa.Buffer, *, name: str, shards: int) -> Iterator[Part]:
    """The parts of a packed record; one that cannot be used goes whole to a shard that says so.

    Args:
        value: the record's bytes.
        name: its id, `<topic>-<partition>-<offset>`.
        shards: per law.
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
    for shard, some, number in _by_shard(law, type, rows, name, shards):
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
    law: LawSpec, type: str, rows: pa.RecordBatch, name: str, shards: int
) -> Iterator[tuple[int, pa.RecordBatch, Integers]]:
    """(shard, its rows, their numbers), by shard."""
    place = rows.schema.get_field_index(law.key_column)
    column = rows.column(place) if place >= 0 else pa.nulls(rows.num_rows)
    if pa.types.is_map(column.type) or pa.types.is_struct(column.type):
        yield from _entries_by_shard(law, type, rows, place, name, shards)
        return
    shard = _shards_of(law, type, rows, column, name, shards)
    order = np.argsort(shard.astype(np.uint16), kind="stable")
    sorted_rows = rows.take(pa.array(order))
    ends = np.searchsorted(shard[order], np.arange(shards + 1))
    for number in range(shards):
        begin, count = int(ends[number]), int(ends[number + 1] - ends[number])
        if count:
            yield number, _compact(sorted_rows.slice(begin, count)), order[begin : begin + count]


def _shards_of(
    law: LawSpec, type: str, rows: pa.RecordBatch, keys: pa.Array, name: str, shards: int
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
        shard[i] = shard_of(_routing_key(law, type, rows.slice(i, 1), f"{name}/{i}"), shards)
    return shard


def _text(keys: pa.Array) -> pa.Array:
    return keys.dictionary_decode() if pa.types.is_dictionary(keys.type) else keys


def _routing_key(law: LawSpec, type: str, row: pa.RecordBatch, name: str) -> str:
    """The routing key of one row; its id if it cannot be used."""
    try:
        return law.routing_key(_event(type, row, name), None)
    except BadEvent:
        return name


def _event(type: str, row: pa.RecordBatch, name: str) -> Event:
    """The event of one row; its time is looked at where it is decided.

    Raises:
        BadEvent: it cannot be used.
    """
    value = bytes(objects(type, row, NULLS.get(type, NO_NULLS))[0].as_py())
    return LAWS.parse(value, default_id=name, default_ts=0)


def _entries_by_shard(
    law: LawSpec, type: str, rows: pa.RecordBatch, place: int, name: str, shards: int
) -> Iterator[tuple[int, pa.RecordBatch, Integers]]:
    """As `_by_shard`, of rows with an object whose keys are routing keys: each shard gets its own entries.

    A row that cannot be used, in any of its entries, stays whole; one without entries is nobody's.
    """
    whole = [i for i in range(rows.num_rows) if not _is_good(type, rows.slice(i, 1), f"{name}/{i}")]
    home = np.array([shard_of(f"{name}/{i}", shards) for i in whole], dtype=np.int64)
    stays = np.zeros(rows.num_rows, dtype=np.bool_)
    stays[whole] = True
    cut = (_map_entries if pa.types.is_map(rows.column(place).type) else _struct_entries)(
        rows.column(place), shards
    )
    for number in range(shards):
        here, entries = cut(number)
        kept = ~stays[here]
        parts = [(rows.take(pa.array(here[kept])), entries.filter(pa.array(kept)), here[kept])]
        own = np.array(whole, dtype=np.int64)[home == number]
        parts.append((rows.take(pa.array(own)), rows.column(place).take(pa.array(own)), own))
        for some, column, numbers in parts:
            if len(numbers):
                yield number, _compact(some.set_column(place, law.key_column, column)), numbers


def _is_good(type: str, row: pa.RecordBatch, name: str) -> bool:
    try:
        _event(type, row, name)
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

    def cut(number: int) -> tuple[Integers, pa.Array]:
        own = np.flatnonzero(shard == number)
        here, counts = np.unique(row[own], return_counts=True)
        ends = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
        return here, pa.MapArray.from_arrays(ends, keys.take(pa.array(own)), items.take(pa.array(own)))

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
