"""Cuts plain usage reports into one record a shard, so that each shard reads only groups of its own.

Stretches of bytes are copied; nothing is parsed into objects or written anew. A piece says of its groups what
the record says, with the same head.
"""

import zlib
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming.columns.byte_strings import Bytes, Integers, bytes_in
from streaming.columns.compiled import lean
from streaming.columns.json_scan import COMMA
from streaming.columns.records import too_far_ahead
from streaming.contract.events import MAX_AHEAD_MS
from streaming.laws.law import Split
from streaming.laws.shares.report_json import NOT_PLAIN, Scanned, scan_reports

_BYTE: Final = 256
_MASK: Final = 0xFFFFFFFF


def _table() -> Integers:
    """What CRC-32 does with the low byte of its register, from the known sum of each single byte."""
    singles = np.array([zlib.crc32(bytes([byte])) for byte in range(_BYTE)], dtype=np.int64)
    # A sum begins and ends with all bits turned over; a byte is mixed into the low ones.
    table: Integers = (singles ^ _MASK ^ (_MASK >> 8))[np.arange(_BYTE) ^ 0xFF]
    return table


_CRC = _table()


def split_reports(
    values: pa.Array, times: Integers, shards: int, max_ahead_ms: int = MAX_AHEAD_MS
) -> Split:
    """Cut the plain reports among some records; one without groups gives no part, all others are left.

    Args:
        values: the records, Arrow binary without nulls; pieces of them must stay below 2 GB.
        times: their timestamps, ms; -1: none.
        shards: of the law of shares.
        max_ahead_ms: how far a report may lie after its record's timestamp; those that do are left.
    """
    text, ends = bytes_in(values)
    scanned = scan_reports(text, ends, times)
    scanned.entries[too_far_ahead(scanned.at, times, max_ahead_ms)] = NOT_PLAIN
    left = np.flatnonzero(scanned.entries < 0)
    shard = np.empty(int(scanned.used[0]), dtype=np.int64)
    sizes = np.zeros((len(values), shards), dtype=np.int64)
    _assign(text, scanned, shard, sizes)
    # Of a table nonzero gives columns that lie apart in memory, for which Numba compiles anew.
    record, own = map(np.ascontiguousarray, np.nonzero(sizes))
    around = (scanned.usage[:, 0] - ends[:-1]) + (ends[1:] - scanned.usage[:, 1])
    bounds = np.zeros(len(record) + 1, dtype=np.int64)
    # A comma is counted for every entry, and the last one has none.
    np.cumsum(sizes[record, own] - 1 + around[record], out=bounds[1:])
    places = sizes
    places[record, own] = bounds[:-1]
    data = np.empty(int(bounds[-1]), dtype=np.uint8)
    _copy(text, ends, scanned, shard, record, own, places, data)
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(data)]
    cut = pa.BinaryArray.from_buffers(pa.binary(), len(record), buffers)
    return Split(record=record, shard=own, values=cut, left=left)


@lean
def _assign(text: Bytes, scanned: Scanned, shard: Integers, sizes: NDArray[Any]) -> None:
    """Find each entry's shard, and how many bytes a shard gets of each record."""
    for i in range(len(scanned.entries)):
        for entry in range(scanned.first[i], scanned.first[i] + max(0, scanned.entries[i])):
            own = crc32(text, scanned.name[entry, 0], scanned.name[entry, 1]) % sizes.shape[1]
            shard[entry] = own
            sizes[i, own] += scanned.stretch[entry, 1] - scanned.stretch[entry, 0] + 1


@lean
def _copy(
    text: Bytes, ends: Integers, scanned: Scanned, shard: Integers, record: Integers, own: Integers,
    places: Integers, data: Bytes,
) -> None:  # fmt: skip
    """Write the pieces; `places` says where each begins, and counts on."""
    piece = 0
    for i in range(len(scanned.entries)):
        begun = piece
        while piece < len(record) and record[piece] == i:
            _put(text, ends[i], scanned.usage[i, 0], i, own[piece], places, data)
            piece += 1
        for entry in range(scanned.first[i], scanned.first[i] + max(0, scanned.entries[i])):
            begin, end = scanned.stretch[entry, 0], scanned.stretch[entry, 1]
            _put(text, begin, end, i, shard[entry], places, data)
            data[places[i, shard[entry]]] = COMMA
            places[i, shard[entry]] += 1
        for done in range(begun, piece):
            places[i, own[done]] -= 1
            _put(text, scanned.usage[i, 1], ends[i + 1], i, own[done], places, data)


@lean
def _put(text: Bytes, begin: int, end: int, i: int, own: int, places: Integers, data: Bytes) -> None:
    at = places[i, own]
    stretch, room = text[begin:end], data[at : at + end - begin]
    for offset in range(len(stretch)):
        room[offset] = stretch[offset]
    places[i, own] = at + end - begin


@lean
def crc32(text: Bytes, begin: int, end: int) -> int:
    """CRC-32 of these bytes, as `zlib.crc32` and Spark compute it."""
    register = _MASK
    for position in range(begin, end):
        register = _CRC[(register ^ np.int64(text[position])) & 0xFF] ^ register >> 8
    return int(register ^ _MASK)
