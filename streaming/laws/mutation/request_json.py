"""A compiled reader of plain requests: what proxies write, at the speed of memory.

It is an accelerator and no second parser: `contract.events.parse` alone says what an event is. A record is
*plain* when this reader is sure that `parse` takes it and what it gives; all others go through `parse`. So a
rule that is missing here costs time only. tests/unit/test_scan.py holds both equal.

Plain is: a request whose known keys stand at the top, each at most once; whole numbers of at most 18 digits
without sign, exponent or leading zero; ASCII text without escapes; items that hold `name` and `mutations`
only; no `decided`; unknown keys with such texts, numbers, true, false or null; a subject in its canonical
form. White space is allowed wherever JSON allows it.
"""

from typing import Final

import numpy as np

from streaming.columns.byte_strings import NOWHERE, Bytes, Integers, after_word, bytes_of, is_canonical
from streaming.columns.compiled import lean
from streaming.columns.json_scan import (
    CLOSE,
    COMMA,
    FALSE,
    OPEN,
    QUOTE,
    TRUE,
    after_colon,
    after_value,
    blank,
    key_number,
    keys_of,
    next_key,
    scalar,
    text_end,
    whole_number,
)
from streaming.columns.records import Records, too_far_ahead
from streaming.contract.events import ANONYMOUS, MAX_AHEAD_MS
from streaming.contract.fields import TS_MAX_MS
from streaming.laws.mutation.requests import (
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

_OPEN_LIST, _CLOSE_LIST = (np.uint8(ord(sign)) for sign in "[]")

# The order gives each key its number: texts first, in the order of their columns, then numbers, then flags.
_TS, _APPLIED_TS, _DEADLINE_MS, _V, _STRICT, _DRY, _LATE, _TYPE, _ON_LATE, _ANSWERED, _ITEMS = range(5, 16)
_DECIDED = 16
_KEYS: Final = keys_of(
    "id", "proxy", "user", "client_id", "subject", "ts", "applied_ts", "deadline_ms", "v", "strict",
    "validate_only", "late", "type", "on_late", "answered", "items", "decided",
)  # fmt: skip

_REQUEST, _ALLOW, _REJECT = bytes_of('"request"'), bytes_of('"allow"'), bytes_of('"reject"')
_NOT_BEFORE = bytes_of('"not_before"')
_NAME, _MUTATIONS = bytes_of('"name"'), bytes_of('"mutations"')
_ANONYMOUS_BYTES: Final = len(ANONYMOUS)
_FLAG_OF_KEY = np.array([STRICT, DRY, LATE])


def scanned(records: Records, max_ahead_ms: int = MAX_AHEAD_MS) -> Requests:
    """Columns with a row a record, in which the plain requests stand that are not too far ahead."""
    times = records.times()
    requests = empty(len(records), records.size())
    for first, text, ends in records.texts():
        scan(text, ends, times, first, requests)
    requests.flags[too_far_ahead(requests.at, times, max_ahead_ms)] = 0
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
    at = blank(text, at, end)
    if at == end or text[at] != OPEN:
        return False
    seen = 0
    while True:
        begin, close, at = next_key(text, at, end)
        if at < 0:
            return False
        key = key_number(_KEYS, text, begin, close)
        if key < 0:
            at = scalar(text, at, end)
        else:
            if seen >> key & 1:
                return False
            seen |= 1 << key
            at = _known(text, at, end, key, i, requests)
        at = after_value(text, at, end)
        if at < 0:
            return False
        if text[at] == CLOSE:
            break
    return blank(text, at + 1, end) == end and _complete(seen, i, default_ts, requests)


@lean
def _complete(seen: int, i: int, default_ts: int, requests: Requests) -> bool:
    """Fill in what the record does not say; False: it does not say enough."""
    if not (seen >> _TYPE & 1 and seen >> _ITEMS & 1):
        return False
    if not seen >> _TS & 1:
        requests.ts[i] = default_ts
        if default_ts < 0:
            return False
    if not seen >> _APPLIED_TS & 1:
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
        if at == end or text[at] != QUOTE:
            return NOWHERE
        close = text_end(text, at + 1, end)
        if close < 0 or (key == SUBJECT and not is_canonical(text, at + 1, close)):
            return NOWHERE
        requests.start[i, key] = _keep(text, at + 1, close, requests)
        requests.length[i, key] = close - at - 1
        return close + 1
    if key <= _V:
        return _known_number(text, at, end, key, i, requests)
    if key <= _LATE:
        flag = _FLAG_OF_KEY[key - _STRICT]
        after = after_word(text, at, end, TRUE)
        if after >= 0:
            requests.flags[i] |= flag
            return after
        requests.flags[i] &= ~flag
        return after_word(text, at, end, FALSE)
    if key == _DECIDED:
        return NOWHERE
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
    value, at = whole_number(text, at, end)
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
    at = blank(text, at + 1, end)
    if at < end and text[at] == _CLOSE_LIST:
        at += 1
    else:
        while True:
            at = _item(text, at, end, number, requests)
            if at < 0:
                return NOWHERE
            number += 1
            at = blank(text, at, end)
            if at == end or (text[at] != COMMA and text[at] != _CLOSE_LIST):
                return NOWHERE
            at += 1
            if text[at - 1] == _CLOSE_LIST:
                break
            at = blank(text, at, end)
    requests.first[i], requests.items[i], requests.used[1] = first, number - first, number
    return at


@lean
def _item(text: Bytes, at: int, end: int, number: int, requests: Requests) -> int:
    """Read one item, its two keys in either order; position after it, or NOWHERE."""
    if at == end or text[at] != OPEN:
        return NOWHERE
    named = counted = False
    while not (named and counted):
        at = blank(text, at + 1, end)
        after = after_word(text, at, end, _NAME)
        if after >= 0 and not named:
            named = True
            at = after_colon(text, after, end)
            if at < 0 or at == end or text[at] != QUOTE:
                return NOWHERE
            close = text_end(text, at + 1, end)
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
            value, at = whole_number(text, after_colon(text, after, end), end)
            requests.mutations[number] = value
        if at < 0:
            return NOWHERE
        at = blank(text, at, end)
        if at == end or text[at] != (CLOSE if named and counted else COMMA):
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
