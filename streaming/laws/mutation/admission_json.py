"""A compiled writer of admissions: the JSON of docs/contract.md 3.1, byte for byte as orjson would write it.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streaming.columns.byte_strings import Bytes, Integers, bytes_of
from streaming.columns.compiled import lean
from streaming.columns.json_write import doubles_as_json, put, put_copy, put_double, put_integer
from streaming.contract.fields import INT64_MAX
from streaming.laws.mutation.law import REJECT, THROTTLE, Events, Results
from streaming.laws.mutation.requests import ANSWERED, DRY, ID, PROXY, Requests

_HEAD, _TS, _PROXY = bytes_of('{"type":"admission","id":"'), bytes_of('","ts":'), bytes_of(',"proxy":"')
_SUBJECT, _ALGORITHM = bytes_of('","subject":"'), bytes_of('","algorithm":')
_BUCKET, _SAMPLED, _NULL = bytes_of('"token_bucket"'), bytes_of('"sampled_rate"'), bytes_of("null")
_OUTCOME = bytes_of(',"outcome":"')
_ALLOWED, _REJECTED, _THROTTLED = bytes_of("allow"), bytes_of("reject"), bytes_of("throttle")
_WAIT, _NAMES = bytes_of('","throttle_time_ms":'), bytes_of(',"rejected":[')
_TOKENS, _RATE, _LIMIT = bytes_of('],"tokens":'), bytes_of(',"rate":'), bytes_of(',"limit":')
_MUTATIONS, _VERSION = bytes_of(',"mutations":'), bytes_of(',"policy_version":')
_SHADOW, _TRUE, _FALSE = bytes_of(',"shadow":'), bytes_of("true"), bytes_of("false")
_LATE, _ANSWERED = bytes_of(',"late":true'), bytes_of(',"answered":"not_before"')
_QUOTE, _COMMA, _CLOSE, _END = (np.uint8(ord(sign)) for sign in '",]}')

ROOM: Final = 512
"""An admission without its texts has less than this: 360 bytes of keys and words, four numbers of at most 20
bytes, three doubles of at most 24.
"""
NAME_ROOM: Final = 3
"""A name's quotes and comma."""


class Labels(NamedTuple):
    """What decisions say of the terms by which they were made.

    Attributes:
        sampled: 0 token bucket, 1 sampled rate, -1 not limited.
        subjects: all subjects as they stand between quotes, one after the other.
        subject_ends: where each begins, and where the last one ends.
        subject: number of each term's subject.
        limits: all limits as JSON, each followed by one byte.
        limit_ends: where each begins, and where the next one begins.
        version: of the policies.
        shadow: decided, not enforced.
    """

    sampled: Integers
    subjects: Bytes
    subject_ends: Integers
    subject: Integers
    limits: Bytes
    limit_ends: Integers
    version: Integers
    shadow: NDArray[np.bool_]


class Written(NamedTuple):
    """Decisions as bytes: all in one array, and where each begins and the last one ends."""

    text: Bytes
    ends: Integers


def write(order: Integers, requests: Requests, late: NDArray[np.bool_], events: Events, labels: Labels,
          results: Results) -> Written:  # fmt: skip
    """Write the decisions of these requests, in this order."""
    limited = order[labels.sampled[events.term[order]] >= 0]
    ends = np.zeros(len(order) + 1, dtype=np.int64)
    text = np.empty(_room(order, requests, events, labels, results), dtype=np.uint8)
    _write(
        order, requests, late, events, labels, results,
        doubles_as_json(results.level[limited]), doubles_as_json(results.plain_rate[limited]), text, ends,
    )  # fmt: skip
    return Written(text=text[: ends[-1]], ends=ends)


@lean
def _room(order: Integers, requests: Requests, events: Events, labels: Labels, results: Results) -> int:
    """No fewer bytes than the decisions take."""
    room = 0
    for i in order:
        subject = labels.subject[events.term[i]]
        room += ROOM + requests.length[i, ID] + requests.length[i, PROXY]
        room += labels.subject_ends[subject + 1] - labels.subject_ends[subject]
        for item in range(requests.first[i], requests.first[i] + requests.items[i]):
            if results.rejected[item]:
                room += requests.item_length[item] + NAME_ROOM
    return room


