"""Relieving a Kafka cluster: a group's offset is moved, or records are deleted (docs/backlog/kafka.md).

All that was true when a plan was made is looked at again before anything is done: that the topic is the same
one, where its log begins and ends, how far the group has come. What is planned is a position, never a number
of records, so doing it twice changes nothing.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from streaming.collect.backlog.cluster import CannotEvict, Eviction, NotKnown, Order
from streaming.collect.kafka.acting import Acting
from streaming.collect.kafka.connection import Connection, Unanswered
from streaming.collect.kafka.groups import INACTIVE, GroupReader
from streaming.collect.kafka.known import Known, Partitions
from streaming.collect.kafka.ledgers import offset_of
from streaming.collect.kafka.partitions import PartitionReader, Place
from streaming.collect.kafka.settings import KafkaBacklogSettings
from streaming.contract.backlog.actions import Position
from streaming.contract.backlog.decisions import Planned
from streaming.contract.broker_events import Backlog
from streaming.contract.printable import printable

OFFSETS: Final = "offsets"
DELETE_RECORDS: Final = "delete_records"
PREPARED_MAX: Final = 10_000
"""Evictions that are prepared and not carried out; beyond it the oldest have to be prepared again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """What an eviction was prepared from.

    Attributes:
        eviction: as it was told.
        place: the partition, with the id that its topic has to have.
        target: offset from which on records stay.
        also: groups that lose these records too by the same plan.
    """

    eviction: Eviction
    place: Place
    target: int
    also: frozenset[str]


