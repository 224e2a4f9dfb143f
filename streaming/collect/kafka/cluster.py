"""A Kafka cluster's backlogs, read and relieved (docs/contract.md 3.5, "On Kafka"; docs/backlog/kafka.md)."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaException

from streaming.collect.backlog.cluster import RoundQuestion, RoundResult, now_ms, unnamed_report
from streaming.collect.kafka.actor import BacklogActor
from streaming.collect.kafka.connection import Connection, Unanswered
from streaming.collect.kafka.evictor import KafkaEvictor
from streaming.collect.kafka.groups import CommittedOffsets, GroupReader
from streaming.collect.kafka.partitions import (
    Extent,
    KnownPartition,
    Partition,
    PartitionReader,
    Partitions,
    Place,
    places,
)
from streaming.collect.kafka.publish_times import PublishTimes, Spot
from streaming.contract.broker_events import Backlog, Subscription
from streaming.contract.errors import WeirError
from streaming.contract.namespaces import Namespaces
from streaming.contract.topics import Cluster

LOOK_S: Final = 30.0
"""Limit of reading the whole cluster, or half the interval if longer; what is unread by then is left out."""
PARTITIONS_MAX: Final = 100_000
"""Partitions whose stretches are kept; others are counted as unread."""
STRETCHES_MAX: Final = 63
"""Stretches that are kept of a partition beside the open one: an hour of checks, and less of what is older;
beyond it neighbours are merged."""
FIRST_STEP_MS: Final = 60_000
"""A topic that is seen first is divided at this age, and at twice, four times it and so on."""
FIRST_STEPS: Final = 12
"""How many such divisions there are at most: the last at 34 hours and more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """A topic that is reported once publish times are known.

    Attributes:
        known: its partition.
        extent: where it begins and ends.
        offsets: how far groups have come.
        slowest: the smallest of them; its end without any.
    """

    known: KnownPartition
    extent: Extent
    offsets: Mapping[str, int]
    slowest: int

    def spot(self, committed: int) -> Spot | None:
        """Where the first record is that a group has not acknowledged; None: there is none."""
        if committed >= self.extent.end:
            return None
        place = self.known.place
        return Spot(place.topic_id, place.partition, max(committed, self.extent.start))


