"""A compiled writer of shares: the JSON of docs/contract.md 3.2, byte for byte as orjson would write it.

Doubles are orjson's own (columns/json_write.py). A property test holds the rest equal to orjson.
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from streaming.columns.byte_strings import Bytes, Integers, bytes_in, bytes_of
from streaming.columns.compiled import lean
from streaming.columns.json_write import doubles_as_json, put, put_copy, put_double, put_integer
from streaming.columns.outputs import DecisionColumns, begin_of_ids, escaped
from streaming.contract.usage_events import DIMENSIONS
from streaming.laws.shares.columns import EXPIRED, SHARE, Told
from streaming.laws.shares.law import Doubles
from streaming.policy.groups import LIFE_ROUNDS

TYPE: Final = "share"
_HEAD, _TS, _GROUP = bytes_of('{"type":"share","id":"'), bytes_of('","ts":'), bytes_of(',"group":"')
_BROKER, _ROUND = bytes_of('","broker":"'), bytes_of('","round":')
_USAGE, _LIMITS, _OPEN = bytes_of(',"usage":'), bytes_of(',"limits":'), bytes_of("{")
_IDLE, _EXPIRED = bytes_of(',"limits":null,"removed":"idle"'), bytes_of(',"limits":null,"removed":"expired"')
_SHADOW, _TRUE, _FALSE = bytes_of(',"shadow":'), bytes_of("true"), bytes_of("false")
_LIFE, _REPEAT = bytes_of(',"ttl_ms":'), bytes_of(',"repeat":true')
_SLASH, _AT = bytes_of("/"), bytes_of("@")
_COMMA, _END = np.uint8(ord(",")), np.uint8(ord("}"))
_NAMES: Final = bytes_of("".join(f'"{name}":' for name in DIMENSIONS))
_NAME_ENDS: Final = np.cumsum([0, *(len(name) + 3 for name in DIMENSIONS)])
_WIDTH: Final = len(DIMENSIONS)
_ROOM: Final = 256
"""A decision without texts and doubles has less: 150 bytes of keys and words, four numbers of at most 20."""
_DOUBLE_ROOM: Final = 2 * (24 + 1 + 24)
"""A dimension's name, colon and comma and a double, in usage and in limits."""


class Names(NamedTuple):
    """Names as they stand between quotes, one after the other.

    Attributes:
        text: all of them.
        ends: where each begins, and where the last one ends.
    """

    text: Bytes
    ends: Integers


def write(
    told: Told, order: Integers, groups: pa.Array, brokers: pa.Array, *, repeat: bool
) -> DecisionColumns:
    """Write what was told.

    Args:
        told: rounds and their decisions; only what is filled counts.
        order: the rounds in the order in which they are written.
        groups: names of all groups.
        brokers: names of all brokers.
        repeat: it is said again.
    """
    rounds, count = told.filled.tolist()
    first = np.append(told.first[:rounds], count)
    doubles = np.empty(2 * _WIDTH * count)
    filled = _gather(order, first, told, doubles)
    group, broker = Names(*bytes_in(escaped(groups))), Names(*bytes_in(escaped(brokers)))
    text = np.empty(_room(order, first, told, group, broker), dtype=np.uint8)
    ends, lengths = np.zeros(count + 1, dtype=np.int64), np.empty((2, count), dtype=np.int64)
    alike = np.empty(_ROOM + 2 * int(np.diff(group.ends).max(initial=0)), dtype=np.uint8)
    _write(
        order, first, told, group, broker, doubles_as_json(doubles[:filled]), repeat, alike,
        np.zeros(6, dtype=np.int64), text, ends, lengths,
    )  # fmt: skip
    each = np.diff(first)[order]
    return DecisionColumns(
        type=TYPE, text=text[: ends[-1]], ends=ends, id_length=lengths[0],
        ts=np.repeat(told.end[order], each), source=np.repeat(told.source[order], each),
        keys=begin_of_ids(TYPE, text, ends, lengths[1]),
    )  # fmt: skip


@lean
def _gather(order: Integers, first: Integers, told: Told, doubles: Doubles) -> int:
    """All doubles in the order in which they are written; how many."""
    place = 0
    for closed in order:
        for number in range(first[closed], first[closed + 1]):
            if told.why[number] != SHARE:
                continue
            for dimension in range(_WIDTH):
                if told.limited[closed, dimension]:
                    doubles[place] = told.used[number, dimension]
                    place += 1
            for dimension in range(_WIDTH):
                if not np.isnan(told.shares[number, dimension]):
                    doubles[place] = told.shares[number, dimension]
                    place += 1
    return place


