"""Bodies that the proxy answers for: version ranges, Metadata requests, the lookup of partition counts.

Sources: docs/protocol_notes.md 3.1, 3.3 and 1.3.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from enforcer.kafka.guard.apis import HIDDEN, READABLE
from enforcer.wire.kafka import fields
from enforcer.wire.kafka.fields import INT32_ARRAY, STRING, Cursor
from enforcer.wire.kafka.frames import (
    API_VERSIONS,
    CORRELATION_BYTES,
    DELETE_TOPICS,
    FLEXIBLE_FROM,
    METADATA,
    RequestHeader,
    is_flexible,
    response_body_offset,
)
from enforcer.wire.kafka.topic_counts import TopicCounts

# An API that is not in READABLE passes with the broker's own range. Produce keeps minimum 0 there: older
# librdkafka looks for it (KAFKA-18659). SaslHandshake 0 would be followed by raw tokens without headers.
# The low ends of the admin APIs are those of a 4.1 broker.
_ANY: Final = (0, (1 << 15) - 1)
_AUTO_CREATION_FROM: Final = 4  # Metadata version with allow_auto_topic_creation
BY_ID_FROM: Final = 12  # the first Metadata version that can ask by topic id (Kafka 3.1)
_BY_NAME: Final = _AUTO_CREATION_FROM  # the first that can ask without creating anything: every broker has it
_DELETED_BY_ID_FROM: Final = 6


def unsupported(header: RequestHeader) -> bool:
    """Whether the proxy must close the connection, as a broker does on a version that it does not know.

    ApiVersions is never unsupported: a too-new one gets an answer, see `api_versions_refusal`.
    """
    key = header.api_key
    if key == API_VERSIONS:
        return False
    if key not in FLEXIBLE_FROM or key in HIDDEN:
        return True
    lowest, highest = READABLE.get(key, _ANY)
    return not lowest <= header.api_version <= highest


def api_versions_refusal(header: RequestHeader) -> bytes | None:
    """The answer to an ApiVersions request that is newer than we read; None if it may go to the broker.

    Error 35 in the form of version 0 with the range of ApiVersions itself; the client then asks again.
    """
    lowest, highest = READABLE[API_VERSIONS]
    if lowest <= header.api_version <= highest:
        return None
    row = fields.int16(API_VERSIONS) + fields.int16(lowest) + fields.int16(highest)
    return (
        fields.int32(header.correlation_id)
        + fields.int16(fields.UNSUPPORTED_VERSION)
        + fields.array_length(1, flexible=False)
        + row
    )


def limit_api_versions(response: bytes, version: int) -> bytes:
    """A broker's ApiVersions response reduced to what the proxy understands.

    Throttle time and the tagged section (features) are copied byte for byte. An error 35 comes in the form
    of version 0 whatever was asked, with the correlation id of the request.

    Raises:
        BadFrame: the response ends too early or a length in it is impossible.
    """
    start = response_body_offset(API_VERSIONS, version, response)
    return response[:start] + _limited(response[start:], version)


# A broker says the same for as long as it runs, to every client that comes: read it once per version.
@lru_cache(maxsize=64)
def _limited(body: bytes, version: int) -> bytes:
    error = Cursor(body, 0, False).int16()
    flexible = is_flexible(API_VERSIONS, version) and error != fields.UNSUPPORTED_VERSION
    cursor = Cursor(body, 2, flexible)
    said: dict[int, tuple[int, int, bytes]] = {}
    for _ in cursor.elements():
        key, low, high = cursor.int16(), cursor.int16(), cursor.int16()
        tags_start = cursor.offset
        cursor.skip_tags()
        said[key] = low, high, body[tags_start : cursor.offset]
    knows_ids = said.get(METADATA, (0, 0, b""))[1] >= BY_ID_FROM
    rows: list[bytes] = []
    for key, (low, high, row_tags) in said.items():
        if key not in FLEXIBLE_FROM or key in HIDDEN:
            continue
        lowest, highest = READABLE.get(key, _ANY)
        if key == DELETE_TOPICS and not knows_ids:
            # Kafka 2.8 and 3.0 delete by id what they cannot be asked for by id.
            highest = _DELETED_BY_ID_FROM - 1
        low, high = max(low, lowest), min(high, highest)
        if low <= high:
            rows.append(fields.int16(key) + fields.int16(low) + fields.int16(high) + row_tags)
    count = fields.array_length(len(rows), flexible)
    return b"".join((body[:2], count, *rows, body[cursor.offset :]))


def forbid_auto_creation(frame: bytes, header: RequestHeader) -> tuple[bytes, bool]:
    """A Metadata request that creates no topics, and whether that changed it.

    Versions 0-3 have no flag and always create, so they become version 4: turn the answer back with
    `metadata_answer_as`. (Version 4 differs from 3 by the flag alone.)

    What was not read is not passed on: a byte behind the topics would be read in the flag's place. Brokers
    ignore such bytes, and librdkafka 2.16 sends three of them when it asks for all topics in version 13, so
    they are no reason to refuse the request.

    Raises:
        BadFrame: the request ends too early or a length in it is impossible.
    """
    version = header.api_version
    cursor = Cursor(frame, header.body_offset, is_flexible(METADATA, version))
    count = cursor.array_length()
    cursor.offset = header.body_offset
    cursor.skip_rows(before=len(fields.NO_ID) if version >= 10 else 0, parts=(STRING,))
    flag = cursor.offset
    if version < _AUTO_CREATION_FROM:
        # In version 0 an empty list asks for all topics; later versions say that with a null list.
        topics = fields.int32(-1) if version == 0 and count == 0 else frame[header.body_offset : flag]
        head = frame[:2] + fields.int16(_AUTO_CREATION_FROM) + frame[4 : header.body_offset]
        return head + topics + b"\0", True
    creates = cursor.int8() != 0
    cursor.skip(0 if version < 8 else 2 if version <= 10 else 1)  # whether to tell authorized operations
    cursor.skip_tags()
    if not creates:
        return frame, False
    return frame[:flag] + b"\0" + frame[flag + 1 : cursor.offset], True


def metadata_answer_as(response: bytes, version: int) -> bytes:
    """A Metadata v4 response in the form of version 0-3; the correlation id stays.

    Raises:
        BadFrame: the response ends too early or a length in it is impossible.
    """
    if version == 3:
        return response
    cursor = Cursor(response, CORRELATION_BYTES, False)
    cursor.skip(4)  # throttle time, from version 3
    brokers_start = cursor.offset
    if version == 2:
        return response[:CORRELATION_BYTES] + response[brokers_start:]
    parts = [response[:CORRELATION_BYTES], response[brokers_start : brokers_start + 4]]
    for _ in cursor.elements():
        start = cursor.offset
        cursor.skip(4)
        cursor.skip_string()
        cursor.skip(4)
        end = cursor.offset
        cursor.skip_string()  # rack, from version 1
        parts.append(response[start : end if version == 0 else cursor.offset])
    cursor.skip_string()  # cluster id, from version 2
    if version == 1:
        return b"".join((*parts, response[cursor.offset :]))
    cursor.skip(4)  # controller id, from version 1
    parts.append(response[cursor.offset : cursor.offset + 4])
    for _ in cursor.elements():
        start = cursor.offset
        cursor.skip(2)
        cursor.skip_string()
        parts.append(response[start : cursor.offset])
        cursor.skip(1)  # is internal, from version 1
        start = cursor.offset
        _skip_partitions(cursor, _AUTO_CREATION_FROM)
        parts.append(response[start : cursor.offset])
    return b"".join(parts)


_UNKNOWN_TOPIC: Final = 3


def skip_brokers(cursor: Cursor, version: int) -> int:
    """Moves a cursor at the body of a Metadata response to its topics; returns how many brokers it names."""
    cursor.skip(4 if version >= 3 else 0)  # throttle time
    count = 0
    for _ in cursor.elements(rows=3):
        cursor.skip(4)
        cursor.skip_string()
        cursor.skip(4)
        if version >= 1:
            cursor.skip_string()  # rack
        cursor.skip_tags()
        count += 1
    if version >= 2:
        cursor.skip_string()  # cluster id
    cursor.skip(4 if version >= 1 else 0)  # controller
    return count


def unknown_topics(response: bytes, version: int) -> list[str]:
    """The topics that a Metadata response 0-13 does not know (error 3).

    Raises:
        BadFrame: the response ends too early or a length in it is impossible.
    """
    flexible = is_flexible(METADATA, version)
    cursor = Cursor(response, response_body_offset(METADATA, version, response), flexible)
    skip_brokers(cursor, version)
    unknown = []
    for _ in cursor.elements():
        error, name = cursor.int16(), cursor.nullable_string()
        cursor.skip((16 if version >= 10 else 0) + (1 if version >= 1 else 0))  # id, whether internal
        _skip_partitions(cursor, version)
        cursor.skip(4 if version >= 8 else 0)  # authorized operations
        cursor.skip_tags()
        if error == _UNKNOWN_TOPIC and name is not None:
            unknown.append(name)
    return unknown


def topics_request(
    correlation_id: int, client_id: bytes, names: Sequence[str], topic_ids: Sequence[bytes]
) -> bytes:
    """A Metadata request of our own that creates nothing, for `decode_topics`.

    Of a version that the broker has: whoever names topics by id was offered that by one that knows ids.

    Args:
        correlation_id: number that the response repeats.
        client_id: as the client wrote it, its length included (frames.client_id_field).
        names: topics to ask for.
        topic_ids: the same by id.

    Raises:
        ValueError: names and ids together; a broker would look at the ids only. Ask twice.
    """
    if names and topic_ids:
        raise ValueError("a Metadata request asks by name or by id, not both")
    version = BY_ID_FROM if topic_ids else _BY_NAME
    head = fields.int16(METADATA) + fields.int16(version) + fields.int32(correlation_id)
    if not topic_ids:
        names_left = [fields.string(name, False) for name in names]
        count = fields.array_length(len(names), False)
        return b"".join((head, client_id, count, *names_left, b"\0"))  # no auto creation
    rows = [topic_id + fields.string(None, True) + fields.NO_TAGS for topic_id in topic_ids]
    count = fields.array_length(len(rows), True)
    # Neither auto creation nor authorized operations.
    return b"".join((head, client_id, fields.NO_TAGS, count, *rows, b"\0\0", fields.NO_TAGS))


_NO_SUCH_TOPIC: Final = frozenset({_UNKNOWN_TOPIC, 17, 100})  # the others: invalid name, unknown topic id


def decode_topics(response: bytes, ids: bool) -> TopicCounts:
    """Reads the answer to `topics_request`.

    Args:
        response: the answer.
        ids: it was asked for topic ids.

    Raises:
        BadFrame: the response ends too early or a length in it is impossible.
    """
    version = BY_ID_FROM if ids else _BY_NAME
    cursor = Cursor(response, response_body_offset(METADATA, version, response), ids)
    brokers = skip_brokers(cursor, version)
    by_name: dict[str, int | None] = {}
    by_id: dict[bytes, int | None] = {}
    topic_names: dict[bytes, str] = {}
    for _ in cursor.elements():
        error, name = cursor.int16(), cursor.nullable_string()
        topic_id = cursor.raw(16) if ids else fields.NO_ID
        cursor.skip(1)
        partitions = _skip_partitions(cursor, version)
        cursor.skip(4 if ids else 0)
        cursor.skip_tags()
        if error not in (0, *_NO_SUCH_TOPIC) and not partitions:
            continue
        count = None if error in _NO_SUCH_TOPIC else partitions
        if name is not None:
            by_name[name] = count
        if topic_id != fields.NO_ID:
            by_id[topic_id] = count
            if name is not None:
                topic_names[topic_id] = name
    return TopicCounts(by_name=by_name, by_id=by_id, names=topic_names, broker_count=brokers)


def _skip_partitions(cursor: Cursor, version: int) -> int:
    """Moves over the partitions of a topic in a Metadata response; returns how many there are."""
    before = 2 + 4 + 4 + (4 if version >= 7 else 0)  # error, index, leader, leader epoch
    # All replicas, those in step, those that are off line.
    return max(0, cursor.skip_rows(before=before, parts=(INT32_ARRAY,) * (3 if version >= 5 else 2)))
