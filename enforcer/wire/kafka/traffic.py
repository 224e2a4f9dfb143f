"""How many records and bytes pass, read from Produce requests and Fetch responses without decompressing.

Hot path: a pass over the partitions with a few reads each and one read per record batch; records are neither
touched nor copied. Offsets are plain integers in local variables, since a cursor object would cost as much
again. Sources: Kafka's message schemas (ProduceRequest 0-13, FetchRequest and FetchResponse 0-18) and the
layout of record batches in its documentation; docs/protocol_notes.md 3.1.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from enforcer.wire.kafka.batches import count_records
from enforcer.wire.kafka.frames import (
    FETCH,
    PRODUCE,
    BadFrame,
    Frame,
    Reason,
    RequestHeader,
    is_flexible,
    read_uvarint,
    response_body_offset,
    skip_tags,
)

TOPIC_ID_BYTES: Final = 16
PRODUCE_PARTS_MAX: Final = 10_000
"""Topics and partitions of one Produce request that are gone through; more would hold up other traffic."""
FETCH_PARTS_MAX: Final = 50_000
"""The same of a Fetch request, whose parts take a fifth of the time."""
STEP_PARTS: Final = 10_000
"""And of a Fetch response in one step: at most twice as many, however a broker divides them."""
PRODUCE_IDS_FROM: Final = 13
FETCH_IDS_FROM: Final = 13
METADATA_IDS_FROM: Final = 10

_TAGS_MAX: Final = 8
_FLEXIBLE_TOPIC_PARTS: Final = 2
"""A topic of a flexible version takes the time of two of a classic one."""

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT32_PAIR: Final = struct.Struct(">ii")


class Passed(NamedTuple):
    """What went by of one topic in one frame.

    Attributes:
        topic: its name, or its 16-byte id in versions that have no names.
        records: records, by the headers of their batches.
        size: bytes of the batches, as they are on the wire.
    """

    topic: bytes
    records: int
    size: int


class Part(NamedTuple):
    """What one partition gets in a Produce request.

    Attributes:
        topic: as in Passed.
        number: the partition's.
        records: how many.
        size: their bytes.
    """

    topic: bytes
    number: int
    records: int
    size: int


PARTS_MAX: Final = 1_000
"""Partitions of one Produce request that are told apart; what a broker refuses of others is not known."""


class Fetching(NamedTuple):
    """What a Fetch request asks for.

    Attributes:
        topics: names or ids; an incremental one lists only what changed in its session, most times nothing.
        limit_offset: where its max_bytes stands in the frame, its min_bytes before it; None: this version has
            none.
        limit_bytes: max_bytes.
        full: it begins a session or has none, so it lists all topics.
        more: it has more parts than are gone through; `topics` are the first of them.
    """

    topics: list[bytes]
    limit_offset: int | None
    limit_bytes: int
    full: bool
    more: bool


def produced(frame: Frame, header: RequestHeader, parts: list[Part]) -> list[Passed]:
    """What a Produce request brings, per topic.

    Args:
        frame: the request.
        header: its header.
        parts: gets the same per partition, up to PARTS_MAX.

    Raises:
        BadFrame: it ends too early or a length in it is impossible.
    """
    version = header.api_version
    try:
        if is_flexible(PRODUCE, version):
            size, offset = read_uvarint(frame, header.body_offset)
            offset += max(0, size - 1) + 6
            return _produced_flexible(frame, offset, version >= PRODUCE_IDS_FROM, parts)
        offset = header.body_offset
        if version >= 3:
            offset += 2 + max(0, _INT16.unpack_from(frame, offset)[0])
        return _produced_classic(frame, offset + 6, parts)
    except (struct.error, IndexError) as error:
        raise BadFrame(Reason.TRUNCATED_BODY) from error


def _produced_classic(frame: Frame, offset: int, parts: list[Part]) -> list[Passed]:
    found = []
    (topics,) = _INT32.unpack_from(frame, offset)
    room = _room(PRODUCE_PARTS_MAX, topics)
    offset += 4
    for _ in range(topics):
        topic, offset = _classic_name(frame, offset)
        (partitions,) = _INT32.unpack_from(frame, offset)
        room = _room(room, partitions)
        offset += 4
        records = size = 0
        for _ in range(partitions):
            index, length = _INT32_PAIR.unpack_from(frame, offset)
            start = offset + 8
            offset = start + max(0, length)
            count = count_records(frame, start, _within(frame, offset))
            size += offset - start
            records += count
            if len(parts) < PARTS_MAX:
                parts.append(Part(topic, index, count, offset - start))
        found.append(Passed(topic, records, size))
    return found


def _produced_flexible(frame: Frame, offset: int, ids: bool, parts: list[Part]) -> list[Passed]:
    found = []
    topics, offset = read_uvarint(frame, offset)
    room = _room(PRODUCE_PARTS_MAX, topics)
    for _ in range(topics - 1):
        topic, offset = _flexible_topic(frame, offset, ids)
        partitions, offset = read_uvarint(frame, offset)
        room = _room(room, partitions)
        records = size = 0
        for _ in range(partitions - 1):
            (index,) = _INT32.unpack_from(frame, offset)
            length, start = read_uvarint(frame, offset + 4)
            offset = start + max(0, length - 1)
            count = count_records(frame, start, _within(frame, offset))
            size += offset - start
            records += count
            if len(parts) < PARTS_MAX:
                parts.append(Part(topic, index, count, offset - start))
            offset = _after_tags(frame, offset)
        offset = _after_tags(frame, offset)
        found.append(Passed(topic, records, size))
    return found


def fetched(frame: Frame, version: int) -> list[Passed]:
    """What a Fetch response brings, per topic; topics without records are left out.

    Raises:
        BadFrame: it ends too early or a length in it is impossible.
    """
    found: list[Passed] = []
    for _ in fetched_in_steps(frame, version, found):
        pass
    return found


def fetched_in_steps(frame: Frame, version: int, found: list[Passed]) -> Iterator[None]:
    """The same, put into `found`; it halts after each STEP_PARTS topics and partitions."""
    try:
        offset = response_body_offset(FETCH, version, frame)
        offset += (4 if version >= 1 else 0) + (6 if version >= 7 else 0)
        if is_flexible(FETCH, version):
            yield from _fetched_flexible(frame, offset, version >= FETCH_IDS_FROM, found)
        else:
            yield from _fetched_classic(frame, offset, version, found)
    except (struct.error, IndexError) as error:
        raise BadFrame(Reason.TRUNCATED_BODY) from error


def _fetched_classic(frame: Frame, offset: int, version: int, found: list[Passed]) -> Iterator[None]:
    # Index, error and high watermark; then the last stable and the log's start offset.
    before = 14 + (8 if version >= 4 else 0) + (8 if version >= 5 else 0)
    (topics,) = _INT32.unpack_from(frame, offset)
    offset, room = offset + 4, STEP_PARTS
    for _ in range(topics):
        topic, offset = _classic_name(frame, offset)
        (partitions,) = _INT32.unpack_from(frame, offset)
        offset += 4
        records = size = 0
        for left in range(partitions, 0, -STEP_PARTS):
            for _ in range(min(left, STEP_PARTS)):
                offset += before
                if version >= 4:
                    (aborted,) = _INT32.unpack_from(frame, offset)
                    offset += 4 + 16 * max(0, aborted)
                offset += 4 if version >= 11 else 0
                (length,) = _INT32.unpack_from(frame, offset)
                start = offset + 4
                offset = start + max(0, length)
                if length > 0:
                    size += length
                    records += count_records(frame, start, _within(frame, offset))
            if left > STEP_PARTS:
                yield
        if size:
            found.append(Passed(topic, records, size))
        room -= 1 + partitions
        if room <= 0:
            room = STEP_PARTS
            yield


def _fetched_flexible(frame: Frame, offset: int, ids: bool, found: list[Passed]) -> Iterator[None]:
    topics, offset = read_uvarint(frame, offset)
    room = STEP_PARTS
    for _ in range(topics - 1):
        topic, offset = _flexible_topic(frame, offset, ids)
        partitions, offset = read_uvarint(frame, offset)
        records = size = 0
        for left in range(partitions - 1, 0, -STEP_PARTS):
            for _ in range(min(left, STEP_PARTS)):
                # Index, error, high watermark, last stable and log start offset.
                aborted, offset = read_uvarint(frame, offset + 30)
                _room(FETCH_PARTS_MAX, aborted - 1)
                room -= aborted
                for _ in range(aborted - 1):
                    offset = _after_tags(frame, offset + 16)
                length, start = read_uvarint(frame, offset + 4)
                offset = start + max(0, length - 1)
                if length > 1:
                    size += length - 1
                    records += count_records(frame, start, _within(frame, offset))
                offset = _after_tags(frame, offset)
            if left > STEP_PARTS:
                yield
        offset = _after_tags(frame, offset)
        if size:
            found.append(Passed(topic, records, size))
        room -= partitions
        if room <= 0:
            room = STEP_PARTS
            yield


def fetching(frame: Frame, header: RequestHeader) -> Fetching:
    """What a Fetch request asks for.

    Raises:
        BadFrame: it ends too early or a length in it is impossible.
    """
    version, offset = header.api_version, header.body_offset
    # Replica id (in the tags from version 15 on), wait and minimum.
    offset += 8 if version >= 15 else 12
    try:
        limit_offset, limit_bytes = None, 0
        if version >= 3:
            limit_offset, limit_bytes = offset, _INT32.unpack_from(frame, offset)[0]
            offset += 4
        offset += 1 if version >= 4 else 0  # isolation level
        full = True
        if version >= 7:
            # The epoch in a session: 0 begins one, -1 ends it.
            full = _INT32.unpack_from(frame, offset + 4)[0] <= 0
            offset += 8
        topics, more = _fetch_topics(frame, offset, version)
        return Fetching(topics, limit_offset, limit_bytes, full, more)
    except (struct.error, IndexError) as error:
        raise BadFrame(Reason.TRUNCATED_BODY) from error


def with_limit(frame: bytes, asked: Fetching, limit: int) -> bytes:
    """A Fetch request that brings at most so many bytes, and waits for no more than that."""
    at = asked.limit_offset
    assert at is not None
    least = min(_INT32.unpack_from(frame, at - 4)[0], limit)
    most = min(asked.limit_bytes, limit)
    return b"".join((frame[: at - 4], _INT32_PAIR.pack(least, most), frame[at + 4 :]))


def _fetch_topics(frame: Frame, offset: int, version: int) -> tuple[list[bytes], bool]:
    # Index, offset and size limit; leader epoch, log start and the epoch fetched last.
    width = 16 + (4 if version >= 9 else 0) + (8 if version >= 5 else 0) + (4 if version >= 12 else 0)
    topics: list[bytes] = []
    room = FETCH_PARTS_MAX
    if not is_flexible(FETCH, version):
        (count,) = _INT32.unpack_from(frame, offset)
        offset += 4
        for _ in range(min(count, room)):
            topic, offset = _classic_name(frame, offset)
            (partitions,) = _INT32.unpack_from(frame, offset)
            offset = _within(frame, offset + 4 + width * max(0, partitions))
            topics.append(topic)
        return topics, count > room
    count, offset = read_uvarint(frame, offset)
    for _ in range(count - 1):
        if room <= 0:
            return topics, True
        topic, offset = _flexible_topic(frame, offset, version >= FETCH_IDS_FROM)
        topics.append(topic)
        partitions, offset = read_uvarint(frame, offset)
        room -= _FLEXIBLE_TOPIC_PARTS
        # Nearly always no partition has tags: then the last byte of each is zero, and all are of one size.
        end = offset + (width + 1) * (partitions - 1)
        if frame[offset + width : end : width + 1].count(0) == partitions - 1:
            offset = _within(frame, end)
        else:
            room -= partitions
            if room < 0:
                return topics, True
            for _ in range(partitions - 1):
                offset = _after_tags(frame, offset + width)
        offset = _after_tags(frame, offset)
    return topics, False


def _classic_name(frame: Frame, offset: int) -> tuple[bytes, int]:
    start = offset + 2
    end = _within(frame, start + max(0, _INT16.unpack_from(frame, offset)[0]))
    return bytes(frame[start:end]), end


def _flexible_topic(frame: Frame, offset: int, ids: bool) -> tuple[bytes, int]:
    if ids:
        end = offset + TOPIC_ID_BYTES
    else:
        size, offset = read_uvarint(frame, offset)
        end = offset + max(0, size - 1)
    return bytes(frame[offset : _within(frame, end)]), end


def _after_tags(frame: Frame, offset: int) -> int:
    # Nearly always there are none: one zero byte. Kafka 4.1 has at most three in a partition.
    if frame[offset] == 0:
        return offset + 1
    if frame[offset] > _TAGS_MAX:
        raise BadFrame(Reason.TOO_MANY_ITEMS)
    return skip_tags(frame, offset)


def _room(room: int, count: int) -> int:
    """How many parts may still be gone through after so many more."""
    if count > room:
        raise BadFrame(Reason.TOO_MANY_ITEMS)
    return room - max(0, count)


def _within(frame: Frame, end: int) -> int:
    if end > len(frame):
        raise BadFrame(Reason.TRUNCATED_BODY)
    return end
