"""CreateTopics, DeleteTopics and CreatePartitions messages by kafka-python's classes."""

import uuid
from typing import Any

from kafka.protocol.admin.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from kafka_kit import build

from enforcer.wire.kafka.frames import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS

CREATIONS = range(2, 8)
DELETIONS = range(1, 7)
GROWTHS = range(4)
CASES = [
    *((CREATE_TOPICS, version) for version in CREATIONS),
    *((DELETE_TOPICS, version) for version in DELETIONS),
    *((CREATE_PARTITIONS, version) for version in GROWTHS),
]
"""Every version of each."""


def naming(api: int, version: int, *names: str) -> Any:
    """A request of any of them for these topics, of three partitions each."""
    if api == CREATE_TOPICS:
        return create(version, *((name, 3, 1, 2) for name in names))
    if api == DELETE_TOPICS:
        return delete(version, *names)
    return grow(version, *((name, 3, 1) for name in names))


def create(version: int, *rows: tuple[str, int, int, int], **values: Any) -> Any:
    """Rows of (name, partitions, replication factor, number of manual assignments)."""
    configs = [{"name": "retention.ms", "value": "1"}, {"name": "cleanup.policy", "value": None}]
    topics = [
        {
            "name": name, "num_partitions": partitions, "replication_factor": factor, "configs": configs,
            "assignments": [{"partition_index": one, "broker_ids": [1, 2]} for one in range(assignments)],
        }
        for name, partitions, factor, assignments in rows
    ]  # fmt: skip
    return build(CreateTopicsRequest, version, topics=topics, **{"timeout_ms": 1, **values})


def delete(version: int, *topics: str | bytes, **values: Any) -> Any:
    """Topics by name, from version 6 on also by id."""
    values = {"timeout_ms": 1, **values}
    if version < 6:
        return build(DeleteTopicsRequest, version, topic_names=list(topics), **values)
    rows = [
        {"name": topic, "topic_id": uuid.UUID(int=0)}
        if isinstance(topic, str)
        else {"name": None, "topic_id": uuid.UUID(bytes=topic)}
        for topic in topics
    ]
    return build(DeleteTopicsRequest, version, topics=rows, **values)


def grow(version: int, *rows: tuple[str, int, int | None], **values: Any) -> Any:
    """Rows of (name, total count, number of manual assignments or None)."""
    topics = [
        {
            "name": name, "count": count,
            "assignments": None if assignments is None else [{"broker_ids": [1, 2]}] * assignments,
        }
        for name, count, assignments in rows
    ]  # fmt: skip
    values = {"timeout_ms": 1, "validate_only": False, **values}
    return build(CreatePartitionsRequest, version, topics=topics, **values)
