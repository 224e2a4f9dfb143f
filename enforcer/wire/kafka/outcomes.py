"""What became of data: partitions that a broker refused, a Fetch response with nothing yet.

Sources: Kafka's message schemas (ProduceResponse 0-13, FetchResponse 0-18); KIP-219 for the empty response.
"""

import struct
from functools import lru_cache
from typing import Final

from enforcer.wire.kafka import frames
from enforcer.wire.kafka.codec import told
from enforcer.wire.kafka.frames import (
    CORRELATION_BYTES,
    FETCH,
    PRODUCE,
    TOPIC_NAME_MAX,
    Frame,
    RequestHeader,
    is_flexible,
)
from enforcer.wire.kafka.traffic import ACKS, PRODUCE_IDS_FROM, Part

_PARTITIONS: Final = told(PRODUCE, "Responses(Name|TopicId? PartitionResponses(Index ErrorCode))")
_TOPICS_AT: Final = told(FETCH, "at:Responses")
_INDEX_ERROR: Final = struct.Struct(">ih")
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
    return bool(head) and response.startswith(head, CORRELATION_BYTES)


def accepted_head(version: int, topic: bytes, number: int) -> bytes:
    """How such a response begins behind its correlation id; empty: it is to be read."""
    # Longer ones no broker accepts, and a client could make up thousands of 32 kB, to be kept.
    return _head(version, topic, number) if len(topic) <= TOPIC_NAME_MAX else b""


@lru_cache(_HEADS_MAX)
def _head(version: int, topic: bytes, number: int) -> bytes:
    flexible = is_flexible(PRODUCE, version)
    one, length = frames.array_length(1, flexible), b""
    if version < PRODUCE_IDS_FROM:
        length = frames.uvarint(len(topic) + 1) if flexible else frames.int16(len(topic))
    return b"".join((frames.tags(flexible), one, length, topic, one, _INDEX_ERROR.pack(number, 0)))


def emptied(response: Frame, version: int) -> bytes:
    """A Fetch response without its topics, as a broker answers a throttled Fetch itself, in the same session.

    The session of the broker has not lost anything by it: positions move with the next request only.

    Raises:
        BadFrame: it ends too early.
    """
    nothing = frames.array_length(0, True) + frames.NO_TAGS if is_flexible(FETCH, version) else bytes(4)
    return bytes(response[: _TOPICS_AT(response, version)]) + nothing


def with_acks(frame: bytes, header: RequestHeader) -> bytes:
    """A Produce request without acks as one that the leader answers; everything else stays.

    Raises:
        BadFrame: it ends too early.
    """
    offset, _ = ACKS(frame, header)
    return b"".join((frame[:offset], b"\0\1", frame[offset + 2 :]))
