"""Eviction of a share group while others write: its lag and where the log ends are of different moments."""

from types import SimpleNamespace
from typing import Any

import pytest
from kafka_kit import read_back

from streaming.collect.backlog.cluster import CannotEvict, Eviction, unnamed_report
from streaming.collect.kafka.actor import BacklogActor
from streaming.collect.kafka.connection import Unanswered
from streaming.collect.kafka.evictor import KafkaEvictor
from streaming.collect.kafka.groups import GroupReader
from streaming.collect.kafka.partitions import EARLIEST, Extent, Partition, PartitionReader, Partitions, Place
from streaming.contract.backlog.decisions import EvictionPlan
from streaming.contract.broker_events import Subscription

TOPIC, PLACE = "persistent://acme/orders/shared", Partition("shared", 0)
REPORTED = 12
"""The group's position in the report."""


class Busy:
    """Stands for a Connection to a cluster on which records are written before each request.

    Attributes:
        written: how many.
        end: of the log.
        first: the group's start offset.
        acknowledged: how many of the records it has beyond that, out of order.
        state, kind: of the group.
        deleted: up to where records were.
        answers: whether it tells that it has moved a group.
    """

    def __init__(self, state: str) -> None:
        self.written, self.end, self.first, self.acknowledged, self.deleted = 1, 20, 0, REPORTED, 0
        self.state, self.kind, self.answers = state, "share", True

    async def metadata(self, _: Any) -> Any:
        """As Connection.metadata."""
        part = SimpleNamespace(partition_index=0, leader_id=1)
        topic = SimpleNamespace(topic_id=7, partitions=[part])
        return SimpleNamespace(brokers=[SimpleNamespace(node_id=1)], topics=[topic])

    async def send(self, request: Any, _node: int | None = None) -> Any:
        """As Connection.send."""
        self.end += self.written
        answer = getattr(self, "_" + type(request).__name__.removesuffix("Request"))(read_back(request))
        return SimpleNamespace(error_code=0, API_VERSION=5, **answer)

    def _FindCoordinator(self, request: Any) -> Any:
        return {
            "coordinators": [
                SimpleNamespace(key=one, node_id=1, error_code=0) for one in request.coordinator_keys
            ]
        }

    def _ListGroups(self, _: Any) -> Any:
        own = SimpleNamespace(group_id="s", group_type=self.kind, group_state=self.state)
        return {"groups": [own]}

    def _DescribeGroups(self, _: Any) -> Any:
        return {"groups": [SimpleNamespace(error_code=69, group_state="Dead")]}

    def _DescribeShareGroupOffsets(self, _: Any) -> Any:
        lag = self.end - max(self.first, self.acknowledged)
        part = SimpleNamespace(partition_index=0, start_offset=self.first, lag=lag, error_code=0)
        topic = SimpleNamespace(topic_name="shared", partitions=[part])
        return {"groups": [SimpleNamespace(group_id="s", error_code=0, topics=[topic])]}

    def _OffsetFetch(self, request: Any) -> Any:
        assert [one.group_id for one in request.groups] == ["s"]
        part = SimpleNamespace(partition_index=0, committed_offset=self.first, error_code=0)
        topic = SimpleNamespace(name="shared", partitions=[part])
        return {"groups": [SimpleNamespace(group_id="s", error_code=0, topics=[topic])]}

    def _OffsetCommit(self, request: Any) -> Any:
        assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("s", -1, "")
        self.first = request.topics[0].partitions[0].committed_offset
        return {"topics": [SimpleNamespace(partitions=[SimpleNamespace(error_code=0)])]}

    def _ListOffsets(self, request: Any) -> Any:
        at = self.deleted if request.topics[0].partitions[0].timestamp == EARLIEST else self.end
        part = SimpleNamespace(partition_index=0, error_code=0, offset=at)
        return {"topics": [SimpleNamespace(name="shared", partitions=[part])]}

    def _DeleteRecords(self, request: Any) -> Any:
        self.deleted = request.topics[0].partitions[0].offset
        part = SimpleNamespace(error_code=0, low_watermark=self.deleted)
        return {"topics": [SimpleNamespace(partitions=[part])]}

    def _AlterShareGroupOffsets(self, request: Any) -> Any:
        if not self.answers:
            return {"responses": []}
        self.first = request.topics[0].partitions[0].start_offset
        return {"responses": [SimpleNamespace(partitions=[SimpleNamespace(error_code=0)])]}


