"""How many records and bytes pass, read from Produce requests and Fetch responses without decompressing.

Hot path: a pass over the partitions with a few reads each and one read per record batch; records are neither
touched nor copied. Offsets are plain integers in local variables, since a cursor object would cost as much
again. Sources: Kafka's message schemas (ProduceRequest 0-13, FetchRequest and FetchResponse 0-18) and the
layout of record batches in its documentation; docs/protocol_notes.md 3.1.
"""

import struct
from typing import Final, NamedTuple

from enforcer.kafka.protocol.frames import (
    FETCH,
    PRODUCE,
    BadFrame,
    Reason,
    RequestHeader,
    is_flexible,
    read_uvarint,
    response_body_offset,
    skip_tags,
)

Frame = bytes | bytearray
TOPIC_ID_BYTES: Final = 16
PRODUCE_PARTS_MAX: Final = 10_000
"""Topics and partitions of one Produce request that are gone through; more would hold up other traffic."""
FETCH_PARTS_MAX: Final = 50_000
"""The same of a Fetch request, whose parts take a fifth of the time, and of a Fetch response."""
BATCHES_MAX: Final = 100_000
"""Batches of one partition that are gone through: of 61 bytes each, 6 MB; a metered Fetch brings less."""
PRODUCE_IDS_FROM: Final = 13
FETCH_IDS_FROM: Final = 13
METADATA_IDS_FROM: Final = 10

