"""Plain JSON, byte by byte: the small pieces that the compiled readers are made of.

Plain are texts in ASCII without escapes and whole numbers of at most 18 digits without sign, exponent or
leading zero. What is not plain may be good JSON all the same: the contract's parser says.
"""

from typing import Final, NamedTuple

import numpy as np

from streaming.columns.byte_strings import NOWHERE, Bytes, Integers, after_word, bytes_of
from streaming.columns.compiled import lean

DIGITS_MAX: Final = 18
"""Every number of so many digits fits into 64 bits."""

QUOTE, COMMA, OPEN, CLOSE = (np.uint8(ord(sign)) for sign in '",{}')
_COLON, _ZERO, _NINE = (np.uint8(ord(sign)) for sign in ":09")
TRUE, FALSE = bytes_of("true"), bytes_of("false")
_NULL = bytes_of("null")
_PLAIN = np.array([32 <= byte < 127 and chr(byte) not in '"\\' for byte in range(256)])


class Keys(NamedTuple):
    """Known keys, each found by its length and first letter; `keys_of` makes it.

    Attributes:
        text: all of them, one after the other.
        ends: where each begins, and where the last one ends.
        at: number of the key by 32 times its length plus the low five bits of its first letter, or NOWHERE.
    """

    text: Bytes
    ends: Integers
    at: Integers


def keys_of(*words: str) -> Keys:
    """Keys of which no two share length and first letter; each has its place as its number."""
    at = np.full((max(map(len, words)) + 1) * 32, NOWHERE)
    # Bits 0 to 4 tell lower-case letters apart.
    at[[len(word) * 32 + (ord(word[0]) & 31) for word in words]] = np.arange(len(words))
    assert np.count_nonzero(at >= 0) == len(words)
    return Keys(text=bytes_of("".join(words)), ends=np.cumsum([0, *map(len, words)]), at=at)


@lean
def key_number(keys: Keys, text: Bytes, at: int, end: int) -> int:
    """Number of a known key, NOWHERE for any other."""
    length = end - at
    if length == 0 or length * 32 >= len(keys.at):
        return NOWHERE
    key = keys.at[length * 32 + np.int64(text[at] & 31)]
    if key >= 0:
        first = keys.ends[key]
        word, name = text[at:end], keys.text[first : first + length]
        for offset in range(length):
            if word[offset] != name[offset]:
                return NOWHERE
    return int(key)


@lean
def blank(text: Bytes, at: int, end: int) -> int:
    """Position after white space."""
    while at < end and (text[at] == 32 or text[at] == 10 or text[at] == 13 or text[at] == 9):
        at += 1
    return at


@lean
def after_colon(text: Bytes, at: int, end: int) -> int:
    """Where the value begins whose key ended at `at`; NOWHERE: there is none."""
    at = blank(text, at, end)
    if at == end or text[at] != _COLON:
        return NOWHERE
    return blank(text, at + 1, end)


@lean
def next_key(text: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """After the brace or comma at `at`: where a key begins and ends and where its value begins, which is
    NOWHERE if there is no plain key.
    """
    begin = blank(text, at + 1, end) + 1
    if begin > end or text[begin - 1] != QUOTE:
        return begin, begin, NOWHERE
    close = text_end(text, begin, end)
    if close < 0:
        return begin, begin, NOWHERE
    return begin, close, after_colon(text, close + 1, end)


@lean
def after_value(text: Bytes, at: int, end: int) -> int:
    """Where the comma or brace stands after a value that ended at `at`; NOWHERE: neither follows, or there
    was no value.
    """
    if at < 0:
        return NOWHERE
    at = blank(text, at, end)
    return at if at < end and (text[at] == COMMA or text[at] == CLOSE) else NOWHERE


@lean
def text_end(text: Bytes, at: int, end: int) -> int:
    """Where the closing quote of a plain text stands that begins at `at`, or NOWHERE."""
    rest = text[at:end]
    for offset in range(len(rest)):
        if not _PLAIN[rest[offset]]:
            return at + offset if rest[offset] == QUOTE else NOWHERE
    return NOWHERE


@lean
def whole_number(text: Bytes, at: int, end: int) -> tuple[int, int]:
    """A plain number and the position after it, or NOWHERE. What follows it is seen by who goes on."""
    value = 0
    first = at
    while 0 <= at < end and _ZERO <= text[at] <= _NINE and at - first < DIGITS_MAX:
        value = int(value * 10 + np.int64(text[at]) - 48)
        at += 1
    if at <= first or (at - first > 1 and text[first] == _ZERO):
        return 0, NOWHERE
    return value, at


@lean
def scalar(text: Bytes, at: int, end: int) -> int:
    """Position after a value that nobody asks for, or NOWHERE."""
    if at < end and text[at] == QUOTE:
        close = text_end(text, at + 1, end)
        return close + 1 if close >= 0 else NOWHERE
    _, after = whole_number(text, at, end)
    if after < 0:
        after = after_word(text, at, end, TRUE)
    if after < 0:
        after = after_word(text, at, end, FALSE)
    return after if after >= 0 else after_word(text, at, end, _NULL)
