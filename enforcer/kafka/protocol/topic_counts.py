"""How many partitions topics have: what a lookup said, corrected by what was changed a moment ago.

A KRaft broker learns of a change some ms after the controller has answered it. A client that creates and at
once deletes would be told by the broker's metadata that there was nothing to count.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCounts:
    """What a lookup said about topics.

    Attributes:
        by_name: partition count per name asked for; None if there is no such topic. Names that the client
            may not describe, or that failed, are missing.
        by_id: the same per topic id.
        names: topic id -> name, of every topic seen.
        broker_count: brokers alive.
    """

    by_name: Mapping[str, int | None]
    by_id: Mapping[bytes, int | None]
    names: Mapping[bytes, str]
    broker_count: int

    def merged(self, other: "TopicCounts") -> "TopicCounts":
        """Both lookups together; where both know a topic, `other` counts."""
        return TopicCounts(
            by_name={**self.by_name, **other.by_name},
            by_id={**self.by_id, **other.by_id},
            names={**self.names, **other.names},
            broker_count=max(self.broker_count, other.broker_count),
        )


NOTHING_KNOWN: Final = TopicCounts(by_name={}, by_id={}, names={}, broker_count=0)


class RecentTopics:
    """Partition counts as the last answers left them, for a short time.

    Args:
        keep_ms: how long an answer is believed rather than the broker's metadata.
        topics_max: bound on topics kept; the oldest goes first.
    """

    def __init__(self, *, keep_ms: float, topics_max: int) -> None:
        self._keep_ms = keep_ms
        self._topics_max = topics_max
        self._counts: dict[str | bytes, tuple[int | None, float]] = {}

    def note(self, name: str | None, topic_id: bytes | None, count: int | None, now_ms: float) -> None:
        """A topic has this many partitions now; None: it is gone. By name, by id or both."""
        for key in (name, topic_id):
            if key is None:
                continue
            self._counts.pop(key, None)
            if len(self._counts) >= self._topics_max:
                del self._counts[next(iter(self._counts))]
            self._counts[key] = (count, now_ms)

    def over(self, topics: TopicCounts, now_ms: float) -> TopicCounts:
        """What a lookup said, corrected by what is known better."""
        return replace(
            topics,
            by_name={name: self._newer(name, count, now_ms) for name, count in topics.by_name.items()},
            by_id={key: self._newer(key, count, now_ms) for key, count in topics.by_id.items()},
        )

    def _newer(self, key: str | bytes, looked_up: int | None, now_ms: float) -> int | None:
        count, noted_ms = self._counts.get(key, (None, float("-inf")))
        return count if noted_ms + self._keep_ms > now_ms else looked_up
