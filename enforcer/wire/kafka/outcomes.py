"""What became of data: partitions that a broker refused, and a Fetch response that brings nothing yet.

Sources: Kafka's message schemas (ProduceResponse 0-13, FetchResponse 0-18); KIP-219 for the empty response.
"""

import struct
from typing import Final

from enforcer.wire.kafka import fields
from enforcer.wire.kafka.fields import Cursor
from enforcer.wire.kafka.frames import (
    FETCH,
    FLEXIBLE_FROM,
    PRODUCE,
    BadFrame,
    Reason,
    RequestHeader,
    acks_offset,
    is_flexible,
    read_uvarint,
    response_body_offset,
)
from enforcer.wire.kafka.traffic import PRODUCE_IDS_FROM, TOPIC_ID_BYTES, Frame, Part

_INDEX_ERROR: Final = struct.Struct(">ih")
_FIXED_BYTES: Final = 30
"""Index, error, base offset, append time, log start offset of Produce 5 and later."""
_ONE: Final = b"\0\0\0\1"
_SHORT: Final = 127
"""Names below it have a length of one byte."""
_GOOD_END: Final = b"\1\0\0"
"""No refused records, no error message, no tags."""


def refused(response: Frame, version: int) -> list[tuple[bytes, int]]:
    """Topic (name or id) and number of the partitions that a Produce response tells an error of.

    Raises:
        BadFrame: it ends too early or a length in it is impossible.
    """
    flexible = is_flexible(PRODUCE, version)
    cursor = Cursor(response, response_body_offset(PRODUCE, version, response), flexible)
    found: list[tuple[bytes, int]] = []
    for _ in cursor.elements():
        topic = cursor.raw(TOPIC_ID_BYTES) if version >= PRODUCE_IDS_FROM else _name(cursor)
        for _ in cursor.elements():
            offset = cursor.offset
            cursor.skip(_fixed_bytes(version))
            index, error = _INDEX_ERROR.unpack_from(response, offset)
            if error:
                found.append((topic, index))
            end = cursor.offset
            if flexible and response[end : end + 3] == _GOOD_END:
                cursor.offset += 3
            elif version >= 8:
                _skip_reasons(cursor)
        cursor.skip_tags()
    return found


def surely_accepted(response: bytes, version: int, part: Part) -> bool:
    """Whether a response tells no error of a Produce request for one partition; its beginning says so."""
    topic = part.topic
    if version >= PRODUCE_IDS_FROM:
        head = b"".join((b"\0\2", topic, b"\2", _INDEX_ERROR.pack(part.number, 0)))
    elif version < FLEXIBLE_FROM[PRODUCE]:
        size = len(topic).to_bytes(2, "big")
        head = b"".join((_ONE, size, topic, _ONE, _INDEX_ERROR.pack(part.number, 0)))
    elif len(topic) < _SHORT:
        size = bytes((len(topic) + 1,))
        head = b"".join((b"\0\2", size, topic, b"\2", _INDEX_ERROR.pack(part.number, 0)))
    else:
        return False
    return response.startswith(head, fields.CORRELATION_END)


def _fixed_bytes(version: int) -> int:
    return _FIXED_BYTES - (8 if version < 5 else 0) - (8 if version < 2 else 0)


def _name(cursor: Cursor) -> bytes:
    start = cursor.offset
    cursor.skip_string()
    data = cursor.data
    begin = read_uvarint(data, start)[1] if cursor.flexible else start + 2
    return bytes(data[begin : cursor.offset])


def _skip_reasons(cursor: Cursor) -> None:
    for _ in cursor.elements():
        cursor.skip(4)  # index of the refused record in its batch
        cursor.skip_string()
        cursor.skip_tags()
    cursor.skip_string()
    cursor.skip_tags()


def emptied(response: Frame, version: int) -> bytes:
    """A Fetch response without its topics, as a broker answers a throttled Fetch itself, in the same session.

    The session of the broker has not lost anything by it: positions move with the next request only.

    Raises:
        BadFrame: it ends too early.
    """
    end = response_body_offset(FETCH, version, response)
    end += (4 if version >= 1 else 0) + (6 if version >= 7 else 0)
    if end > len(response):
        raise BadFrame(Reason.TRUNCATED_BODY)
    nothing = fields.array_length(0, True) + fields.NO_TAGS if is_flexible(FETCH, version) else bytes(4)
    return bytes(response[:end]) + nothing


def with_acks(frame: bytes, header: RequestHeader) -> bytes:
    """A Produce request without acks as one that the leader answers; everything else stays.

    Raises:
        BadFrame: it ends too early.
    """
    offset = acks_offset(frame, header)
    return b"".join((frame[:offset], b"\0\1", frame[offset + 2 :]))
