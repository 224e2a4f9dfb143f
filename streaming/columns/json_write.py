"""Small pieces that the compiled writers of JSON are made of.

Doubles are orjson's own: it writes whole arrays of them, and here their digits are copied.
"""

import numpy as np
import orjson
from numpy.typing import NDArray

from streaming.columns.byte_strings import Bytes, Integers
from streaming.columns.compiled import lean

Doubles = NDArray[np.float64]
_COMMA, _CLOSE, _ZERO = (np.uint8(ord(sign)) for sign in ",]0")


def doubles_as_json(values: Doubles) -> Bytes:
    """Doubles as orjson writes them, each followed by one byte."""
    written = np.frombuffer(orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY), dtype=np.uint8)
    return written[1:] if len(values) else written[:0]


@lean
def ends_of(written: Bytes, ends: Integers) -> None:
    """Where each of the doubles that `doubles_as_json` wrote begins, and where one more would."""
    number = 1
    for at in range(len(written)):
        if written[at] == _COMMA or written[at] == _CLOSE:
            ends[number] = at + 1
            number += 1


@lean
def put(text: Bytes, at: int, piece: Bytes) -> int:
    """Write `piece` at `at`; position after it, as for the next three."""
    room = text[at : at + len(piece)]
    for offset in range(len(piece)):
        room[offset] = piece[offset]
    return at + len(piece)


@lean
def put_copy(text: Bytes, at: int, source: Bytes, start: int, length: int) -> int:
    """Copy a stretch of `source`."""
    room, piece = text[at : at + length], source[start : start + length]
    for offset in range(length):
        room[offset] = piece[offset]
    return at + length


@lean
def put_double(text: Bytes, at: int, doubles: Bytes, start: int) -> tuple[int, int]:
    """Copy the double that begins at `start`; position after it, and where the next one begins."""
    while doubles[start] != _COMMA and doubles[start] != _CLOSE:
        text[at] = doubles[start]
        at += 1
        start += 1
    return at, start + 1


@lean
def put_integer(text: Bytes, at: int, value: int) -> int:
    """Write an integer that is not negative."""
    digits = 1
    rest = value // 10
    while rest > 0:
        digits += 1
        rest //= 10
    for place in range(digits):
        text[at + digits - 1 - place] = _ZERO + value % 10
        value //= 10
    return at + digits
