"""What became of data: partitions that a broker refused, throttle times, a Fetch response with nothing yet.

Sources: Kafka's message schemas (ProduceResponse 0-13, FetchResponse 0-18); KIP-219 for the empty response.
"""

import struct
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Final

from enforcer.wire.kafka import fields
from enforcer.wire.kafka.codec import told
from enforcer.wire.kafka.frames import (
    FETCH,
    FLEXIBLE_FROM,
    PRODUCE,
    TOPIC_NAME_MAX,
    BadFrame,
    Frame,
    Reason,
    RequestHeader,
    is_flexible,
)
from enforcer.wire.kafka.traffic import ACKS, PRODUCE_IDS_FROM, Part

_PARTITIONS: Final = told(PRODUCE, "Responses(Name|TopicId? PartitionResponses(Index ErrorCode))")
_THROTTLE_BYTES: Final = 4
_TOPICS_AT: Final = told(FETCH, "at:Responses")
_INDEX_ERROR: Final = struct.Struct(">ih")
_ONE: Final = b"\0\0\0\1"
_SHORT: Final = 127
"""Names below it have a length of one byte."""
_HEADS_MAX: Final = 4_096


def refused(response: Frame, version: int) -> list[tuple[bytes, int]]:
    """Topic (name or id) and number of the partitions that a Produce response tells an error of.

    Raises:
        BadFrame: it ends too early or a length in it is impossible.
    """
    topics = _PARTITIONS(response, version)
    return [(topic, index) for topic, parts in topics for index, error in parts if error]


def surely_accepted(response: bytes, version: int, part: Part) -> bool:
    """Whether a response tells no error of a Produce request for one partition; its beginning says so."""
    head = accepted_head(version, part.topic, part.number)
    return bool(head) and response.startswith(head, fields.CORRELATION_END)


def accepted_head(version: int, topic: bytes, number: int) -> bytes:
    """How such a response begins behind its correlation id; empty: it cannot be told by that."""
    # Longer ones no broker accepts, and a client could make up thousands of 32 kB, to be kept.
    return _head(version, topic, number) if len(topic) <= TOPIC_NAME_MAX else b""


@lru_cache(_HEADS_MAX)
def _head(version: int, topic: bytes, number: int) -> bytes:
    no_error = _INDEX_ERROR.pack(number, 0)
    if version >= PRODUCE_IDS_FROM:
        return b"".join((b"\0\2", topic, b"\2", no_error))
    if version < FLEXIBLE_FROM[PRODUCE]:
        return b"".join((_ONE, len(topic).to_bytes(2, "big"), topic, _ONE, no_error))
    if len(topic) < _SHORT:
        return b"".join((b"\0\2", bytes((len(topic) + 1,)), topic, b"\2", no_error))
    return b""


def emptied(response: Frame, version: int) -> bytes:
    """A Fetch response without its topics, as a broker answers a throttled Fetch itself, in the same session.

    The session of the broker has not lost anything by it: positions move with the next request only.

    Raises:
        BadFrame: it ends too early.
    """
    nothing = fields.array_length(0, True) + fields.NO_TAGS if is_flexible(FETCH, version) else bytes(4)
    return bytes(response[: _TOPICS_AT(response, version)]) + nothing


def with_acks(frame: bytes, header: RequestHeader) -> bytes:
    """A Produce request without acks as one that the leader answers; everything else stays.

    Raises:
        BadFrame: it ends too early.
    """
    offset, _ = ACKS(frame, header)
    return b"".join((frame[:offset], b"\0\1", frame[offset + 2 :]))


@cache
def _place(api_key: int) -> Callable[[Frame, int], Any]:
    return told(api_key, "at:ThrottleTimeMs")


def throttle_offset(api_key: int, version: int, response: Frame) -> int:
    """Where throttle_time_ms stands in a response; 0 if this version has none.

    In Produce it stands behind the answers per partition. Classic versions end with it. Flexible ones end
    with it and a tagged section, which holds the addresses of new leaders when there are leader errors; only
    then the whole body must be walked.

    Raises:
        BadFrame: the response ends before the field.
    """
    if api_key != PRODUCE or version < 1:
        offset: int = _place(api_key)(response, version)
        return offset
    if not is_flexible(PRODUCE, version):
        offset = len(response) - _THROTTLE_BYTES
    elif ends_without_tags(response):
        offset = len(response) - _THROTTLE_BYTES - 1
    else:
        offset = _place(PRODUCE)(response, version)
    if offset < fields.CORRELATION_END:
        raise BadFrame(Reason.TRUNCATED_BODY)
    return offset


def patch_throttle(api_key: int, version: int, response: Frame, throttle_ms: int) -> bytes:
    """The response with throttle_time_ms at least `throttle_ms`; what is larger there stays.

    A response without the field, or one that says as much already, comes back as it is.

    Raises:
        BadFrame: the response ends before the field.
    """
    if throttle_ms <= 0:
        return bytes(response)
    offset = throttle_offset(api_key, version, response)
    if not offset:
        return bytes(response)
    end = offset + _THROTTLE_BYTES
    if int.from_bytes(response[offset:end], "big", signed=True) >= throttle_ms:
        return bytes(response)
    patched = bytearray(response)
    patched[offset:end] = fields.int32(throttle_ms)
    return bytes(patched)


def ends_without_tags(response: Frame) -> bool:
    """Whether a flexible Produce response certainly ends in `throttle, no tags`, from its last bytes alone.

    Without tags it ends with the empty sections of the last partition and topic, the throttle time and a
    zero. With the tag of new leaders the seventh byte from the end lies in a host, a port or a rack; the one
    combination that looks alike (rack of one letter) reads as a throttle time above 2^24 ms, 4.6 hours.
    """
    return len(response) > 7 and response[-1] == 0 and response[-7:-4] == b"\0\0\0"
