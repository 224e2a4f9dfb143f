"""What leaves the live job: decisions one by one or packed, dead letters one by one.

Within the size that a broker takes: one that is refused would end the query for ever.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns.byte_strings import Integers
from streaming.columns.outputs import Decided, DecisionRows, Outputs
from streaming.columns.packed import CONTENT_TYPE, HEADER, RECORD_BYTES, pack
from streaming.columns.records import Records
from streaming.contract.decisions import DEADLETTER, RECORD_BYTES_MAX
from streaming.contract.topics import Topics
from streaming.job.spark.arrow_serializer import Columns
from streaming.laws.law import DecisionForm
from streaming.laws.name_hashes import partition_of
from streaming.laws.registry import LAWS
from streaming.laws.shard import letter_of

_PARTITION: Final = 3
"""Of the columns of `schemas.OUTPUT`."""
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
PACK_MIN: Final = 16
"""Decisions of one type for one partition from which on a batch's leave packed."""
NEVER: Final = 2**62
"""So many decisions are never there at once."""
VALUE_BYTES_KEPT: Final = 600_000
"""Base64 makes four bytes of three."""
_PACKED: Final = pa.array([[{"key": HEADER, "value": CONTENT_TYPE.encode()}]], _HEADERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackRule:
    """How decisions leave, packed or one by one.

    Attributes:
        least: decisions of one type for one partition that leave packed; fewer leave one by one.
        partitions: of the topic of decisions.
    """

    least: int
    partitions: int


def output_columns(outputs: Outputs, topics: Topics, packing: PackRule | None) -> Iterator[Columns]:
    """Outputs with the columns of `schemas.OUTPUT`, piece by piece."""
    for piece in Outputs(letters=outputs.letters).pieces():
        yield _singly(piece, topics)
    for decided in outputs.columns:
        if packing is not None and isinstance(decided, DecisionRows) and len(decided) >= packing.least:
            yield from _packed(decided, topics, packing)
        else:
            yield from _decisions_singly(decided, topics, packing)


def _decisions_singly(decided: Decided, topics: Topics, packing: PackRule | None) -> Iterator[Columns]:
    for piece in decided.pieces():
        columns = _singly(Outputs(columns=[piece]), topics)
        if packing is not None:
            # As packed ones have it: the sink would count partitions that were added since the start.
            columns[_PARTITION] = pa.array(_partitions(piece, packing.partitions), pa.int32())
        yield columns


def _singly(outputs: Outputs, topics: Topics) -> Columns:
    dead = pc.equal(outputs.column("sink"), DEADLETTER)
    return [
        pc.if_else(dead, topics.deadletter, topics.decisions),
        outputs.column("key").cast(pa.binary()),
        outputs.column("value").cast(pa.binary()),
        # The sink finds the partition by the key.
        pa.nulls(len(outputs), pa.int32()),
        pa.nulls(len(outputs), _HEADERS),
    ]


def _packed(decided: DecisionRows, topics: Topics, packing: PackRule) -> Iterator[Columns]:
    """The decisions in order of their partitions and receivers: packed where they are enough, then others."""
    receiver = _form(decided).receiver
    few: list[Integers] = []
    for partition, which, rows in _together(decided, receiver, packing.partitions):
        if len(which) < packing.least:
            few.append(which)
            continue
        # What is for one alone is much and comes rarely, and all others' readers fetch it too.
        key = str(rows[receiver][0].as_py()).encode() if receiver else b""
        for value in pack(decided.type, rows, RECORD_BYTES - len(key), small=bool(receiver)):
            yield [
                pa.array([topics.decisions]),
                pa.array([key]),
                pa.array([value]),
                pa.array([partition], pa.int32()),
                _PACKED,
            ]
    if few:
        # Of all receivers at once: written one after the other a few rows cost as much as thousands.
        yield from _decisions_singly(decided.take(np.concatenate(few)), topics, packing)


def _together(
    decided: DecisionRows, receiver: str, partitions: int
) -> Iterator[tuple[int, Integers, pa.RecordBatch]]:
    """Partition, numbers and rows of the decisions of one partition, and for one receiver, in their order."""
    groups = np.zeros(len(decided), dtype=np.int64)
    if partitions > 1:
        groups = _partitions(decided, partitions)
    if receiver:
        of = decided.rows[receiver]
        of = of if pa.types.is_dictionary(of.type) else of.dictionary_encode()
        groups = of.indices.to_numpy().astype(np.int64) * partitions + groups
    if (groups == groups[0]).all():
        yield int(groups[0] % partitions), np.arange(len(decided)), decided.rows
        return
    order = _order(groups)
    # Without the keys, which hardly anybody needs any more.
    rows, ends = decided.rows.take(pa.array(order)), _ends(groups[order])
    for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        which = order[begin:end]
        yield int(groups[which[0]] % partitions), which, rows.slice(begin, end - begin)


def _partitions(decided: Decided, partitions: int) -> Integers:
    """The partition of each decision."""
    routing = _form(decided).routing
    if not routing:
        names = partition_of(decided.keys, partitions)
        return names if decided.key is None else names[decided.key]
    column = decided.rows[routing]
    words = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    found: Integers = partition_of(words.dictionary, partitions)[words.indices.to_numpy()]
    return found


def _form(decided: Decided) -> DecisionForm:
    return LAWS.by_decision[decided.type].decision


def _order(groups: Integers) -> Integers:
    """Where numbers from 0 on stand in ascending order, alike ones in theirs."""
    # Short integers are sorted in linear time, by their digits.
    few = groups.max() < 2**16
    return np.argsort(groups.astype(np.uint16) if few else groups, kind="stable")


def _ends(ascending: Integers) -> Integers:
    """Where each stretch of equal numbers begins, and where the last one ends."""
    return np.concatenate([[0], np.flatnonzero(np.diff(ascending)) + 1, [len(ascending)]])


def limit_record_size(outputs: Outputs, records: Records) -> None:
    """Replace every output that is too large by a dead letter that says so and keeps the record's beginning.

    Args:
        outputs: of one step, changed in place.
        records: that step's input.
    """
    if outputs.surely_within(RECORD_BYTES_MAX):
        return
    for place, letter in enumerate(outputs.letters):
        if len(letter.value) > RECORD_BYTES_MAX:
            shorter = _letter("dead letter", len(letter.value), records, letter.source)
            outputs.letters[place] = letter._replace(value=shorter)
    # The others stay columns: as such they leave packed, and to the partition that their law chooses.
    said, outputs.columns = outputs.columns, []
    for decided in said:
        fits = decided.sizes() <= RECORD_BYTES_MAX
        if fits.all():
            outputs.add(decided)
            continue
        outputs.add(decided.take(np.flatnonzero(fits)))
        large = decided.take(np.flatnonzero(~fits))
        for value, source in zip(large.column("value"), large.source.tolist(), strict=True):
            buried = _letter("decision", len(value.as_buffer()), records, source)
            outputs.add_dead_letter(buried, ts=records.ts_of(source), source=source)


def _letter(what: str, size: int, records: Records, source: int) -> bytes:
    """A dead letter in place of an output about this record that has so many bytes."""
    whole = records.value_of(source)
    kept = whole[:VALUE_BYTES_KEPT]
    reason = (
        f"its {what} has {size} bytes, more than {RECORD_BYTES_MAX}; the first {len(kept)} of the record's"
        f" {len(whole)} bytes are kept"
    )
    return letter_of(records, source, reason, kept)