@lean
def _room(order: Integers, first: Integers, told: Told, group: Names, broker: Names) -> int:
    """No fewer bytes than the decisions take."""
    room = 0
    for closed in order:
        g = told.group[closed]
        head = _ROOM + 2 * (group.ends[g + 1] - group.ends[g])
        for dimension in range(_WIDTH):
            if told.limited[closed, dimension]:
                head += _DOUBLE_ROOM
        for number in range(first[closed], first[closed + 1]):
            b = told.broker[number]
            room += head + 2 * (broker.ends[b + 1] - broker.ends[b])
    return int(room)


@lean
def _write(
    order: Integers, first: Integers, told: Told, group: Names, broker: Names, doubles: Bytes, repeat: bool,
    alike: Bytes, bounds: Integers, text: Bytes, ends: Integers, lengths: Integers,
) -> None:  # fmt: skip
    at = place = done = 0
    for closed in order:
        _put_alike(alike, bounds, closed, told, group, repeat)
        round_digits = bounds[2] - bounds[1] - bounds[4]
        for number in range(first[closed], first[closed + 1]):
            b = told.broker[number]
            start, length = broker.ends[b], broker.ends[b + 1] - broker.ends[b]
            lengths[0, done] = bounds[1] - len(_HEAD) + length + round_digits
            lengths[1, done] = bounds[1] - len(_HEAD) + length
            at = put_copy(text, at, alike, 0, bounds[1])
            at = put_copy(text, at, broker.text, start, length)
            at = put_copy(text, at, alike, bounds[1], bounds[2] - bounds[1])
            at = put_copy(text, at, broker.text, start, length)
            at = put_copy(text, at, alike, bounds[2], bounds[3] - bounds[2])
            if told.why[number] == SHARE:
                at, place = _put_shares(text, at, closed, number, told, doubles, place)
            else:
                at = put(text, at, _EXPIRED if told.why[number] == EXPIRED else _IDLE)
            at = put_copy(text, at, alike, bounds[3], bounds[5] - bounds[3])
            done += 1
            ends[done] = at


@lean
def _put_alike(
    text: Bytes, bounds: Integers, closed: int, told: Told, group: Names, repeat: bool
) -> None:
    """What all decisions of a round have alike: up to the broker in the id, up to the broker, up to the
    usage, and the end. `bounds` 1, 2, 3, 5 say where these end, 4 how much of the second is not the id's.
    """
    g = told.group[closed]
    start, length = group.ends[g], group.ends[g + 1] - group.ends[g]
    this_round = told.end[closed] // told.every[closed] - 1
    at = put_copy(text, put(text, 0, _HEAD), group.text, start, length)
    bounds[1] = at = put(text, at, _SLASH)
    id_end = at = put_integer(text, put(text, at, _AT), this_round)
    at = put_integer(text, put(text, at, _TS), told.end[closed])
    at = put_copy(text, put(text, at, _GROUP), group.text, start, length)
    bounds[2] = at = put(text, at, _BROKER)
    bounds[4] = at - id_end
    bounds[3] = at = put_integer(text, put(text, at, _ROUND), this_round)
    at = put(text, put(text, at, _SHADOW), _TRUE if told.shadow[closed] else _FALSE)
    at = put_integer(text, put(text, at, _LIFE), LIFE_ROUNDS * told.every[closed])
    if repeat:
        at = put(text, at, _REPEAT)
    text[at] = _END
    bounds[5] = at + 1


@lean
def _put_shares(
    text: Bytes, at: int, closed: int, number: int, told: Told, doubles: Bytes, place: int
) -> tuple[int, int]:
    """Usage and limits by dimension; position after them, and where the next double stands."""
    begin = at = put(text, put(text, at, _USAGE), _OPEN)
    for dimension in range(_WIDTH):
        if told.limited[closed, dimension]:
            at, place = _put_rate(text, at, begin, dimension, doubles, place)
    text[at] = _END
    begin = at = put(text, put(text, at + 1, _LIMITS), _OPEN)
    for dimension in range(_WIDTH):
        if not np.isnan(told.shares[number, dimension]):
            at, place = _put_rate(text, at, begin, dimension, doubles, place)
    text[at] = _END
    return at + 1, place


@lean
def _put_rate(
    text: Bytes, at: int, begin: int, dimension: int, doubles: Bytes, place: int
) -> tuple[int, int]:
    if at > begin:
        text[at] = _COMMA
        at += 1
    name = _NAME_ENDS[dimension]
    at = put_copy(text, at, _NAMES, name, _NAME_ENDS[dimension + 1] - name)
    return put_double(text, at, doubles, place)
