"""Requests that create, grow or delete topics: read them, count their partition mutations, cut them down.

A request is never encoded again: items that go on are copied byte for byte, tagged fields included.
Sources: docs/protocol_notes.md 1.2 (versions), 1.3 (what is charged).
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Final

from enforcer.wire.kafka import fields
from enforcer.wire.kafka.fields import INT32_ARRAY, STRING, Cursor
from enforcer.wire.kafka.frames import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    BadFrame,
    Reason,
    RequestHeader,
    is_flexible,
)
from enforcer.wire.kafka.topic_counts import TopicCounts


class MutationApi(IntEnum):
    """The three admin APIs, by key."""

    CREATE_TOPICS = CREATE_TOPICS
    DELETE_TOPICS = DELETE_TOPICS
    CREATE_PARTITIONS = CREATE_PARTITIONS

    @property
    def event_name(self) -> str:
        """Kafka's name, as request events carry it."""
        return _EVENT_NAMES[self]


_EVENT_NAMES: Final[Mapping[MutationApi, str]] = MappingProxyType(
    {
        MutationApi.CREATE_TOPICS: "CreateTopics",
        MutationApi.DELETE_TOPICS: "DeleteTopics",
        MutationApi.CREATE_PARTITIONS: "CreatePartitions",
    }
)
# From this version a client is told error 89 per topic; before it, everything is done and then throttled.
STRICT_FROM: Final[Mapping[int, int]] = MappingProxyType(
    {CREATE_TOPICS: 6, DELETE_TOPICS: 5, CREATE_PARTITIONS: 3}
)
MUTATION_KEYS: Final = frozenset(STRICT_FROM)


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationItem:
    """One topic of a request.

    Attributes:
        position: index in the request, from 0.
        name: None when the topic is named by id.
        topic_id: 16 bytes, None when the topic is named by name.
        partitions: create: num_partitions as sent (-1: the cluster's default, or see assignments); grow: the
            total asked for; delete: -1.
        replication_factor: create: as sent, else -1.
        assignments: create: number of manual assignments; grow: the same, -1 if none are given; else 0.
        start: offset of its first byte in the frame.
        end: offset after its last byte.
    """

    position: int
    name: str | None
    topic_id: bytes | None
    partitions: int
    replication_factor: int
    assignments: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationRequest:
    """A CreateTopics, DeleteTopics or CreatePartitions request.

    Attributes:
        api: which.
        version: its version.
        correlation_id: number that the response must repeat.
        validate_only: a dry run; always False for DeleteTopics, which has none.
        timeout_ms: how long the client lets the broker work.
        items: the topics, in request order.
        frame: the whole request.
        list_start: offset of the length of the topic list.
        list_end: offset after the list.
    """

    api: MutationApi
    version: int
    correlation_id: int
    validate_only: bool
    timeout_ms: int
    items: tuple[MutationItem, ...]
    frame: bytes
    list_start: int
    list_end: int

    @property
    def strict(self) -> bool:
        """Whether the client understands error 89."""
        return self.version >= STRICT_FROM[self.api]

    @property
    def flexible(self) -> bool:
        """Whether the version has compact fields and tagged sections."""
        return is_flexible(self.api, self.version)


DETAILS_PER_ITEM: Final = 10
"""Manual assignments and configurations of a request, for each of the topics that it may have."""


class TooManyItems(Exception):
    """A request has more topics, or details of topics, than are gone through.

    Attributes:
        request: what was read of it, to be answered and not to be forwarded.
    """

    def __init__(self, request: MutationRequest) -> None:
        super().__init__(f"{request.api.event_name} with too many items")
        self.request = request


