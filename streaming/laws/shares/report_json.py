"""A compiled reader of plain usage reports: what proxies write of resource groups, at the speed of memory.

As scan.py for requests an accelerator and no second parser: `contract.events.parse` alone says what an
event is. A record is *plain* when this reader is sure that `parse` takes it and what it gives; all others go
through `parse`. So a rule that is missing here costs time only. tests/unit/test_report_scan.py holds both
equal.

Plain is: a `group_usage` whose known keys stand at their level, each at most once, in any order; whole
numbers and texts as in plain.py; no group named twice; unknown keys with such texts, numbers, true, false or
null.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streaming.columns.byte_strings import NOWHERE, SEED, Bytes, Integers, after_word, bytes_of, mixed, same
from streaming.columns.compiled import lean
from streaming.columns.json_scan import (
    CLOSE,
    OPEN,
    QUOTE,
    after_value,
    blank,
    key_number,
    keys_of,
    next_key,
    scalar,
    text_end,
    whole_number,
)
from streaming.contract.fields import TS_MAX_MS
from streaming.contract.usage_events import COUNTS, DIMENSIONS

NOT_SAID: Final = -1
"""In `throttled_ms`: the broker does not say."""
NOT_PLAIN: Final = -1
"""In `Scanned.entries`: the record is left to the parser."""
_ENTRY_BYTES_MIN: Final = len('"":{"publishedMsg":0}')

# The order gives each key its number: those of a report, then those of one group in it.
_TYPE, _ID, _BROKER, _USAGE, _V, _TS, _APPLIED_TS, _PERIOD_MS = range(8)
_COUNT: Final = _PERIOD_MS + 1
_THROTTLED: Final = _COUNT + len(COUNTS)
_DIMENSION: Final = _THROTTLED + 1
_KEYS: Final = keys_of(
    "type", "id", "broker", "usage", "v", "ts", "applied_ts", "period_ms", *COUNTS, "throttledMs", *DIMENSIONS
)
_NEEDED: Final = 1 << _TYPE | 1 << _BROKER | 1 << _USAGE | 1 << _PERIOD_MS
_WIDTH: Final = len(DIMENSIONS)
_GROUP_USAGE = bytes_of('"group_usage"')


class Scanned(NamedTuple):
    """Plain reports: a row a record, and a row an *entry*, which is what a report says of one group.

    Positions are pairs (begin, end) in the bytes that were read.

    Attributes:
        entries: how many entries the record has, or NOT_PLAIN; then its other columns mean nothing.
        first: number of its first entry.
        at: when the event is applied, ms.
        ts: when it was reported, ms.
        period_ms: the time that its counts cover.
        broker: position of the broker's name.
        usage: position of all entries, between the braces.
        stretch: position of an entry, name and braces included.
        name: position of its group's name, without quotes.
        counts: a column for each of DIMENSIONS.
        throttled_ms: a column for each of DIMENSIONS, or NOT_SAID.
        slots: hash table of the names in one record: numbers of entries; those of earlier records are free.
        used: number of entries in use.
    """

    entries: Integers
    first: Integers
    at: Integers
    ts: Integers
    period_ms: Integers
    broker: Integers
    usage: Integers
    stretch: Integers
    name: Integers
    counts: Integers
    throttled_ms: Integers
    slots: NDArray[np.int32]
    used: Integers


def scan_reports(text: Bytes, ends: Integers, times: Integers) -> Scanned:
    """Read the plain reports among some records.

    Args:
        text: the records' bytes, one after the other.
        ends: where each begins in `text`, and where the last one ends.
        times: their timestamps, ms; -1: none.
    """
    count, number = len(ends) - 1, np.int64
    most = int(ends[-1] - ends[0]) // _ENTRY_BYTES_MIN + 1
    largest = int(np.diff(ends).max(initial=0)) // _ENTRY_BYTES_MIN
    # Memory of rows is not touched here, so room that is not used costs nothing.
    scanned = Scanned(
        entries=np.full(count, NOT_PLAIN), first=np.empty(count, number), at=np.empty(count, number),
        ts=np.empty(count, number), period_ms=np.empty(count, number), broker=np.empty((count, 2), number),
        usage=np.empty((count, 2), number), stretch=np.empty((most, 2), number),
        name=np.empty((most, 2), number), counts=np.empty((most, _WIDTH), number),
        throttled_ms=np.empty((most, _WIDTH), number),
        slots=np.full(1 << max(3, (2 * largest).bit_length()), NOWHERE, dtype=np.int32),
        used=np.zeros(1, number),
    )  # fmt: skip
    # A copy can always be written to, and Numba compiles anew for arrays that cannot.
    _scan(text, ends, np.array(times, dtype=number), scanned)
    return scanned


@lean
def _scan(text: Bytes, ends: Integers, times: Integers, scanned: Scanned) -> None:
    for i in range(len(ends) - 1):
        first = scanned.first[i] = scanned.used[0]
        if _report(text, ends[i], ends[i + 1], i, times[i], scanned):
            scanned.entries[i] = scanned.used[0] - first
        elif scanned.used[0] > first:
            scanned.used[0] = first
            for slot in range(len(scanned.slots)):
                scanned.slots[slot] = NOWHERE


@lean
def _report(text: Bytes, at: int, end: int, i: int, default_ts: int, scanned: Scanned) -> bool:
    at = blank(text, at, end)
    if at == end or text[at] != OPEN:
        return False
    seen = 0
    while True:
        begin, close, at = next_key(text, at, end)
        if at < 0:
            return False
        key = key_number(_KEYS, text, begin, close)
        if key < 0 or key >= _COUNT:
            at = scalar(text, at, end)
        else:
            if seen >> key & 1:
                return False
            seen |= 1 << key
            at = _known(text, at, end, key, i, scanned)
        at = after_value(text, at, end)
        if at < 0:
            return False
        if text[at] == CLOSE:
            break
    if blank(text, at + 1, end) != end or seen & _NEEDED != _NEEDED:
        return False
    if not seen >> _TS & 1:
        scanned.ts[i] = default_ts
        if default_ts < 0:
            return False
    if not (seen >> _APPLIED_TS & 1 and scanned.at[i] > scanned.ts[i]):
        scanned.at[i] = scanned.ts[i]
    return True


@lean
def _known(text: Bytes, at: int, end: int, key: int, i: int, scanned: Scanned) -> int:
    """Read the value of a report's own key into row `i`; position after it, or NOWHERE."""
    if key == _USAGE:
        return _usage(text, at, end, i, scanned)
    if key == _TYPE:
        return after_word(text, at, end, _GROUP_USAGE)
    if key in (_BROKER, _ID):
        if at == end or text[at] != QUOTE:
            return NOWHERE
        close = text_end(text, at + 1, end)
        if close < 0:
            return NOWHERE
        if key == _BROKER:
            scanned.broker[i, 0], scanned.broker[i, 1] = at + 1, close
        return close + 1
    value, at = whole_number(text, at, end)
    if key == _V:
        return at if value == 1 else NOWHERE
    if key == _PERIOD_MS:
        scanned.period_ms[i] = value
        return at if value > 0 else NOWHERE
    if key == _TS:
        scanned.ts[i] = value
    else:
        scanned.at[i] = value
    return at if value <= TS_MAX_MS else NOWHERE


