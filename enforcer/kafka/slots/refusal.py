"""Answers to Produce requests that waited too long for a slot (docs/protocol_notes.md 3.7)."""

from typing import Final

from enforcer.wire.kafka import fields
from enforcer.wire.kafka.fields import Cursor
from enforcer.wire.kafka.frames import PRODUCE, RequestHeader, is_flexible
from enforcer.wire.kafka.mutations import REQUEST_TIMED_OUT
from enforcer.wire.kafka.traffic import PRODUCE_IDS_FROM

_ACKS_AND_TIMEOUT: Final = 6
_NO_OFFSET: Final = b"\xff" * 8


def timed_out(frame: bytes, header: RequestHeader) -> bytes:
    """The answer that refuses every partition of a Produce request: nothing of it was sent to the broker.

    Raises:
        BadFrame: the request cannot be read.
    """
    version = header.api_version
    flexible = is_flexible(PRODUCE, version)
    cursor = Cursor(frame, header.body_offset, flexible)
    if version >= 3:
        cursor.skip(max(0, cursor.string_length()))
    cursor.skip(_ACKS_AND_TIMEOUT)
    topics = []
    for _ in cursor.elements():
        start = cursor.offset
        if version >= PRODUCE_IDS_FROM:
            name = cursor.raw(len(fields.NO_ID))
        else:
            cursor.skip_string()
            name = bytes(frame[start : cursor.offset])
        parts = []
        for _ in cursor.elements():
            parts.append(_partition(cursor.raw(4), version, flexible))
            cursor.skip_bytes()
            cursor.skip_tags()
        cursor.skip_tags()
        count = fields.array_length(len(parts), flexible)
        topics.append(b"".join((name, count, *parts, fields.tags(flexible))))
    return b"".join(
        (
            fields.int32(header.correlation_id),
            fields.tags(flexible),
            fields.array_length(len(topics), flexible),
            *topics,
            fields.int32(0) if version >= 1 else b"",
            fields.tags(flexible),
        )
    )


def _partition(index: bytes, version: int, flexible: bool) -> bytes:
    parts = [index, fields.int16(REQUEST_TIMED_OUT), _NO_OFFSET]
    if version >= 2:
        parts.append(_NO_OFFSET)
    if version >= 5:
        parts.append(_NO_OFFSET)
    if version >= 8:
        message = "No slot under the concurrency limit of this broker; try again."
        parts += (fields.array_length(0, flexible), fields.string(message, flexible))
    parts.append(fields.tags(flexible))
    return b"".join(parts)