def decode_request(frame: bytes, header: RequestHeader, items_max: int = fields.ROWS_MAX) -> MutationRequest:
    """Reads CreateTopics 2-7, DeleteTopics 1-6 or CreatePartitions 0-3.

    Args:
        frame: the request.
        header: its header.
        items_max: topics that it may have, and DETAILS_PER_ITEM as many assignments and configurations.

    Raises:
        BadFrame: the request ends too early, has bytes left over, or a length in it is impossible.
        TooManyItems: it has more of them.
        ValueError: it is another API.
    """
    api, version = MutationApi(header.api_key), header.api_version
    cursor = Cursor(frame, header.body_offset, is_flexible(api, version))
    cursor.room = items_max * DETAILS_PER_ITEM
    read = _READERS[api]
    items: list[MutationItem] = []
    count = max(0, cursor.array_length())
    start = cursor.offset
    try:
        for position in range(min(count, items_max)):
            start = cursor.offset
            items.append(read(cursor, version, position))
    except BadFrame:
        if cursor.room >= 0:
            raise
        cursor.offset, count = start, items_max + 1
        items.append(_undetailed(cursor, len(items)))
    if count > items_max:
        part = MutationRequest(
            api=api, version=version, correlation_id=header.correlation_id, validate_only=False,
            timeout_ms=0, items=tuple(items), frame=frame, list_start=0, list_end=0,
        )  # fmt: skip
        raise TooManyItems(part)
    list_end = cursor.offset
    timeout_ms = cursor.int32()
    validate_only = api is not MutationApi.DELETE_TOPICS and cursor.int8() != 0
    cursor.skip_tags()
    if cursor.offset != len(frame):
        raise BadFrame(Reason.BAD_VALUE)
    return MutationRequest(
        api=api,
        version=version,
        correlation_id=header.correlation_id,
        validate_only=validate_only,
        timeout_ms=timeout_ms,
        items=tuple(items),
        frame=frame,
        list_start=header.body_offset,
        list_end=list_end,
    )


def _read_creation(cursor: Cursor, version: int, position: int) -> MutationItem:
    start = cursor.offset
    name, partitions, replication_factor = cursor.string(), cursor.int32(), cursor.int16()
    assignments = max(0, cursor.skip_rows(before=4, parts=(INT32_ARRAY,)))
    cursor.skip_rows(parts=(STRING, STRING))  # configurations
    cursor.skip_tags()
    return MutationItem(
        position=position, name=name, topic_id=None, partitions=partitions, start=start, end=cursor.offset,
        replication_factor=replication_factor, assignments=assignments,
    )  # fmt: skip


def _read_deletion(cursor: Cursor, version: int, position: int) -> MutationItem:
    start = cursor.offset
    name: str | None
    topic_id = None
    if version >= 6:
        name, topic_id = cursor.nullable_string(), cursor.raw(len(fields.NO_ID))
        cursor.skip_tags()
    else:
        name = cursor.string()
    if topic_id == fields.NO_ID:
        topic_id = None
    return MutationItem(
        position=position, name=name, topic_id=topic_id, partitions=-1, start=start, end=cursor.offset,
        replication_factor=-1, assignments=0,
    )  # fmt: skip


def _read_growth(cursor: Cursor, version: int, position: int) -> MutationItem:
    start = cursor.offset
    name, count = cursor.string(), cursor.int32()
    assignments = cursor.skip_rows(parts=(INT32_ARRAY,))
    cursor.skip_tags()
    return MutationItem(
        position=position, name=name, topic_id=None, partitions=count, start=start, end=cursor.offset,
        replication_factor=-1, assignments=assignments,
    )  # fmt: skip


def _undetailed(cursor: Cursor, position: int) -> MutationItem:
    """An item that begins at the cursor, by its name alone."""
    start = cursor.offset
    return MutationItem(
        position=position, name=cursor.nullable_string(), topic_id=None, partitions=-1, start=start,
        end=cursor.offset, replication_factor=-1, assignments=0,
    )  # fmt: skip


_READERS: Final[Mapping[MutationApi, Callable[[Cursor, int, int], MutationItem]]] = MappingProxyType(
    {
        MutationApi.CREATE_TOPICS: _read_creation,
        MutationApi.DELETE_TOPICS: _read_deletion,
        MutationApi.CREATE_PARTITIONS: _read_growth,
    }
)


def subset(request: MutationRequest, keep: Collection[int]) -> bytes:
    """The request's frame with only the items at the positions in `keep`, in their order."""
    kept = [request.frame[item.start : item.end] for item in request.items if item.position in keep]
    if len(kept) == len(request.items):
        return request.frame
    count = fields.array_length(len(kept), request.flexible)
    head, tail = request.frame[: request.list_start], request.frame[request.list_end :]
    return b"".join((head, count, *kept, tail))


class Cost(Enum):
    """Why an item costs what it costs. All but CHARGED cost 0 and go to the broker without asking."""

    CHARGED = "charged"
    DUPLICATE = "duplicate"
    INVALID_NAME = "invalid_name"
    INVALID_SHAPE = "invalid_shape"
    EXISTS = "exists"
    UNKNOWN_TOPIC = "unknown_topic"
    NOT_AN_INCREASE = "not_an_increase"


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemCost:
    """What one item costs.

    Attributes:
        item: the item.
        mutations: partitions created, added or deleted; 0 unless charged.
        cost: why.
    """

    item: MutationItem
    mutations: int
    cost: Cost

    @property
    def charged(self) -> bool:
        """Whether the quota must be asked; otherwise the item is forwarded, and the broker refuses it."""
        return self.cost is Cost.CHARGED


