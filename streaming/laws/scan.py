"""A compiled reader of plain requests: what proxies write, at the speed of memory.

It is an accelerator and no second parser: `contract.events.parse` alone says what an event is. A record is
*plain* when this reader is sure that `parse` takes it and what it gives; all others go through `parse`. So a
rule that is missing here costs time only. tests/unit/test_scan.py holds both equal.

Plain is: a request whose known keys stand at the top, each at most once; whole numbers of at most 18 digits
without sign, exponent or leading zero; ASCII text without escapes; items that hold `name` and `mutations`
only; unknown keys with such texts, numbers, true, false or null; a subject in its canonical form. White space
is allowed wherever JSON allows it.
"""

from typing import Final

import numpy as np

from streaming.contract.events import ANONYMOUS
from streaming.contract.fields import TS_MAX_MS
from streaming.laws.compiled import lean
from streaming.laws.records import Records
from streaming.laws.requests import (
    ANSWERED,
    DRY,
    ID,
    LATE,
    REJECT_LATE,
    STAMPED,
    STRICT,
    SUBJECT,
    TAKEN,
    USER,
    Requests,
    empty,
)
from streaming.laws.texts import NOWHERE, Bytes, Integers, after_word, bytes_of, is_canonical

DIGITS_MAX: Final = 18
"""Every number of so many digits fits into 64 bits."""

_QUOTE, _BACKSLASH, _COMMA, _COLON = (np.uint8(ord(sign)) for sign in '"\\,:')
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = (np.uint8(ord(sign)) for sign in "{}[]")
_ZERO, _NINE = np.uint8(ord("0")), np.uint8(ord("9"))

# The order gives each key its number: texts first, in the order of their columns, then numbers, then flags.
_TS, _APPLIED_TS, _DEADLINE_MS, _V, _STRICT, _DRY, _LATE, _TYPE, _ON_LATE, _ANSWERED, _ITEMS = range(5, 16)
_KEYS: Final = (
    "id", "proxy", "user", "client_id", "subject", "ts", "applied_ts", "deadline_ms", "v", "strict",
    "validate_only", "late", "type", "on_late", "answered", "items",
)  # fmt: skip
_KEY_BYTES = bytes_of("".join(_KEYS))
_KEY_FIRST = np.cumsum([0] + [len(key) for key in _KEYS])
_KEY_MAX: Final = max(len(key) for key in _KEYS)
# No two keys share length and first letter (bits 0 to 4 tell lower-case letters apart).
_KEY_AT = np.full((_KEY_MAX + 1) * 32, NOWHERE)
_KEY_AT[[len(key) * 32 + (ord(key[0]) & 31) for key in _KEYS]] = np.arange(len(_KEYS))
assert np.count_nonzero(_KEY_AT >= 0) == len(_KEYS)

_TRUE, _FALSE, _NULL = bytes_of("true"), bytes_of("false"), bytes_of("null")
_REQUEST, _ALLOW, _REJECT = bytes_of('"request"'), bytes_of('"allow"'), bytes_of('"reject"')
_NOT_BEFORE = bytes_of('"not_before"')
_NAME, _MUTATIONS = bytes_of('"name"'), bytes_of('"mutations"')
_PLAIN = np.array([32 <= byte < 127 and chr(byte) not in '"\\' for byte in range(256)])
_ANONYMOUS_BYTES: Final = len(ANONYMOUS)
_FLAG_OF_KEY = np.array([STRICT, DRY, LATE])


def scanned(records: Records) -> Requests:
    """Columns with a row a record, in which the plain requests stand."""
    times = records.times()
    requests = empty(len(records), int(records.sizes().sum()))
    for first, text, ends in records.texts():
        scan(text, ends, times, first, requests)
    if records.broadcast is not None:
        # A request that every shard got came by the wrong topic, which the slow path says.
        requests.flags[np.asarray(records.broadcast, dtype=np.bool_)] = 0
    return requests


@lean
def scan(text: Bytes, ends: Integers, times: Integers, base: int, requests: Requests) -> None:
    """Read the plain ones of some records into the rows from `base` on; rows of others stay without TAKEN.

    Args:
        text: the records' bytes, one after the other.
        ends: where each begins in `text`, and where the last one ends.
        times: timestamps of all records, ms; -1: none.
        base: row of the first.
        requests: out.
    """
    for number in range(len(ends) - 1):
        i = base + number
        kept, items = requests.used[0], requests.used[1]
        requests.flags[i] = STRICT
        if _request(text, ends[number], ends[number + 1], i, times[i], requests):
            requests.flags[i] |= TAKEN
        else:
            requests.flags[i] = 0
            requests.used[0], requests.used[1] = kept, items