class KafkaCluster:
    """A BacklogCluster: groups are subscriptions of the partitions for which they have offsets.

    Args:
        cluster: with Weir's own topics, which are left out.
        namespaces: which topic a Kafka name means.
    """

    def __init__(self, cluster: Cluster, namespaces: Namespaces) -> None:
        self._namespaces = namespaces
        self._own_prefix = cluster.topics.prefix
        self._connection = Connection(cluster)
        self._reader = PartitionReader(self._connection)
        self._groups = GroupReader(self._connection)
        self._partitions = Partitions()
        self._times = PublishTimes(cluster)
        acting = BacklogActor(self._connection, self._reader, self._groups)
        evicting = KafkaEvictor(acting, self._partitions)
        self.prepare, self.carry_out, self.passed = evicting.prepare, evicting.carry_out, evicting.passed

    async def look(self, wants: RoundQuestion) -> RoundResult:
        """Read all topics (see BacklogCluster)."""
        try:
            with self._connection.within(max(LOOK_S, wants.interval_s / 2)):
                return await self._look(wants)
        except Unanswered:
            # Whatever state the connections are in, the next check starts from fresh ones.
            await asyncio.to_thread(self._connection.close)
            raise

    async def _look(self, wants: RoundQuestion) -> RoundResult:
        looked = RoundResult()
        metadata = await self._connection.metadata(None)
        there, wrong = places(metadata.topics, self._namespaces, self._own_prefix)
        looked.failures += wrong
        looked.unread += len(wrong)
        self._partitions.keep(there)
        led = self._readable(there, looked)
        extents = await self._reader.extents(led, looked.failures)
        looked.unread += len(led) - len(extents)
        unseen = [place for place in self._partitions.unseen(led) if place.partition in extents]
        marks = await self._reader.marks(unseen, _first_times(), looked.failures)
        self._partitions.take(led, extents, marks)
        # Offsets after ends: who reads as fast as others write has no backlog.
        committed = await self._groups.read(metadata)
        looked.failures += committed.failures
        drafts = self._drafts(led, extents, committed)
        looked.unread += len(extents) - len(drafts)
        times = await self._publish_times(drafts, wants, looked)
        looked.reports = [self._report(draft, times) for draft in drafts]
        return looked

    def _readable(self, there: Sequence[Place], looked: RoundResult) -> list[Place]:
        """Those that can be asked for; others are counted."""
        led = [place for place in there if place.leader >= 0]
        if len(led) < len(there):
            looked.failures.append(f"{len(there) - len(led)} partitions have no leader")
        if len(led) > PARTITIONS_MAX:
            looked.failures.append(f"{len(led)} partitions; {PARTITIONS_MAX} are read")
        looked.unread += len(there) - len(led[:PARTITIONS_MAX])
        return led[:PARTITIONS_MAX]

    def _drafts(
        self, led: Sequence[Place], extents: Mapping[Partition, Extent], committed: CommittedOffsets
    ) -> list[_Draft]:
        """The topics of which all is known."""
        if committed.all_unknown:
            return []
        drafts = []
        for place in led:
            known = self._partitions.topic(place.full)
            extent = extents.get(place.partition)
            if known is None or extent is None or place.partition in committed.unknown:
                continue
            come = committed.offsets.get(place.partition, {})
            offsets = {group: one.position(extent.end) for group, one in come.items()}
            slowest = min([extent.end, *offsets.values()])
            known.stretches.bound(STRETCHES_MAX, slowest, now=extent.ts)
            drafts.append(_Draft(known=known, extent=extent, offsets=offsets, slowest=slowest))
        return drafts

    async def _publish_times(
        self, drafts: Sequence[_Draft], wants: RoundQuestion, looked: RoundResult
    ) -> Mapping[Spot, int | None]:
        """Those that the round needs, as far as there is time."""
        spots = set[Spot | None]()
        for draft in drafts:
            if wants.expires(draft.known.place.full):
                spots.update(map(draft.spot, draft.offsets.values()))
            elif wants.precise_age:
                spots.add(draft.spot(draft.slowest))
        wanted = {spot for spot in spots if spot is not None}
        found: Mapping[Spot, int | None] = {}
        try:
            found = await asyncio.to_thread(self._times.read, wanted)
        except (KafkaException, WeirError) as error:
            looked.failures.append(f"records were not read: {error}")
        if missed := len(wanted - found.keys()):
            looked.publish_times_missed = missed
            looked.failures.append(f"{missed} publish times were not read in time")
        return found

    def _report(self, draft: _Draft, times: Mapping[Spot, int | None]) -> Backlog:
        stretches, slowest = draft.known.stretches, draft.slowest
        draft.known.reports.append(draft.extent.ts)
        subscriptions = []
        for group, offset in sorted(draft.offsets.items()):
            ledger, entry = stretches.position(offset, slowest)
            spot = draft.spot(offset)
            subscriptions.append(
                Subscription(
                    name=group,
                    ledger=ledger,
                    entry=entry,
                    durable=True,
                    oldest_publish_time=None if spot is None else times.get(spot),
                )
            )
        topic, ts = draft.known.place.full, draft.extent.ts
        return unnamed_report(topic, ts, stretches.ledgers(slowest), subscriptions)

    def close(self) -> None:
        """Close all connections."""
        self._connection.close()
        self._times.close()


def _first_times() -> list[int]:
    now, step = now_ms(), FIRST_STEP_MS
    return [at for power in range(FIRST_STEPS) if (at := now - step * 2**power) > 0]
