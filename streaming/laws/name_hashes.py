"""Hashes of many names at once: to which shard and which Kafka partition each belongs."""

import zlib
from typing import Final

import numpy as np
import pyarrow as pa

from streaming.columns.byte_strings import Bytes, Integers, bytes_in
from streaming.columns.compiled import lean

_CRC: Final = np.array([zlib.crc32(bytes([byte])) for byte in range(256)], dtype=np.int64)
"""CRC-32 of each single byte; that of a text follows from these."""
_CRC_STEP: Final = _CRC ^ _CRC[0]
_MASK: Final = 0xFFFFFFFF
_MULTIPLIER: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C


def crc32_of(names: pa.Array) -> Integers:
    """CRC-32 of the UTF-8 of each name, as zlib and Spark have it; names are text without nulls."""
    text, ends = bytes_in(names)
    out = np.empty(len(names), dtype=np.int64)
    _crc32(text, ends, _CRC_STEP, out)
    return out


def partition_of(keys: pa.Array, partitions: int) -> Integers:
    """The partition into which Kafka's clients put records with these keys, by murmur2 (KIP-480).

    Args:
        keys: text without nulls, none of them empty.
        partitions: of the topic.
    """
    text, ends = bytes_in(keys)
    out = np.empty(len(keys), dtype=np.int64)
    _murmur2(text, ends, out)
    return (out & 0x7FFFFFFF) % partitions


@lean
def _crc32(text: Bytes, ends: Integers, step: Integers, out: Integers) -> None:
    for number in range(len(out)):
        crc = np.int64(_MASK)
        for at in range(ends[number], ends[number + 1]):
            crc = step[(crc ^ text[at]) & 0xFF] ^ (crc >> 8)
        out[number] = crc ^ _MASK


@lean
def _murmur2(text: Bytes, ends: Integers, out: Integers) -> None:
    for number in range(len(out)):
        first, end = ends[number], ends[number + 1]
        mixed = int(_SEED ^ (end - first))
        while end - first >= 4:
            word = 0
            for place in range(4):
                word |= int(text[first + place]) << (8 * place)
            word = _times(word)
            mixed = _times(mixed) ^ _times(word ^ (word >> 24))
            first += 4
        for place in range(end - first - 1, -1, -1):
            mixed ^= int(text[first + place]) << (8 * place)
        if end > first:
            mixed = _times(mixed)
        mixed = _times(mixed ^ (mixed >> 13))
        out[number] = mixed ^ (mixed >> 15)


@lean
def _times(value: int) -> int:
    """Product with the multiplier, in 32 bits. In halves: nothing overflows 64 bits, compiled or not."""
    low = (value & 0xFFFF) * _MULTIPLIER
    high = ((value >> 16) * _MULTIPLIER) & 0xFFFF
    return int((low + (high << 16)) & _MASK)