@lean
def _request(text: Bytes, at: int, end: int, i: int, default_ts: int, requests: Requests) -> bool:
    at = _blank(text, at, end)
    if at == end or text[at] != _OPEN:
        return False
    seen = 0
    while True:
        at = _blank(text, at + 1, end)
        if at == end or text[at] != _QUOTE:
            return False
        close = _text_end(text, at + 1, end)
        if close < 0:
            return False
        key = _key(text, at + 1, close)
        at = _after_colon(text, close + 1, end)
        if at < 0:
            return False
        if key < 0:
            at = _scalar(text, at, end)
        else:
            if seen >> key & 1:
                return False
            seen |= 1 << key
            at = _known(text, at, end, key, i, requests)
        if at < 0:
            return False
        at = _blank(text, at, end)
        if at == end:
            return False
        if text[at] == _CLOSE:
            break
        if text[at] != _COMMA:
            return False
    return _blank(text, at + 1, end) == end and _complete(seen, i, default_ts, requests)


@lean
def _complete(seen: int, i: int, default_ts: int, requests: Requests) -> bool:
    """Fill in what the record does not say; False: it does not say enough."""
    if not (seen >> _TYPE & 1 and seen >> _ITEMS & 1):
        return False
    if not seen >> _TS & 1:
        requests.ts[i] = default_ts
        if default_ts < 0:
            return False
    if not (seen >> _APPLIED_TS & 1 and requests.at[i] > requests.ts[i]):
        requests.at[i] = requests.ts[i]
    if not seen >> _DEADLINE_MS & 1:
        requests.deadline_ms[i] = -1
    for column in range(ID, SUBJECT + 1):
        if not seen >> column & 1:
            requests.start[i, column] = 0
            requests.length[i, column] = 0
    if not seen >> ID & 1:
        requests.length[i, ID] = -1
    if not seen >> USER & 1:
        requests.length[i, USER] = _ANONYMOUS_BYTES
    if seen >> SUBJECT & 1:
        requests.flags[i] |= STAMPED
    return True


@lean
def _known(text: Bytes, at: int, end: int, key: int, i: int, requests: Requests) -> int:
    """Read the value of a known key into row `i`; position after it, or NOWHERE."""
    if key <= SUBJECT:
        if at == end or text[at] != _QUOTE:
            return NOWHERE
        close = _text_end(text, at + 1, end)
        if close < 0 or (key == SUBJECT and not is_canonical(text, at + 1, close)):
            return NOWHERE
        requests.start[i, key] = _keep(text, at + 1, close, requests)
        requests.length[i, key] = close - at - 1
        return close + 1
    if key <= _V:
        return _known_number(text, at, end, key, i, requests)
    if key <= _LATE:
        flag = _FLAG_OF_KEY[key - _STRICT]
        after = after_word(text, at, end, _TRUE)
        if after >= 0:
            requests.flags[i] |= flag
            return after
        requests.flags[i] &= ~flag
        return after_word(text, at, end, _FALSE)
    if key == _ITEMS:
        return _items(text, at, end, i, requests)
    if key == _TYPE:
        return after_word(text, at, end, _REQUEST)
    if key == _ANSWERED:
        requests.flags[i] |= ANSWERED
        return after_word(text, at, end, _NOT_BEFORE)
    after = after_word(text, at, end, _REJECT)
    if after >= 0:
        requests.flags[i] |= REJECT_LATE
        return after
    return after_word(text, at, end, _ALLOW)


@lean
def _known_number(text: Bytes, at: int, end: int, key: int, i: int, requests: Requests) -> int:
    value, at = _number(text, at, end)
    if key == _V:
        return at if value == 1 else NOWHERE
    if key == _DEADLINE_MS:
        requests.deadline_ms[i] = value
        return at
    if value > TS_MAX_MS:
        return NOWHERE
    if key == _TS:
        requests.ts[i] = value
    else:
        requests.at[i] = value
    return at


