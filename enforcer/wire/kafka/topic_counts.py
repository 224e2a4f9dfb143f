"""How many partitions topics have, as a Metadata response says."""

from collections.abc import Mapping
from dataclasses import dataclass
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