_MAX_NAME_LENGTH: Final = 249
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
# A topic that the client may not describe, or whose lookup failed: at least one partition is changed if the
# broker does it at all, and the refund makes up for it if it does not.
_UNKNOWN_COUNT_MUTATIONS: Final = 1


def count_mutations(
    request: MutationRequest, topics: TopicCounts, default_partitions: int
) -> tuple[ItemCost, ...]:
    """The partition mutations of every item, by Kafka's rules (docs/protocol_notes.md 1.3).

    A broker validates before it charges, so what is bound to fail costs nothing. What cannot be seen from
    here (authorisation, create policies, configurations) is charged and refunded after the broker's answer.

    Args:
        topics: what is known of the topics that the request names.
        default_partitions: the cluster's `num.partitions`.
    """
    seen = Counter(_identity(item, topics) for item in request.items)
    count = _COUNTERS[request.api]
    costs = []
    for item in request.items:
        if seen[_identity(item, topics)] > 1:
            mutations, cost = 0, Cost.DUPLICATE
        else:
            mutations, cost = count(item, topics, default_partitions)
        costs.append(ItemCost(item=item, mutations=mutations, cost=cost))
    return tuple(costs)


def _identity(item: MutationItem, topics: TopicCounts) -> str | bytes | None:
    """A topic's name, also for one named by id if the name is known: both in one request are duplicates."""
    if item.name is not None or item.topic_id is None:
        return item.name
    return topics.names.get(item.topic_id, item.topic_id)


def _creation_cost(item: MutationItem, topics: TopicCounts, default_partitions: int) -> tuple[int, Cost]:
    name = item.name or ""
    if not is_legal_name(name):
        return 0, Cost.INVALID_NAME
    if topics.by_name.get(name) is not None:
        return 0, Cost.EXISTS
    if item.assignments:
        if item.partitions != -1 or item.replication_factor != -1:
            return 0, Cost.INVALID_SHAPE
        return item.assignments, Cost.CHARGED
    partitions = default_partitions if item.partitions == -1 else item.partitions
    factor = item.replication_factor
    too_many_replicas = 0 < topics.broker_count < factor
    if partitions <= 0 or factor == 0 or factor < -1 or too_many_replicas:
        return 0, Cost.INVALID_SHAPE
    return partitions, Cost.CHARGED


def _deletion_cost(item: MutationItem, topics: TopicCounts, default_partitions: int) -> tuple[int, Cost]:
    if item.topic_id is not None:
        if item.name is not None:
            return 0, Cost.INVALID_SHAPE
        count = topics.by_id.get(item.topic_id, _UNKNOWN_COUNT_MUTATIONS)
    elif item.name is not None:
        if not is_legal_name(item.name):
            return 0, Cost.INVALID_NAME
        count = topics.by_name.get(item.name, _UNKNOWN_COUNT_MUTATIONS)
    else:
        count = None
    return (0, Cost.UNKNOWN_TOPIC) if count is None else (count, Cost.CHARGED)


def _growth_cost(item: MutationItem, topics: TopicCounts, default_partitions: int) -> tuple[int, Cost]:
    name = item.name or ""
    if not is_legal_name(name):
        return 0, Cost.INVALID_NAME
    if name not in topics.by_name:
        return _UNKNOWN_COUNT_MUTATIONS, Cost.CHARGED
    current = topics.by_name[name]
    if current is None:
        return 0, Cost.UNKNOWN_TOPIC
    added = item.partitions - current
    if added <= 0:
        return 0, Cost.NOT_AN_INCREASE
    # Manual assignments must list exactly the partitions that are added.
    return (added, Cost.CHARGED) if item.assignments in (-1, added) else (0, Cost.INVALID_SHAPE)


_COUNTERS: Final[Mapping[MutationApi, Callable[[MutationItem, TopicCounts, int], tuple[int, Cost]]]] = (
    MappingProxyType(
        {
            MutationApi.CREATE_TOPICS: _creation_cost,
            MutationApi.DELETE_TOPICS: _deletion_cost,
            MutationApi.CREATE_PARTITIONS: _growth_cost,
        }
    )
)


def is_legal_name(name: str) -> bool:
    """Whether Kafka accepts this as the name of a new topic."""
    return (
        name not in (".", "..") and len(name) <= _MAX_NAME_LENGTH and _LEGAL_NAME.fullmatch(name) is not None
    )
