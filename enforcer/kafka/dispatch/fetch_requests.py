"""A Fetch request read part by part, and written again for what may be read now.

Source: Kafka's message schema FetchRequest 0-18; KIP-227 for sessions.
"""

import struct
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from enforcer.wire.kafka.codec import asked as reader
from enforcer.wire.kafka.frames import FETCH, Frame, RequestHeader, array_length, is_flexible
from enforcer.wire.kafka.traffic import FETCH_PARTS_MAX

NO_SESSION: Final = -1
"""The epoch of a request outside of sessions, which also ends the one that it names."""

_INT32: Final = struct.Struct(">i")
_PAIR: Final = struct.Struct(">ii")


class PartitionRequest(NamedTuple):
    """A partition of a request.

    Attributes:
        number: its number.
        offset: what is asked for.
        limit_at: where its size limit stands in the frame.
        limit: that, bytes.
    """

    number: int
    offset: int
    limit_at: int
    limit: int


class TopicRequest(NamedTuple):
    """A topic of a request.

    Attributes:
        key: its name, or its id in versions that have no names.
        start: where it begins in the frame.
        end: where it ends.
        parts: its partitions.
    """

    key: bytes
    start: int
    end: int
    parts: list[PartitionRequest]


class FetchRequest(NamedTuple):
    """A request.

    Attributes:
        wait_at: where its waiting time stands in the frame; its minimum follows.
        wait_ms: how long it waits for the minimum.
        min_bytes: the minimum.
        limit_at: where its size limit stands; 0: this version has none.
        limit: that, bytes.
        isolation: 1: it reads what is committed only.
        session_at: where its session stands, and the epoch in it; 0: this version has none.
        session: its session.
        topics_at: where the array of topics begins, its length included.
        topics: the topics.
        topics_end: where the array ends.
    """

    wait_at: int
    wait_ms: int
    min_bytes: int
    limit_at: int
    limit: int
    isolation: int
    session_at: int
    session: int
    topics_at: int
    topics: list[TopicRequest]
    topics_end: int


_PARTITIONS: Final = "Partitions(Partition FetchOffset at:PartitionMaxBytes PartitionMaxBytes)"
_ASKED: Final = reader(
    FETCH,
    "at:MaxWaitMs MaxWaitMs MinBytes at:MaxBytes MaxBytes IsolationLevel at:SessionId SessionId"
    f" at:Topics Topics(Topic|TopicId at end {_PARTITIONS}) end:Topics",
    room=FETCH_PARTS_MAX, rows=1, types={"Topics": TopicRequest, "Partitions": PartitionRequest},
)  # fmt: skip


def asked_of(frame: Frame, header: RequestHeader) -> FetchRequest:
    """Read a Fetch request.

    Raises:
        BadFrame: it ends too early, has too many parts, or a length in it is impossible.
    """
    # Whoever says that it is a replica is a client all the same: real ones do not come through a proxy.
    return FetchRequest(*_ASKED(frame, header))


def whole_topics(asked: FetchRequest) -> list[TopicRequest]:
    """The topics, once each: a request may list one in several places, as Java clients of two topics do."""
    parts: dict[bytes, list[PartitionRequest]] = {topic.key: topic.parts for topic in asked.topics}
    if len(parts) == len(asked.topics):
        return asked.topics
    parts = {key: [] for key in parts}
    for topic in asked.topics:
        parts[topic.key] += topic.parts
    first = {topic.key: topic for topic in reversed(asked.topics)}
    return [first[key]._replace(parts=its) for key, its in parts.items()]


def forwarded(
    frame: bytes,
    asked: FetchRequest,
    version: int,
    *,
    left_out: Collection[int],
    limits: Mapping[int, int],
    wait_ms: int,
    min_bytes: int,
    limit: int,
) -> bytes:
    """A request for what may be read now, outside of any session.

    Args:
        left_out: which of its topics must wait, by their place.
        limits: place of a topic -> the most bytes of each of its partitions.
        wait_ms: how long it waits for its minimum.
        limit: most bytes of all.
    """
    out = bytearray(frame[: asked.topics_at])
    _PAIR.pack_into(out, asked.wait_at, wait_ms, min_bytes)
    if asked.limit_at:
        _INT32.pack_into(out, asked.limit_at, limit)
    if asked.session_at:
        _PAIR.pack_into(out, asked.session_at, asked.session, NO_SESSION)
    out += array_length(len(asked.topics) - len(left_out), is_flexible(FETCH, version))
    for place, topic in enumerate(asked.topics):
        if place in left_out:
            continue
        at = len(out) - topic.start
        out += frame[topic.start : topic.end]
        most = limits.get(place)
        if most is None:
            continue
        for part in topic.parts:
            if part.limit > most:
                _INT32.pack_into(out, at + part.limit_at, most)
    out += frame[asked.topics_end :]
    return bytes(out)
