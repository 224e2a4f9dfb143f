"""Relieving a Kafka cluster: a group's offset is moved, or records are deleted (docs/backlog/kafka.md).

All that was true when a plan was made is looked at again before anything is done: that the topic is the same
one, where its log begins and ends, how far the group has come. What is planned is a position, never a number
of records, so doing it twice changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from streaming.collect.backlog.cluster import CannotEvict, Eviction
from streaming.collect.kafka.actor import BacklogActor
from streaming.collect.kafka.connection import Unanswered
from streaming.collect.kafka.groups import INACTIVE, Come
from streaming.collect.kafka.ledgers import offset_of
from streaming.collect.kafka.partitions import KnownPartition, Partitions, Place
from streaming.contract.backlog.actions import Position
from streaming.contract.backlog.decisions import EvictionPlan
from streaming.contract.broker_events import Backlog
from streaming.contract.printable import printable

OFFSETS: Final = "offsets"
DELETE_RECORDS: Final = "delete_records"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared(Eviction):
    """An eviction, and what it was prepared from.

    Attributes:
        place: the partition, with the id that its topic has to have.
        target: offset from which on records stay.
        floors: of it and of all that lose these records by the same plan: how far they had come at least.
    """

    place: Place
    target: int
    floors: Mapping[str, int]


class KafkaEvictor:
    """Carries orders out on what the checks have found (`partitions`); see BacklogCluster."""

    def __init__(self, acting: BacklogActor, partitions: Partitions) -> None:
        self._acting, self._partitions = acting, partitions

    async def prepare(self, report: Backlog, planned: EvictionPlan, *, may_delete: bool) -> Eviction | None:
        """None: the group is there already, or has gone."""
        group = planned.subscription
        known = self._partitions.topic(report.topic)
        if known is None or report.ts not in known.reports:
            raise CannotEvict(
                f"the report of {report.ts} on {printable(report.topic)} was not made in this run"
            )
        place = await self._acting.still(known.place)
        target = await self._target(report, planned, place)
        node = (await self._acting.coordinators([group]))[group]
        committed = await self._acting.committed(place, node, group)
        # After a share group's lag the end is asked for, by reports before it: so none seems to go back.
        start, end = await self._acting.extent(place)
        if committed is None or (come := max(start, committed.position(end))) >= target:
            return None
        reported = _planned_from(report, planned, target)
        if group not in reported or come < reported[group]:
            raise CannotEvict(f"group {printable(group)} was moved back to offset {come} since the report")
        losers = {group: committed}
        if target > end:
            raise CannotEvict(
                f"{printable(report.topic)} ends at {end} now, before the planned offset {target}"
            )
        state = await self._acting.state(group, node)
        how = OFFSETS if state in INACTIVE else DELETE_RECORDS
        if how == DELETE_RECORDS and not may_delete:
            raise CannotEvict(
                f"group {printable(group)} is active ({state}), so its offset cannot be moved: "
                "set allow_delete_records: true or stop it"
            )
        if how == DELETE_RECORDS:
            everybody = [one.name for one in report.subscriptions]
            losers |= await self._losers(place, target, reported, everybody)
        since = {name: one.since(start) for name, one in losers.items()}
        floors = {name: one.floor(start, reported[name]) for name, one in losers.items()}
        own, *others = _lost(known, place, how, since, target)
        also = tuple(Eviction(**one) for one in others)
        return _Prepared(**own, also=also, place=place, target=target, floors=floors)

    async def _target(self, report: Backlog, planned: EvictionPlan, place: Place) -> int:
        """The offset from which on records stay: never beyond the end that the report knew."""
        end = report.ledgers[-1].id
        if planned.ledger is not None and planned.entry is not None:
            return min(offset_of((planned.ledger, planned.entry)), end)
        if planned.before_publish_time is None:
            raise CannotEvict("the plan names neither a position nor a time")
        found = await self._acting.offset(place, max(0, planned.before_publish_time))
        # Nothing is as young. What was written since the report is in no plan, however old its records say.
        return end if found < 0 else min(found, end)

    async def _losers(
        self, place: Place, target: int, planned: Mapping[str, int], groups: Sequence[str]
    ) -> dict[str, Come]:
        """How far those of `groups` have come that are behind `target`: DeleteRecords deletes for everybody.

        Args:
            planned: those that are to lose records, and how far they had come at least.

        Raises:
            CannotEvict: somebody else is behind it.
            Unanswered: of at least one it is not known.
        """
        committed = await self._acting.committed_by(place, groups)
        # After lags, as in `prepare`.
        start, end = await self._acting.extent(place)
        found = dict[str, Come]()
        for name, come in sorted(committed.items()):
            # What a share group has acknowledged in part it needs from its beginning.
            if come.first >= target:
                continue
            if name not in planned or max(start, come.position(end)) < planned[name]:
                raise CannotEvict(
                    f"group {printable(name)} has not read {printable(place.full)} up to offset {target} and"
                    " is not planned to lose that, but deleted records are gone for every group"
                )
            found[name] = come
        return found

    async def carry_out(self, eviction: Eviction) -> None:
        """Do it, and see that it was done."""
        assert isinstance(eviction, _Prepared)
        target = eviction.target
        place = await self._acting.still(eviction.place)
        start, end = await self._acting.extent(place)
        if target > end:
            raise CannotEvict(f"{printable(eviction.topic)} ends at {end} now")
        if start >= target:
            return
        if eviction.how == OFFSETS:
            floor = eviction.floors[eviction.subscription]
            await self._acting.move(place, eviction.subscription, floor, target)
        else:
            # Of all groups of the cluster: one may have come since the report.
            groups = await self._acting.groups()
            await self._losers(place, target, eviction.floors, groups)
            await self._acting.delete(place, target)

    async def passed(self, topic: str, subscriptions: Sequence[tuple[str, Position]]) -> list[bool | None]:
        """Whether each has come to a position or further, or what was before it is deleted."""
        known = self._partitions.topic(topic)
        if known is None and topic in self._partitions.there:
            raise Unanswered(f"{printable(topic)} could not be read yet")
        place = None if known is None else await self._acting.found(known.place)
        if place is None:
            return [None] * len(subscriptions)
        # Before lags: so none seems to have come further than it has.
        start, end = await self._acting.extent(place)
        come = await self._acting.committed_by(place, [name for name, _ in subscriptions])
        offsets = {name: one.position(end) for name, one in come.items()}
        return [
            None if name not in offsets and start < offset_of(position) else
            max(start, offsets.get(name, 0)) >= offset_of(position)
            for name, position in subscriptions
        ]  # fmt: skip


def _lost(
    known: KnownPartition, place: Place, how: str, since: Mapping[str, int], target: int
) -> list[dict[str, Any]]:
    """Fields of each group's Eviction: it loses what lies between its own offset and `target`."""
    return [
        {
            "topic": place.full,
            "subscription": name,
            "how": how,
            "since": known.stretches.position(offset),
            "upto": known.stretches.position(target),
            "messages": target - offset,
            "bytes": known.stretches.bytes_between(offset, target),
        }
        for name, offset in since.items()
    ]


def _planned_from(report: Backlog, planned: EvictionPlan, target: int) -> dict[str, int]:
    """The groups that the same plan takes these records from, and how far they had come.

    Source: docs/contract.md 3.5, "Evict".

    By size all that are behind the first place at which the backlog is within the limit; by time all whose
    oldest record is known to be too old.
    """
    before = planned.before_publish_time
    return {
        one.name: offset_of((one.ledger, one.entry))
        for one in report.subscriptions
        if one.durable
        and (
            offset_of((one.ledger, one.entry)) < target
            if before is None
            else one.oldest_publish_time is not None and one.oldest_publish_time < before
        )
    }