@lean
def _write(
    order: Integers, requests: Requests, late: NDArray[np.bool_], events: Events, labels: Labels,
    results: Results, levels: Bytes, rates: Bytes, text: Bytes, ends: Integers,
) -> None:  # fmt: skip
    at = level_at = rate_at = 0
    for number in range(len(order)):
        i = order[number]
        term = events.term[i]
        at = _put_head(text, at, i, term, requests, labels, results)
        at = _put_rejected(text, at, i, requests, results)
        sampled = labels.sampled[term]
        if sampled >= 0:
            if sampled == 1:
                text[at] = _CLOSE
                at = put(text, at + 1, _RATE)
            else:
                at = put(text, at, _TOKENS)
            at, level_at = put_double(text, at, levels, level_at)
            rate_from = at
            at, rate_at = put_double(text, put(text, at, _RATE), rates, rate_at)
            if sampled == 1:
                # It was the plain rate, which only a bucket's decision shows.
                at = rate_from
        else:
            text[at] = _CLOSE
            at += 1
        at = _put_tail(text, at, i, term, requests, labels, results)
        if late[i]:
            at = put(text, at, _LATE)
        if requests.flags[i] & ANSWERED:
            at = put(text, at, _ANSWERED)
        text[at] = _END
        at += 1
        ends[number + 1] = at


@lean
def _put_head(
    text: Bytes, at: int, i: int, term: int, requests: Requests, labels: Labels, results: Results
) -> int:
    at = put(text, at, _HEAD)
    at = put_copy(text, at, requests.kept, requests.start[i, ID], requests.length[i, ID])
    at = put_integer(text, put(text, at, _TS), requests.ts[i])
    at = put(text, at, _PROXY)
    at = put_copy(text, at, requests.kept, requests.start[i, PROXY], requests.length[i, PROXY])
    at = put(text, at, _SUBJECT)
    sampled = labels.sampled[term]
    if sampled >= 0:
        first = labels.subject_ends[labels.subject[term]]
        end = labels.subject_ends[labels.subject[term] + 1]
        at = put_copy(text, at, labels.subjects, first, end - first)
    at = put(text, at, _ALGORITHM)
    at = put(text, at, _NULL if sampled < 0 else _SAMPLED if sampled == 1 else _BUCKET)
    at = put(text, at, _OUTCOME)
    outcome = results.outcome[i]
    if outcome == REJECT:
        at = put(text, at, _REJECTED)
    else:
        at = put(text, at, _THROTTLED if outcome == THROTTLE else _ALLOWED)
    return put_integer(text, put(text, at, _WAIT), results.wait_ms[i])


@lean
def _put_rejected(text: Bytes, at: int, i: int, requests: Requests, results: Results) -> int:
    """The names of the items that were rejected; the list is left open."""
    at = put(text, at, _NAMES)
    listed = False
    for item in range(requests.first[i], requests.first[i] + requests.items[i]):
        if results.rejected[item]:
            if listed:
                text[at] = _COMMA
                at += 1
            listed = True
            text[at] = _QUOTE
            at = put_copy(text, at + 1, requests.kept, requests.item_start[item], requests.item_length[item])
            text[at] = _QUOTE
            at += 1
    return at


@lean
def _put_tail(
    text: Bytes, at: int, i: int, term: int, requests: Requests, labels: Labels, results: Results
) -> int:
    at = put(text, at, _LIMIT)
    if labels.sampled[term] < 0:
        at = put(text, at, _NULL)
    else:
        first, end = labels.limit_ends[term], labels.limit_ends[term + 1] - 1
        at = put_copy(text, at, labels.limits, first, end - first)
    at = put_integer(text, put(text, at, _MUTATIONS), _charged(i, requests, results))
    at = put_integer(text, put(text, at, _VERSION), labels.version[term])
    return put(text, put(text, at, _SHADOW), _TRUE if labels.shadow[term] else _FALSE)


@lean
def _charged(i: int, requests: Requests, results: Results) -> int:
    """Mutations of the items that were admitted, cut at 64 bits."""
    charged = 0
    if requests.flags[i] & DRY == 0:
        for item in range(requests.first[i], requests.first[i] + requests.items[i]):
            if not results.rejected[item]:
                charged += min(requests.mutations[item], INT64_MAX - charged)
    return charged