class World:
    """A cluster, and a report on it when it had twenty records."""

    def __init__(self, state: str) -> None:
        self.cluster = Busy(state)
        connection: Any = self.cluster
        self._groups, self.partitions = GroupReader(connection), Partitions()
        place = Place(partition=PLACE, full=TOPIC, topic_id=7, leader=1)
        self.partitions.take([place], {PLACE: Extent(start=0, end=20, size=2_000, ts=1)}, {})
        known = self.partitions.topic(TOPIC)
        assert known is not None
        known.reports.append(1)
        ledger, entry = known.stretches.position(REPORTED)
        own = Subscription(name="s", ledger=ledger, entry=entry, durable=True, oldest_publish_time=None)
        self.report = unnamed_report(TOPIC, 1, known.stretches.ledgers(), [own])
        acting = BacklogActor(connection, PartitionReader(connection), self._groups)
        self.evictor = KafkaEvictor(acting, self.partitions)

    async def prepare(self, target: int) -> Eviction | None:
        """Of the share group, up to an offset; what it has acknowledged is known."""
        await self._groups.listed([1], [])
        planned = EvictionPlan(subscription="s", ledger=0, entry=target - 1, entries=target - REPORTED)
        return await self.evictor.prepare(self.report, planned, may_delete=True)


async def test_what_is_written_meanwhile_refuses_no_deletion() -> None:
    """No group seems to have gone back; logged is all from its start offset on."""
    world = World("Stable")
    eviction = await world.prepare(15)
    assert eviction is not None and (eviction.how, eviction.messages) == ("delete_records", 15)
    await world.evictor.carry_out(eviction)
    assert world.cluster.deleted == 15


async def test_what_is_written_meanwhile_moves_no_group() -> None:
    """It has not passed because others write, and is moved though they do."""
    world = World("Empty")
    eviction = await world.prepare(15)
    assert eviction is not None and (eviction.how, eviction.messages) == ("offsets", 15)
    assert await world.evictor.passed(TOPIC, [("s", (0, REPORTED))]) == [False]
    world.cluster.written = 5
    await world.evictor.carry_out(eviction)
    assert world.cluster.first == 15


async def test_a_group_of_another_kind_is_moved_by_a_commit() -> None:
    """From outside of it, as a tool does."""
    world = World("Empty")
    world.cluster.kind, world.cluster.first = "classic", REPORTED
    eviction = await world.prepare(15)
    assert eviction is not None and (eviction.how, eviction.messages) == ("offsets", 3)
    await world.evictor.carry_out(eviction)
    assert world.cluster.first == 15


@pytest.mark.parametrize("state", ["Stable", "Empty"])
async def test_a_group_that_is_set_back_is_left_alone(state: str) -> None:
    """Behind its position in the report, though beyond its start offset."""
    world = World(state)
    eviction = await world.prepare(15)
    assert eviction is not None
    world.cluster.acknowledged = 5
    with pytest.raises(CannotEvict):
        await world.evictor.carry_out(eviction)
    assert (world.cluster.first, world.cluster.deleted) == (0, 0)


async def test_a_move_without_an_answer_is_not_known() -> None:
    """Neither done nor refused."""
    world = World("Empty")
    eviction = await world.prepare(15)
    assert eviction is not None
    world.cluster.answers = False
    with pytest.raises(Unanswered, match="does not tell whether it has moved s"):
        await world.evictor.carry_out(eviction)


async def test_of_a_topic_that_could_not_be_read_yet_it_is_asked_again() -> None:
    """A collector and a leader may start together; of one that has gone nothing will ever be known."""
    world = World("Empty")
    late, gone = "persistent://acme/orders/late", "persistent://acme/orders/gone"
    world.partitions.keep([Place(partition=Partition("late", 0), full=late, topic_id=8, leader=-1)])
    with pytest.raises(Unanswered, match="could not be read yet"):
        await world.evictor.passed(late, [("s", (0, 1))])
    assert await world.evictor.passed(gone, [("s", (0, 1))]) == [None]
