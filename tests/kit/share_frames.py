"""Requests and answers of share sessions, by Kafka's own definitions."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from kafka_kit import CLIENT_ID, CORRELATION_ID
from traffic_kit import topic_id

from enforcer.wire.kafka.codec import request_layout, response_layout
from enforcer.wire.kafka.frames import NO_TAGS, SHARE_FETCH, Fields, RequestHeader, int16, int32, parse_header

Acquired = tuple[int, int, int]
"""First and last offset, deliveries."""


def id_of(topic: str) -> bytes:
    """A topic's id."""
    found: UUID = topic_id(topic)
    return found.bytes


def share_request(
    topics: Sequence[str] = (), *, version: int = 2, epoch: int = 1, acknowledged: Sequence[str] = (),
    forgotten: Sequence[str] = (), group: str | None = "g", **more: Any,
) -> tuple[bytes, RequestHeader]:  # fmt: skip
    """A ShareFetch for partition 0 of topics, some of them acknowledged."""
    batch = {"FirstOffset": 0, "LastOffset": 0, "AcknowledgeTypes": [1]}
    named = [
        {"TopicId": id_of(topic), "Partitions": [
            {"PartitionIndex": 0, "AcknowledgementBatches": [batch] if topic in acknowledged else []}
        ]}
        for topic in dict.fromkeys((*topics, *acknowledged))
    ]  # fmt: skip
    body: Fields = {
        "GroupId": None if group is None else group.encode(), "MemberId": b"m", "ShareSessionEpoch": epoch,
        "MaxWaitMs": 500, "MinBytes": 1, "MaxBytes": 1 << 20, "MaxRecords": 500, "BatchSize": 500,
        "Topics": named,
        "ForgottenTopicsData": [{"TopicId": id_of(topic), "Partitions": [0]} for topic in forgotten],
        **more,
    }  # fmt: skip
    name = CLIENT_ID.encode()
    head = int16(SHARE_FETCH) + int16(version) + int32(CORRELATION_ID) + int16(len(name)) + name + NO_TAGS
    frame = head + request_layout(SHARE_FETCH, version).write(body)
    return frame, parse_header(frame)


def read_request(frame: bytes) -> Fields:
    """A ShareFetch as a broker reads it."""
    header = parse_header(frame)
    return request_layout(SHARE_FETCH, header.api_version).read(frame, header.body_offset)


class Waiting:
    """Requests of a connection, a held one in front (part.Behind)."""

    def __init__(self, *frames: bytes) -> None:
        self.data = b"".join(int32(len(frame)) + frame for frame in frames)
        self.pos, self.waiting, self.waiting_bytes = 0, len(frames), len(self.data)

    def copy(self, start: int, stop: int) -> bytes:
        """Some of the bytes."""
        return self.data[start:stop]


def share_response(
    topics: Mapping[str, tuple[bytes, Sequence[Acquired]]], version: int = 2, error: int = 0
) -> bytes:
    """What a broker brings of partition 0 of topics: records, and what of them was acquired."""
    rows = [
        {"TopicId": id_of(topic), "Partitions": [
            {"Records": records, "AcquiredRecords": [
                {"FirstOffset": first, "LastOffset": last, "DeliveryCount": delivery}
                for first, last, delivery in acquired
            ]}
        ]}
        for topic, (records, acquired) in topics.items()
    ]  # fmt: skip
    body: Fields = {"ErrorCode": error, "Responses": rows}
    return int32(CORRELATION_ID) + NO_TAGS + response_layout(SHARE_FETCH, version).write(body)
