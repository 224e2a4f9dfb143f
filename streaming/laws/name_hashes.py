"""Hashes of names: to which shard and which Kafka partition each belongs."""

from typing import Final

import numpy as np
import pyarrow as pa

from streaming.columns.byte_strings import Bytes, Integers, bytes_in
from streaming.columns.compiled import inner, lean

_MASK: Final = 0xFFFFFFFF
_MULTIPLIER: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_POSITIVE: Final = 0x7FFFFFFF
"""As Kafka's clients take the sign away."""


def partition_of(keys: pa.Array, partitions: int) -> Integers:
    """The partition into which Kafka's clients put records with these keys, by murmur2 (KIP-480).

    Shards are found by it too, so that a packed record of one partition is of one shard where the number of
    partitions is a multiple of that of shards.

    Args:
        keys: text or binary without nulls.
        partitions: of the topic, or shards.
    """
    text, ends = bytes_in(keys)
    out = np.empty(len(keys), dtype=np.int64)
    _murmur2_all(text, ends, out)
    return out % partitions


def shard_of(routing_key: str, shards: int) -> int:
    """Number of the shard that keeps a routing key: as `partition_of`."""
    text = np.frombuffer(routing_key.encode(), dtype=np.uint8)
    return int(_murmur2(text, 0, len(text)) & _POSITIVE) % shards


@lean
def _murmur2_all(text: Bytes, ends: Integers, out: Integers) -> None:
    for number in range(len(out)):
        out[number] = _murmur2(text, ends[number], ends[number + 1]) & _POSITIVE


@lean
def _murmur2(text: Bytes, first: int, end: int) -> int:
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
    return mixed ^ (mixed >> 15)


@inner
def _times(value: int) -> int:
    """Product with the multiplier, in 32 bits. In halves: nothing overflows 64 bits, compiled or not."""
    low = (value & 0xFFFF) * _MULTIPLIER
    high = ((value >> 16) * _MULTIPLIER) & 0xFFFF
    return int((low + (high << 16)) & _MASK)
