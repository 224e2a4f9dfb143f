"""What is remembered of the partitions of a cluster from one check to the next."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from streaming.collect.kafka.ledgers import Stretches
from streaming.collect.kafka.partitions import Extent, Partition, Place

REPORTS_MAX: Final = 8
"""Reports of a topic that may still be acted on; a plan on an older one has been overtaken by newer ones."""


@dataclass(slots=True, kw_only=True)
class KnownPartition:
    """One partition.

    Attributes:
        place: where it is, as last read.
        stretches: its log.
        reports: times of the last reports on it.
    """

    place: Place
    stretches: Stretches
    reports: deque[int] = field(default_factory=lambda: deque(maxlen=REPORTS_MAX))


class Partitions:
    """All that are known, by Kafka's name and by topic.

    Args:
        ledgers_max: stretches of one, the open one included.

    Attributes:
        there: topics that the cluster has, also those that could not be read so far.
    """

    def __init__(self, ledgers_max: int) -> None:
        self._closed_max = ledgers_max - 1
        self._known: dict[Partition, KnownPartition] = {}
        self._by_topic: dict[str, KnownPartition] = {}
        self.there: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self._known)

    def topic(self, full: str) -> KnownPartition | None:
        """The partition that a topic is; None: not known."""
        return self._by_topic.get(full)

    def keep(self, places: Collection[Place]) -> None:
        """Forget all that the cluster does not have any more; one that was created anew is another."""
        ids = {place.partition: place.topic_id for place in places}
        self.there = frozenset(place.full for place in places)
        self._known = {
            partition: own
            for partition, own in self._known.items()
            if ids.get(partition) == own.place.topic_id
        }

    def unseen(self, places: Iterable[Place]) -> list[Place]:
        """Those that are seen first."""
        return [place for place in places if place.partition not in self._known]

    def take(
        self,
        places: Iterable[Place],
        extents: Mapping[Partition, Extent],
        marks: Mapping[Partition, list[tuple[int, int]]],
    ) -> None:
        """What a check has found."""
        for place in places:
            extent = extents.get(place.partition)
            if extent is None:
                continue
            known = self._known.get(place.partition)
            if known is None:
                stretches = Stretches.begun(
                    extent.start, extent.end, extent.size, marks.get(place.partition, ()), now=extent.ts
                )
                self._known[place.partition] = KnownPartition(place=place, stretches=stretches)
            else:
                known.place = place
                known.stretches.grow(extent.start, extent.end, extent.size, now=extent.ts)
        self._by_topic = {own.place.full: own for own in self._known.values()}

    def bound(self, known: KnownPartition, slowest: int, ts: int) -> None:
        """Keep the stretches of one within their number."""
        known.stretches.bound(self._closed_max, slowest, now=ts)
