"""What leaves the live job: decisions one by one or packed, dead letters one by one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns.byte_strings import Integers
from streaming.columns.outputs import Decided, DecisionRows, Outputs
from streaming.columns.packed import CONTENT_TYPE, HEADER, pack
from streaming.contract.decisions import DEADLETTER
from streaming.contract.topics import Topics
from streaming.job.spark.arrow_serializer import Columns
from streaming.laws.law import DecisionForm
from streaming.laws.name_hashes import partition_of
from streaming.laws.registry import LAWS

_PARTITION: Final = 3
"""Of the columns of `schemas.OUTPUT`."""
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NEVER: Final = 2**62
"""So many decisions are never there at once."""
_PACKED: Final = pa.scalar([{"key": HEADER, "value": CONTENT_TYPE.encode()}], _HEADERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackRule:
    """How decisions leave, packed or one by one.

    Attributes:
        least: decisions of one type for one partition that leave packed; fewer leave one by one.
        partitions: of the topic of decisions.
    """

    least: int
    partitions: int


def output_columns(outputs: Outputs, topics: Topics, packing: PackRule | None) -> Columns:
    """Outputs with the columns of `schemas.OUTPUT`."""
    if packing is None:
        return _singly(outputs, topics)
    parts = [_singly(Outputs(letters=outputs.letters), topics)] if outputs.letters else []
    for decided in outputs.columns:
        if isinstance(decided, DecisionRows) and len(decided) >= packing.least:
            parts += _packed(decided, topics, packing)
        else:
            parts.append(_decisions_singly(decided, topics, packing))
    joined = zip(*parts, strict=True)
    return parts[0] if len(parts) == 1 else [pa.concat_arrays(columns) for columns in joined]


def _decisions_singly(decided: Decided, topics: Topics, packing: PackRule) -> Columns:
    columns = _singly(Outputs(columns=[decided]), topics)
    # As packed ones have it: the sink would count partitions that were added since the start.
    columns[_PARTITION] = pa.array(_partitions(decided, packing.partitions), pa.int32())
    return columns


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
        values = list(pack(decided.type, rows, small=bool(receiver)))
        key = str(rows[receiver][0].as_py()).encode() if receiver else b""
        yield [
            pa.repeat(pa.scalar(topics.decisions), len(values)),
            pa.repeat(pa.scalar(key), len(values)),
            pa.array(values, pa.binary()),
            pa.repeat(pa.scalar(partition, pa.int32()), len(values)),
            pa.repeat(_PACKED, len(values)),
        ]
    if few:
        # Of all receivers at once: written one after the other a few rows cost as much as thousands.
        yield _decisions_singly(decided.take(np.concatenate(few)), topics, packing)


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