_TAGS_MAX: Final = 8

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT32_PAIR: Final = struct.Struct(">ii")
# At the start of a batch: its offset, its length from here on, leader epoch (crc before version 2), magic.
_BATCH: Final = struct.Struct(">8xi4xb")
_LENGTH_END: Final = 12
# In a batch of version 2: attributes, deltas, times and producer up to the number of records.
_BATCH_V2: Final = struct.Struct(">h34xi")
_ATTRIBUTES: Final = 21
_V2_LENGTH_MIN: Final = 49
_V1_LENGTH_MIN: Final = 14
_CONTROL: Final = 0x20  # a transaction marker, which no consumer gets to see
_COMPRESSION: Final = 0x07
RECORD_BYTES_MIN: Final = 7
"""Length, attributes, two deltas, no key, no value and no headers, of one byte each."""
_COMPRESSED_PER_BYTE: Final = (0, 150, 4, 40, 5_000, 1, 1, 1)
"""Records in a byte of a compressed batch at most, by codec: none, gzip, snappy, lz4, zstd, no codec at all.

What a byte can hold of equal records, by each format's longest repetitions (gzip 1,032 bytes, snappy 21,
lz4 255, zstd a block of 128 KiB in four). Smallest records that differ by their offset alone compress to 0.6
bytes each at best, but a broker that compresses anew gives equal ones offsets. A claim that is not true is
refused, and refunded.
"""


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
        limit_offset: where its max_bytes stands in the frame; None: this version has none.
        limit_bytes: max_bytes.
        full: it begins a session or has none, so it lists all topics.
    """

    topics: list[bytes]
    limit_offset: int | None
    limit_bytes: int
    full: bool


def count_records(data: Frame, start: int, end: int, batches_max: int = BATCHES_MAX) -> int:
    """Records in the first `batches_max` batches between two offsets.

    What a batch claims counts as far as its bytes can hold it, whatever they are. A batch that is cut off at
    the end, as in Fetch responses, does not count: no client can read it. Before
    version 2 each message counts, and a compressed set of them counts as one, since only its content says
    how many there are (Kafka 4 has neither).
    """
    count, offset = 0, start
    while end - offset > _LENGTH_END + 4 and batches_max:
        batches_max -= 1
        length, magic = _BATCH.unpack_from(data, offset)
        after = offset + _LENGTH_END + length
        if after > end:
            break
        if magic == 2:
            if length < _V2_LENGTH_MIN:
                break
            attributes, records = _BATCH_V2.unpack_from(data, offset + _ATTRIBUTES)
            if records > 0 and not attributes & _CONTROL:
                room = length - _V2_LENGTH_MIN
                codec = attributes & _COMPRESSION
                most = room * _COMPRESSED_PER_BYTE[codec] if codec else room // RECORD_BYTES_MIN
                count += records if records <= most else most
        elif 0 <= magic < 2 and length >= _V1_LENGTH_MIN:
            count += 1
        else:
            break
        offset = after
    return count


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
    try:
        offset = response_body_offset(FETCH, version, frame)
        offset += (4 if version >= 1 else 0) + (6 if version >= 7 else 0)
        if is_flexible(FETCH, version):
            return _fetched_flexible(frame, offset, version >= FETCH_IDS_FROM)
        return _fetched_classic(frame, offset, version)
    except (struct.error, IndexError) as error:
        raise BadFrame(Reason.TRUNCATED_BODY) from error


def _fetched_classic(frame: Frame, offset: int, version: int) -> list[Passed]:
    # Index, error and high watermark; then the last stable and the log's start offset.
    before = 14 + (8 if version >= 4 else 0) + (8 if version >= 5 else 0)
    found = []
    (topics,) = _INT32.unpack_from(frame, offset)
    room = _room(FETCH_PARTS_MAX, topics)
    offset += 4
    for _ in range(topics):
        topic, offset = _classic_name(frame, offset)
        (partitions,) = _INT32.unpack_from(frame, offset)
        room = _room(room, partitions)
        offset += 4
        records = size = 0
        for _ in range(partitions):
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
        if size:
            found.append(Passed(topic, records, size))
    return found


def _fetched_flexible(frame: Frame, offset: int, ids: bool) -> list[Passed]:
    found = []
    topics, offset = read_uvarint(frame, offset)
    room = _room(FETCH_PARTS_MAX, topics)
    for _ in range(topics - 1):
        topic, offset = _flexible_topic(frame, offset, ids)
        partitions, offset = read_uvarint(frame, offset)
        room = _room(room, partitions)
        records = size = 0
        for _ in range(partitions - 1):
            # Index, error, high watermark, last stable and log start offset.
            aborted, offset = read_uvarint(frame, offset + 30)
            room = _room(room, aborted - 1)
            for _ in range(aborted - 1):
                offset = _after_tags(frame, offset + 16)
            length, start = read_uvarint(frame, offset + 4)
            offset = start + max(0, length - 1)
            if length > 1:
                size += length - 1
                records += count_records(frame, start, _within(frame, offset))
            offset = _after_tags(frame, offset)
        offset = _after_tags(frame, offset)
        if size:
            found.append(Passed(topic, records, size))
    return found


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
        return Fetching(_fetch_topics(frame, offset, version), limit_offset, limit_bytes, full)
    except (struct.error, IndexError) as error:
        raise BadFrame(Reason.TRUNCATED_BODY) from error


def _fetch_topics(frame: Frame, offset: int, version: int) -> list[bytes]:
    # Index, offset and size limit; leader epoch, log start and the epoch fetched last.
    width = 16 + (4 if version >= 9 else 0) + (8 if version >= 5 else 0) + (4 if version >= 12 else 0)
    topics: list[bytes] = []
    if not is_flexible(FETCH, version):
        (count,) = _INT32.unpack_from(frame, offset)
        _room(FETCH_PARTS_MAX, count)
        offset += 4
        for _ in range(count):
            topic, offset = _classic_name(frame, offset)
            (partitions,) = _INT32.unpack_from(frame, offset)
            offset = _within(frame, offset + 4 + width * max(0, partitions))
            topics.append(topic)
        return topics
    count, offset = read_uvarint(frame, offset)
    room = _room(FETCH_PARTS_MAX, count)
    for _ in range(count - 1):
        topic, offset = _flexible_topic(frame, offset, version >= FETCH_IDS_FROM)
        partitions, offset = read_uvarint(frame, offset)
        room = _room(room, partitions)
        for _ in range(partitions - 1):
            offset = _after_tags(frame, offset + width)
        offset = _after_tags(frame, offset)
        topics.append(topic)
    return topics


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