@lean
def _usage(text: Bytes, at: int, end: int, i: int, scanned: Scanned) -> int:
    """Read the entries; position after them, or NOWHERE."""
    if at == end or text[at] != OPEN:
        return NOWHERE
    scanned.usage[i, 0] = at + 1
    after = blank(text, at + 1, end)
    if after < end and text[after] == CLOSE:
        scanned.usage[i, 1] = after
        return after + 1
    while True:
        begin, close, at = next_key(text, at, end)
        number = scanned.used[0]
        at = _entry(text, at, end, number, scanned)
        if at < 0:
            return NOWHERE
        scanned.name[number, 0], scanned.name[number, 1] = begin, close
        scanned.stretch[number, 0], scanned.stretch[number, 1] = begin - 1, at
        if not _is_new(text, number, scanned.first[i], scanned):
            return NOWHERE
        scanned.used[0] = number + 1
        at = after_value(text, at, end)
        if at < 0:
            return NOWHERE
        if text[at] == CLOSE:
            scanned.usage[i, 1] = at
            return at + 1


@lean
def _is_new(text: Bytes, number: int, first: int, scanned: Scanned) -> bool:
    """Whether no entry from `first` on has the name of this one: of two the parser takes the last."""
    begin, end = scanned.name[number, 0], scanned.name[number, 1]
    last = len(scanned.slots) - 1
    place = mixed(SEED, text, begin, end) & last
    while scanned.slots[place] >= first:
        other = scanned.slots[place]
        if scanned.name[other, 1] - scanned.name[other, 0] == end - begin and same(
            text, scanned.name[other, 0], text, begin, end
        ):
            return False
        place = (place + 1) & last
    scanned.slots[place] = number
    return True


@lean
def _entry(text: Bytes, at: int, end: int, number: int, scanned: Scanned) -> int:
    """Read what is said of one group into row `number`; position after it, or NOWHERE."""
    if at < 0 or at == end or text[at] != OPEN:
        return NOWHERE
    for place in range(_WIDTH):
        scanned.counts[number, place] = 0
        scanned.throttled_ms[number, place] = NOT_SAID
    seen = 0
    while True:
        begin, close, at = next_key(text, at, end)
        if at < 0:
            return NOWHERE
        key = key_number(_KEYS, text, begin, close)
        if key < _COUNT or key > _THROTTLED:
            at = scalar(text, at, end)
        else:
            if seen >> key & 1:
                return NOWHERE
            seen |= 1 << key
            if key == _THROTTLED:
                at = _times(text, at, end, number, scanned)
            else:
                scanned.counts[number, key - _COUNT], at = whole_number(text, at, end)
        at = after_value(text, at, end)
        if at < 0:
            return NOWHERE
        if text[at] == CLOSE:
            # Without any count it is misspelt; the parser says so.
            return at + 1 if seen & ~(1 << _THROTTLED) else NOWHERE


@lean
def _times(text: Bytes, at: int, end: int, number: int, scanned: Scanned) -> int:
    """Read how long traffic was held back into row `number`; position after it, or NOWHERE."""
    if at == end or text[at] != OPEN:
        return NOWHERE
    after = blank(text, at + 1, end)
    if after < end and text[after] == CLOSE:
        return after + 1
    seen = 0
    while True:
        begin, close, at = next_key(text, at, end)
        if at < 0:
            return NOWHERE
        key = key_number(_KEYS, text, begin, close)
        if key < _DIMENSION:
            at = scalar(text, at, end)
        else:
            if seen >> key & 1:
                return NOWHERE
            seen |= 1 << key
            scanned.throttled_ms[number, key - _DIMENSION], at = whole_number(text, at, end)
        at = after_value(text, at, end)
        if at < 0:
            return NOWHERE
        if text[at] == CLOSE:
            return at + 1
