"""Texts as stretches of bytes in one array: compared, found and cut out by compiled code."""

from typing import Final, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming.columns.compiled import inner, lean

Integers = NDArray[np.int64]
Bytes = NDArray[np.uint8]

NOWHERE: Final = -1
"""A position that there is not: what was looked for does not stand there."""

_TEXT: Final = pa.string()
_COMMA, _PERCENT, _EQUALS, _LESS = (np.uint8(ord(sign)) for sign in ",%=<")


def bytes_of(text: str) -> Bytes:
    """A text as an array of its UTF-8."""
    return np.frombuffer(text.encode(), dtype=np.uint8)


USER_IS: Final = bytes_of("user=")
CLIENT_IS: Final = bytes_of("client-id=")


@lean
def after_word(text: Bytes, at: int, end: int, word: Bytes) -> int:
    """Position after `word` if it stands at `at`, or NOWHERE."""
    if at < 0 or end - at < len(word):
        return NOWHERE
    there = text[at : at + len(word)]
    for offset in range(len(word)):
        if there[offset] != word[offset]:
            return NOWHERE
    return at + len(word)


@lean
def is_canonical(text: Bytes, at: int, end: int) -> bool:
    """Whether a subject is surely one that `parse_subject` takes: empty, or names in which nothing is encoded
    but `%`, `,`, `=` and `<`, and these always.
    """
    if at == end:
        return True
    name = after_word(text, at, end, USER_IS)
    if name >= 0:
        at = name_end(text, name, end)
        if at == end:
            return True
        if at < 0:
            return False
        at += 1
    name = after_word(text, at, end, CLIENT_IS)
    return name >= 0 and name_end(text, name, end) == end


@lean
def name_end(text: Bytes, at: int, end: int) -> int:
    """Where an encoded name ends, at a comma or at `end`; NOWHERE: it is in no canonical form."""
    while at < end and text[at] != _COMMA:
        if text[at] == _EQUALS or text[at] == _LESS:
            return NOWHERE
        if text[at] == _PERCENT:
            if at + 2 >= end or not _is_code(text[at + 1], text[at + 2]):
                return NOWHERE
            at += 2
        at += 1
    return at


@inner
def _is_code(high: int, low: int) -> bool:
    """Whether these two digits after a per cent sign stand for `%` 25, `,` 2C, `<` 3C or `=` 3D."""
    return (high == 50 and (low == 53 or low == 67)) or (high == 51 and (low == 67 or low == 68))


class Index(NamedTuple):
    """A hash table of texts.

    Attributes:
        text: all texts, one after the other.
        ends: where each begins, and where the last one ends.
        slots: number of the text that each place of the table holds, -1 for none; a power of two of places,
            at least half of them free.
        seed: of its hashes, of all names: who chooses some, such as collide, cannot know it.
    """

    text: Bytes
    ends: Integers
    slots: NDArray[np.int32]
    seed: int


def index_of(texts: pa.Array) -> Index:
    """An index of Arrow texts that differ from each other."""
    text, ends = bytes_in(texts)
    slots = np.full(1 << max(3, (2 * len(texts)).bit_length()), -1, dtype=np.int32)
    index = Index(text=text, ends=ends, slots=slots, seed=crc32(text.data))
    _fill(index)
    return index


@lean
def _fill(index: Index) -> None:
    for number in range(len(index.ends) - 1):
        begin, end = index.ends[number], index.ends[number + 1]
        place = mixed(index.seed, index.text, begin, end) & (len(index.slots) - 1)
        while index.slots[place] >= 0:
            place = (place + 1) & (len(index.slots) - 1)
        index.slots[place] = number


SEED: Final = 2166136261
"""Hash of the empty text (FNV-1a, 32 bits)."""


@lean
def mixed(seed: int, text: Bytes, at: int, end: int) -> int:
    """Hash of what `seed` is the hash of, followed by these bytes."""
    for position in range(at, end):
        # 32 bits in a 64-bit integer: nothing overflows, so compiled and interpreted agree.
        seed = int(((seed ^ np.int64(text[position])) * 16777619) & 0xFFFFFFFF)
    return seed


@lean
def found(
    index: Index, text: Bytes, at: int, end: int, more: Bytes, more_at: int, more_end: int
) -> int:
    """Number of the text that is made of these two pieces, NOWHERE if the index does not hold it."""
    size = end - at + more_end - more_at
    place = mixed(mixed(index.seed, text, at, end), more, more_at, more_end) & (len(index.slots) - 1)
    while index.slots[place] >= 0:
        number = index.slots[place]
        begin = index.ends[number]
        if (
            index.ends[number + 1] - begin == size
            and same(index.text, begin, text, at, end)
            and same(index.text, begin + end - at, more, more_at, more_end)
        ):
            return int(number)
        place = (place + 1) & (len(index.slots) - 1)
    return NOWHERE


@lean
def same(text: Bytes, at: int, other: Bytes, other_at: int, other_end: int) -> bool:
    """Whether `text` goes on at `at` like the given stretch of `other`; it must be long enough."""
    length = other_end - other_at
    offset = 0
    while offset < length and text[at + offset] == other[other_at + offset]:
        offset += 1
    return offset == length


def cut(text: Bytes, start: Integers, length: Integers, kind: pa.DataType = _TEXT) -> pa.Array:
    """Stretches of `text` as Arrow text, each whole UTF-8, together less than 2 GB; or as large binary."""
    ends = np.zeros(len(start) + 1, dtype=np.int32 if kind == _TEXT else np.int64)
    np.cumsum(length, out=ends[1:])
    data = np.empty(int(ends[-1]), dtype=np.uint8)
    _cut(text, start, length, data)
    return pa.Array.from_buffers(kind, len(start), [None, pa.py_buffer(ends), pa.py_buffer(data)])


@lean
def _cut(text: Bytes, start: Integers, length: Integers, data: Bytes) -> None:
    place = 0
    for number in range(len(start)):
        size = length[number]
        room, piece = data[place : place + size], text[start[number] : start[number] + size]
        for offset in range(size):
            room[offset] = piece[offset]
        place += size


def bytes_in(texts: pa.Array) -> tuple[Bytes, Integers]:
    """The bytes of Arrow text or binary without nulls, and where each begins and the last one ends."""
    _, ends, data = texts.buffers()
    kind = np.int64 if texts.type in (pa.large_binary(), pa.large_string()) else np.int32
    bounds = np.zeros(1, dtype=np.int64)
    if len(texts):
        bounds = np.frombuffer(ends, kind)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    # Read-only whatever Arrow says: Numba compiles anew for arrays that can be written.
    text = np.frombuffer(b"" if data is None else data, dtype=np.uint8)
    text.flags.writeable = False
    return text, bounds
