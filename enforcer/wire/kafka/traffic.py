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
from enforcer.wire.kafka.codec import Reader, asked, spliced
from enforcer.wire.kafka.fields import array_length
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


_PRODUCED: Final = asked(
    PRODUCE, "TopicData(Name|TopicId PartitionData(Index of:Records end:Records))",
    room=PRODUCE_PARTS_MAX, rows=1,
)  # fmt: skip


def produced(frame: Frame, header: RequestHeader, parts: list[Part]) -> list[Passed]:
    """What a Produce request brings, per topic.

    Args:
        frame: the request.
        header: its header.
        parts: gets the same per partition, up to PARTS_MAX.

    Raises:
        BadFrame: it ends too early or a length in it is impossible.
    """
    found = []
    for topic, partitions in _PRODUCED(frame, header):
        records = size = 0
        for index, start, end in partitions:
            count = count_records(frame, start, end)
            size += end - start
            records += count
            if len(parts) < PARTS_MAX:
                parts.append(Part(topic, index, count, end - start))
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


_FETCHING: Final = Reader(FETCH, "request", "Topics(Topic|TopicId) at:MaxBytes MaxBytes SessionEpoch", rows=1)
_TOPICS_AT: Final = asked(FETCH, "at:Topics of:Topics")


def fetching(frame: Frame, header: RequestHeader) -> Fetching:
    """What a Fetch request asks for.

    Raises:
        BadFrame: it ends too early or a length in it is impossible.
    """
    version, body, more = header.api_version, header.body_offset, False
    try:
        topics, limit_offset, limit_bytes, epoch = _FETCHING(frame, version, body, FETCH_PARTS_MAX)
    except BadFrame as bad:
        if bad.reason is not Reason.TOO_MANY_ITEMS:
            raise
        start, end = _TOPICS_AT(frame, header)
        first = array_length(FETCH_PARTS_MAX, is_flexible(FETCH, version))
        fewer, more = spliced(bytes(frame), [(start, end, first)]), True
        topics, limit_offset, limit_bytes, epoch = _FETCHING(fewer, version, body, FETCH_PARTS_MAX)
    # The epoch in a session: 0 begins one, -1 ends it.
    return Fetching(topics, limit_offset or None, limit_bytes, epoch <= 0, more)


def with_limit(frame: bytes, asked: Fetching, limit: int) -> bytes:
    """A Fetch request that brings at most so many bytes, and waits for no more than that."""
    at = asked.limit_offset
    assert at is not None
    least = min(_INT32.unpack_from(frame, at - 4)[0], limit)
    most = min(asked.limit_bytes, limit)
    return b"".join((frame[: at - 4], _INT32_PAIR.pack(least, most), frame[at + 4 :]))


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