@lean
def _items(text: Bytes, at: int, end: int, i: int, requests: Requests) -> int:
    """Read a list of items; position after it, or NOWHERE."""
    if at == end or text[at] != _OPEN_LIST:
        return NOWHERE
    first = number = requests.used[1]
    at = _blank(text, at + 1, end)
    if at < end and text[at] == _CLOSE_LIST:
        at += 1
    else:
        while True:
            at = _item(text, at, end, number, requests)
            if at < 0:
                return NOWHERE
            number += 1
            at = _blank(text, at, end)
            if at == end or (text[at] != _COMMA and text[at] != _CLOSE_LIST):
                return NOWHERE
            at += 1
            if text[at - 1] == _CLOSE_LIST:
                break
            at = _blank(text, at, end)
    requests.first[i], requests.items[i], requests.used[1] = first, number - first, number
    return at


@lean
def _item(text: Bytes, at: int, end: int, number: int, requests: Requests) -> int:
    """Read one item, its two keys in either order; position after it, or NOWHERE."""
    if at == end or text[at] != _OPEN:
        return NOWHERE
    named = counted = False
    while not (named and counted):
        at = _blank(text, at + 1, end)
        after = after_word(text, at, end, _NAME)
        if after >= 0 and not named:
            named = True
            at = _after_colon(text, after, end)
            if at < 0 or at == end or text[at] != _QUOTE:
                return NOWHERE
            close = _text_end(text, at + 1, end)
            if close < 0:
                return NOWHERE
            requests.item_start[number] = _keep(text, at + 1, close, requests)
            requests.item_length[number] = close - at - 1
            at = close + 1
        else:
            after = after_word(text, at, end, _MUTATIONS)
            if after < 0 or counted:
                return NOWHERE
            counted = True
            value, at = _number(text, _after_colon(text, after, end), end)
            requests.mutations[number] = value
        if at < 0:
            return NOWHERE
        at = _blank(text, at, end)
        if at == end or text[at] != (_CLOSE if named and counted else _COMMA):
            return NOWHERE
    return at + 1


@lean
def _keep(text: Bytes, at: int, end: int, requests: Requests) -> int:
    """Copy a text to those that are kept; where it stands there."""
    start, piece = requests.used[0], text[at:end]
    room = requests.kept[start : start + len(piece)]
    for offset in range(len(piece)):
        room[offset] = piece[offset]
    requests.used[0] = start + len(piece)
    return int(start)


@lean
def _blank(text: Bytes, at: int, end: int) -> int:
    """Position after white space."""
    while at < end and (text[at] == 32 or text[at] == 10 or text[at] == 13 or text[at] == 9):
        at += 1
    return at


@lean
def _after_colon(text: Bytes, at: int, end: int) -> int:
    """Where the value begins whose key ended at `at`; NOWHERE: there is none."""
    at = _blank(text, at, end)
    if at == end or text[at] != _COLON:
        return NOWHERE
    return _blank(text, at + 1, end)


@lean
def _text_end(text: Bytes, at: int, end: int) -> int:
    """Where the closing quote of a plain text stands that begins at `at`, or NOWHERE."""
    rest = text[at:end]
    for offset in range(len(rest)):
        if not _PLAIN[rest[offset]]:
            return at + offset if rest[offset] == _QUOTE else NOWHERE
    return NOWHERE


@lean
def _key(text: Bytes, at: int, end: int) -> int:
    """Number of a known key, NOWHERE for any other."""
    length = end - at
    if length == 0 or length > _KEY_MAX:
        return NOWHERE
    key = _KEY_AT[length * 32 + np.int64(text[at] & 31)]
    if key >= 0:
        first = _KEY_FIRST[key]
        word, name = text[at:end], _KEY_BYTES[first : first + length]
        for offset in range(length):
            if word[offset] != name[offset]:
                return NOWHERE
    return int(key)


@lean
def _number(text: Bytes, at: int, end: int) -> tuple[int, int]:
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
def _scalar(text: Bytes, at: int, end: int) -> int:
    """Position after a value that nobody asks for, or NOWHERE."""
    if at < end and text[at] == _QUOTE:
        close = _text_end(text, at + 1, end)
        return close + 1 if close >= 0 else NOWHERE
    _, after = _number(text, at, end)
    if after < 0:
        after = after_word(text, at, end, _TRUE)
    if after < 0:
        after = after_word(text, at, end, _FALSE)
    return after if after >= 0 else after_word(text, at, end, _NULL)
