"""Leaves Weir's topics out of Metadata answers, which are large and many: found by search, not by a walk.

Whoever asks for all topics gets Weir's own among them. The names in the list of topics are found by their
bytes, and what stands before such a place tells whether a name begins there, since names have no bytes below
0x2d: in classic versions the high byte of its length, which is 0; in flexible ones the second byte of a long
length, which is 1, or before a short one an error code below 7, as topics that exist have it.
"""

from collections.abc import Iterator
from typing import Final

from enforcer.kafka.guard.protected import OwnTopics
from enforcer.wire.kafka import fields
from enforcer.wire.kafka.codec import Reader, told
from enforcer.wire.kafka.frames import METADATA, BadFrame, Reason, is_flexible
from enforcer.wire.kafka.traffic import METADATA_IDS_FROM

_LIST: Final = told(METADATA, "at:Topics of:Topics Topics:count")
_TOPIC: Final = Reader(METADATA, "response.Topics()", "Name? TopicId end")
_ERRORS: Final = 7


def without_ours(response: bytes, version: int, protected: OwnTopics) -> bytes:
    """A Metadata answer without topics of Weir's; the ids of those are learnt from it.

    Raises:
        BadFrame: it ends too early or a length in it is impossible.
    """
    if not protected.may_be_in(response, 0, len(response), False):
        return response
    flexible = is_flexible(METADATA, version)
    list_at, copied, count = _LIST(response, version)
    parts, ids = list[bytes](), set[bytes]()
    for start in _starts(response, copied, flexible, protected):
        if start < copied:
            continue
        name, topic_id, end = _TOPIC(response, version, start)
        if protected.has(name):
            parts.append(response[copied:start])
            copied = end
            ids.add(topic_id)
    if not parts:
        return response
    if len(parts) > count:
        raise BadFrame(Reason.BAD_VALUE)
    if version >= METADATA_IDS_FROM:
        protected.saw(ids)
    head = response[:list_at] + fields.array_length(count - len(parts), flexible)
    return b"".join((head, *parts, response[copied:]))


def _starts(data: bytes, offset: int, flexible: bool, protected: OwnTopics) -> Iterator[int]:
    """Where topics begin whose names begin with one of ours, in ascending order."""
    # Before the second byte of a name stands its length, which is then at least so much.
    errors = min(_ERRORS, protected.shortest_bytes + 2)
    found = [
        start
        for hit in protected.places(data, offset)
        if (start := _start(data, hit, flexible, errors)) >= offset
    ]
    return iter(sorted(found))


def _start(data: bytes, name: int, flexible: bool, errors: int) -> int:
    """Where the topic begins whose name begins there; -1 if no name begins there."""
    if not flexible:
        return name - 4 if data[name - 2] == 0 else -1
    if data[name - 1] == 1:
        return name - 4
    short = data[name - 3] == 0 and data[name - 2] < errors
    return name - 3 if short else -1
