"""What the items of a request cost: its partition mutations by Kafka's rules (docs/protocol_notes.md 1.3).

And what they are counted by, where the brokers' metadata does not tell it yet.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Final

from cachetools import TTLCache

from enforcer.wire.kafka.messages import TopicCounts
from enforcer.wire.kafka.mutations import MutationApi, MutationItem, MutationRequest, is_legal_name

DEFAULT_PARTITIONS: Final = 1
"""Of a topic created with -1, until num.partitions is read from the cluster: Kafka's own default."""
RECENT_TOPIC_MS: Final = 5_000
"""So long our own answers are believed about a topic's partitions, not the metadata, which may lag by
seconds."""
RECENT_TOPICS_MAX: Final = 10_000
"""Topics known that way; the one used longest ago goes first."""


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
    if item.assignments > 0:
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


class RecentTopics:
    """Partition counts that the brokers do not tell yet: as the last answers left them, for a short time.

    A KRaft broker learns of a change some ms after the controller has answered it. A client that creates and
    at once deletes would be told by the metadata that there was nothing to count.

    Attributes:
        default_partitions: the cluster's num.partitions, as far as it is known.

    Args:
        steady_ms: tells the time.
    """

    def __init__(self, steady_ms: Callable[[], float]) -> None:
        self.default_partitions = DEFAULT_PARTITIONS
        self._counts: TTLCache[str | bytes, int | None] = TTLCache(
            RECENT_TOPICS_MAX, RECENT_TOPIC_MS, steady_ms
        )

    def note(self, name: str | None, topic_id: bytes | None, count: int | None) -> None:
        """A topic has this many partitions now; None: it is gone. By name, by id or both."""
        for key in (name, topic_id):
            if key is not None:
                self._counts[key] = count

    def over(self, topics: TopicCounts) -> TopicCounts:
        """What a lookup said, corrected by what is known better."""
        newer = self._counts
        return replace(
            topics,
            by_name={name: newer.get(name, count) for name, count in topics.by_name.items()},
            by_id={key: newer.get(key, count) for key, count in topics.by_id.items()},
        )
