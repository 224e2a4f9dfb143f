"""Record batches and messages that carry them, made by kafka-python."""

import struct
import time
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse
from kafka.record import MemoryRecordsBuilder
from kafka_kit import CLIENT_ID, build, request, response

from enforcer.wire.kafka.frames import RequestHeader, parse_header

Topics = Mapping[str, list[bytes]]
"""Topic name -> the record batches of each of its partitions."""


_PARTITION = FetchRequest.fields["topics"].data_class.fields["partitions"].data_class
BEGAN_MS = time.time_ns() // 1_000_000
"""Records older than a topic keeps them are deleted half a minute after a broker's start."""


def batch(
    count: int, magic: int = 2, compression: int = 0, size: int = 10, key: bytes | None = None
) -> bytes:
    """One batch (magic 2) or a message set with so many records."""
    builder = MemoryRecordsBuilder(magic, compression, 1 << 20)
    for number in range(count):
        builder.append(timestamp=BEGAN_MS + number, key=key, value=b"x" * size)
    builder.close()
    return bytes(builder.buffer())


def topic_id(name: str) -> UUID:
    """An id that belongs to a name."""
    return UUID(bytes=name.encode().ljust(16, b"\1")[:16])


def key_of(name: str, ids: bool) -> bytes:
    """A topic as the walk reports it."""
    return topic_id(name).bytes if ids else name.encode()


def _named(name: str, version: int, field: str = "name") -> dict[str, Any]:
    return {"topic_id": topic_id(name)} if version >= 13 else {field: name}


def produce(
    version: int, topics: Topics, acks: int = 1, txn: str | None = None, client_id: str = CLIENT_ID
) -> tuple[bytes, RequestHeader]:
    """A Produce request v3-13."""
    data = [
        _named(name, version)
        | {"partition_data": [{"index": index, "records": one} for index, one in enumerate(batches)]}
        for name, batches in topics.items()
    ]
    fields: dict[str, Any] = {"transactional_id": txn, "acks": acks, "timeout_ms": 1000}
    message = build(ProduceRequest, version, topic_data=data, **fields)
    return request(message, client_id)


def produce_of(
    version: int, *topics: str | UUID, records: bytes, acks: int = 1, txn: str | None = None
) -> ApiMessage:
    """A Produce request for partition 0 of real topics, by name or id."""
    written = [{"index": 0, "records": records}]
    parts = [
        {"name" if isinstance(one, str) else "topic_id": one, "partition_data": written} for one in topics
    ]
    fields: dict[str, Any] = {"transactional_id": txn, "acks": acks, "timeout_ms": 10_000}
    return build(ProduceRequest, version, topic_data=parts, **fields)  # type: ignore[no-any-return]  # kafka-python has no types


def produce_response(version: int, errors: Mapping[str, list[int]]) -> bytes:
    """A Produce response v3-13: topic name -> the error of each of its partitions."""
    data = [
        _named(name, version)
        | {
            "partition_responses": [
                {"index": index, "error_code": error, "error_message": "no" if error else None}
                for index, error in enumerate(each)
            ]
        }
        for name, each in errors.items()
    ]
    return response(build(ProduceResponse, version, responses=data))


def fetch_response(version: int, topics: Topics, aborted: int = 0, **fields: Any) -> bytes:
    """A Fetch response v4-18."""
    others = {"aborted_transactions": [{"producer_id": 1, "first_offset": 2}] * aborted}
    data = [
        _named(name, version, "topic")
        | {
            "partitions": [
                {"partition_index": index, "records": records, **others}
                for index, records in enumerate(batches)
            ]
        }
        for name, batches in topics.items()
    ]
    return response(build(FetchResponse, version, responses=data, **fields))


def fetch_request(
    version: int, topics: Mapping[str, int], max_bytes: int = 1 << 20, epoch: int = 0, session: int = 0,
    offset: int = 0, min_bytes: int = 1, max_wait_ms: int = 500,
    forgotten: Mapping[str, list[int]] | None = None,
) -> tuple[bytes, RequestHeader]:  # fmt: skip
    """A Fetch request v4-18 for topics with so many partitions; after a thousand their numbers repeat."""
    most, part = max(topics.values(), default=0), {"fetch_offset": offset, "partition_max_bytes": 1 << 20}
    parts = [build(_PARTITION, version, partition=one, **part) for one in range(min(most, 1_000))]
    data = [
        _named(name, version, "topic") | {"partitions": [parts[one % 1_000] for one in range(count)]}
        for name, count in topics.items()
    ]
    values: dict[str, Any] = {"max_wait_ms": max_wait_ms, "min_bytes": min_bytes, "max_bytes": max_bytes}
    if version >= 7:
        left = (forgotten or {}).items()
        gone = [_named(name, version, "topic") | {"partitions": numbers} for name, numbers in left]
        values |= {"session_epoch": epoch, "session_id": session, "forgotten_topics_data": gone}
    return request(build(FetchRequest, version, topics=data, **values))


def fetch_of(
    version: int, *topics: str | UUID, offset: int = 0, most: int = 1 << 20, **fields: Any
) -> ApiMessage:
    """A Fetch request for partition 0 of real topics, by name or id; in no session, if no field says else."""
    asked = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": most}]
    parts = [{"topic" if isinstance(one, str) else "topic_id": one, "partitions": asked} for one in topics]
    given = {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1 << 22, "session_epoch": -1, **fields}
    return build(FetchRequest, version, topics=parts, **given)  # type: ignore[no-any-return]  # kafka-python has no types


def old_produce(topics: Topics) -> tuple[bytes, RequestHeader]:
    """A Produce request v1, which kafka-python has no more."""
    frame = struct.pack(">hhihhii", 0, 1, 7, -1, 1, 1000, len(topics)) + _old_topics(topics, b"")
    return frame, parse_header(frame)


def old_fetch_response(version: int, topics: Topics) -> bytes:
    """A Fetch response v0-3."""
    throttle = struct.pack(">i", 0) if version >= 1 else b""
    head = struct.pack(">i", 7) + throttle + struct.pack(">i", len(topics))
    return head + _old_topics(topics, struct.pack(">hq", 0, 9))


def _old_topics(topics: Topics, before: bytes) -> bytes:
    parts = []
    for name, batches in topics.items():
        parts.append(struct.pack(">h", len(name)) + name.encode() + struct.pack(">i", len(batches)))
        for index, records in enumerate(batches):
            parts.append(struct.pack(">i", index) + before + struct.pack(">i", len(records)) + records)
    return b"".join(parts)
