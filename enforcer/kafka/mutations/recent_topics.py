"""Partition counts that the brokers do not tell yet: those that were changed through us a moment ago.

A KRaft broker learns of a change some ms after the controller has answered it. A client that creates and at
once deletes would be told by the broker's metadata that there was nothing to count.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from cachetools import TTLCache

from enforcer.wire.kafka.messages import TopicCounts

DEFAULT_PARTITIONS: Final = 1
"""Of a topic created with -1, until num.partitions is read from the cluster: Kafka's own default."""
RECENT_TOPIC_MS: Final = 5_000
"""So long our own answers are believed about a topic's partitions, not the metadata, which may lag by
seconds."""
RECENT_TOPICS_MAX: Final = 10_000
"""Topics known that way; the one used longest ago goes first."""


class RecentTopics:
    """Partition counts as the last answers left them, for a short time.

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