class Evicting:
    """Carries orders out.

    Args:
        connection: the cluster.
        reader: of partitions.
        groups: of groups.
        partitions: what the checks have found.
        settings: limits.
    """

    def __init__(
        self,
        connection: Connection,
        reader: PartitionReader,
        groups: GroupReader,
        partitions: Partitions,
        settings: KafkaBacklogSettings,
    ) -> None:
        self._acting = Acting(connection, reader, groups, settings)
        self._partitions = partitions
        self._prepared: OrderedDict[tuple[str, str], _Prepared] = OrderedDict()

    async def prepare(self, order: Order) -> Eviction | None:
        """What carrying it out comes to; None: the group is there already, or has gone.

        Raises:
            CannotEvict: why not.
        """
        try:
            return await self._prepare(order)
        except Unanswered as error:
            raise CannotEvict(str(error)) from error

    async def _prepare(self, order: Order) -> Eviction | None:
        report, group = order.report, order.planned.subscription
        known = self._partitions.topic(report.topic)
        if known is None or report.ts not in known.reports:
            raise CannotEvict(
                f"the report of {report.ts} on {printable(report.topic)} was not made in this run"
            )
        place = await self._acting.still(known.place)
        start, end = await self._acting.extent(place)
        target = await self._target(report, order.planned, place)
        node = await self._acting.coordinator(group)
        committed = await self._acting.committed(place, node, group)
        if committed is None or max(committed, start) >= target:
            return None
        if target > end:
            raise CannotEvict(
                f"{printable(report.topic)} ends at {end} now, before the planned offset {target}"
            )
        state = await self._acting.state(group, node)
        how = OFFSETS if state in INACTIVE else DELETE_RECORDS
        if how == DELETE_RECORDS and not order.may_delete:
            raise CannotEvict(
                f"group {printable(group)} is active ({state}), so its offset cannot be moved: "
                "set allow_delete_records: true or stop it"
            )
        also = _also_planned(report, order.planned, target)
        if how == DELETE_RECORDS:
            await self._nobody_else(place, target, also, [one.name for one in report.subscriptions])
        return self._ready(known, place, group, how, since=max(committed, start), target=target, also=also)

    def _ready(
        self,
        known: Known,
        place: Place,
        group: str,
        how: str,
        *,
        since: int,
        target: int,
        also: frozenset[str],
    ) -> Eviction:
        eviction = Eviction(
            topic=place.full,
            subscription=group,
            how=how,
            since=known.stretches.position(since),
            upto=known.stretches.position(target),
            messages=target - since,
            bytes=known.stretches.bytes_between(since, target),
        )
        key = (place.full, group)
        self._prepared[key] = _Prepared(eviction=eviction, place=place, target=target, also=also)
        self._prepared.move_to_end(key)
        if len(self._prepared) > PREPARED_MAX:
            self._prepared.popitem(last=False)
        return eviction

    async def _target(self, report: Backlog, planned: Planned, place: Place) -> int:
        """The offset from which on records stay: never beyond the end that the report knew."""
        end = report.ledgers[-1].id
        if planned.ledger is not None and planned.entry is not None:
            return min(offset_of((planned.ledger, planned.entry)), end)
        if planned.before_publish_time is None:
            raise CannotEvict("the plan names neither a position nor a time")
        found = await self._acting.offset(place, max(0, planned.before_publish_time))
        # Nothing is as young. What was written since the report is in no plan, however old its records say.
        return end if found < 0 else min(found, end)

    async def _nobody_else(
        self, place: Place, target: int, also: frozenset[str], groups: Sequence[str]
    ) -> None:
        """DeleteRecords deletes for everybody: others must have read that far, or lose it too."""
        for name, offset in sorted((await self._acting.committed_by(place, groups)).items()):
            if offset < target and name not in also:
                raise CannotEvict(
                    f"group {printable(name)} has not read {printable(place.full)} up to offset {target} and"
                    " is not planned to lose that, but deleted records are gone for every group"
                )

    async def carry_out(self, eviction: Eviction) -> None:
        """Do it, and see that it was done.

        Raises:
            CannotEvict: it was refused, or it is not known whether it was done.
        """
        prepared = self._prepared.pop((eviction.topic, eviction.subscription), None)
        if prepared is None or prepared.eviction != eviction:
            raise CannotEvict("it was not prepared in this run, or prepared again since")
        try:
            place = await self._acting.still(prepared.place)
            start, end = await self._acting.extent(place)
            if prepared.target > end:
                raise CannotEvict(f"{printable(eviction.topic)} ends at {end} now")
            if start >= prepared.target:
                return
            if eviction.how == OFFSETS:
                await self._acting.move(place, eviction.subscription, prepared.target)
            else:
                # Of all groups of the cluster: one may have come since the report.
                await self._nobody_else(place, prepared.target, prepared.also, await self._acting.groups())
                await self._acting.delete(place, prepared.target)
        except Unanswered as error:
            raise NotKnown(f"it is not known whether it was done: {error}") from error

    async def passed(self, topic: str, subscriptions: Sequence[tuple[str, Position]]) -> list[bool | None]:
        """Whether each has come to a position or further, or what was before it is deleted; None: not known.

        Raises:
            WeirError: nothing could be read.
        """
        known = self._partitions.topic(topic)
        place = None if known is None else await self._acting.found(known.place)
        if place is None:
            return [None] * len(subscriptions)
        start, _ = await self._acting.extent(place)
        offsets = await self._acting.committed_by(place, [name for name, _ in subscriptions])
        return [
            None if name not in offsets and start < offset_of(position) else
            max(start, offsets.get(name, 0)) >= offset_of(position)
            for name, position in subscriptions
        ]  # fmt: skip


def _also_planned(report: Backlog, planned: Planned, target: int) -> frozenset[str]:
    """The groups that the same plan takes these records from (docs/contract.md 3.5, "Evict").

    By size all that are behind the first place at which the backlog is within the limit; by time all whose
    oldest record is known to be too old.
    """
    before = planned.before_publish_time
    return frozenset(
        one.name
        for one in report.subscriptions
        if one.durable
        and (
            offset_of((one.ledger, one.entry)) < target
            if before is None
            else one.oldest_publish_time is not None and one.oldest_publish_time < before
        )
    )
