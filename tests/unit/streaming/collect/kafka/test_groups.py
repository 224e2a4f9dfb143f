"""Groups whose coordinator does not answer: what is not known is never taken for what is not there."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from kafka_kit import read_back

from streaming.collect.backlog.cluster import CannotEvict
from streaming.collect.kafka.actor import BacklogActor
from streaming.collect.kafka.connection import Unanswered
from streaming.collect.kafka.groups import (
    OFFSETS_TOPIC,
    STARTS_MISSED_MAX,
    Come,
    CommittedOffsets,
    GroupReader,
)
from streaming.collect.kafka.partitions import Partition, PartitionReader

NO_LEADER, LOADING, GONE = 5, 14, 69
T1, T2, T3 = (Partition(f"t{number}", 0) for number in (1, 2, 3))


class Brokers:
    """Stands for a Connection: two brokers with groups, of which some do not answer.

    Attributes:
        groups: (node, offsets by partition) by group.
        silent: nodes that do not answer at all.
        deaf: nodes that list groups and do not tell offsets.
        errors: codes of groups.
        listing: codes of nodes' lists.
        kinds: types of groups.
        lags: of share groups, in each of their partitions.
        broken: codes of partitions.
        asked: groups of each request for offsets.
    """

    def __init__(self) -> None:
        self.groups: dict[str, tuple[int, dict[Partition, int]]] = {}
        self.silent: set[int] = set()
        self.deaf: set[int] = set()
        self.errors: dict[str, int] = {}
        self.listing: dict[int, int] = {}
        self.kinds: dict[str, str] = {}
        self.lags: dict[str, int] = {}
        self.broken: dict[Partition, int] = {}
        self.asked: list[list[str]] = []

    async def send(self, request: Any, node: int) -> Any:
        """As Connection.send."""
        if node in self.silent:
            raise Unanswered(f"broker {node} did not answer")
        if type(request).__name__ == "ListGroupsRequest":
            own = [
                SimpleNamespace(group_id=group, group_type=self.kinds.get(group, "classic"))
                for group, (at, _) in self.groups.items()
                if at == node
            ]
            return SimpleNamespace(error_code=self.listing.get(node, 0), groups=own, API_VERSION=5)
        if node in self.deaf:
            raise Unanswered(f"broker {node} did not answer")
        names = [one.group_id for one in read_back(request).groups]
        self.asked.append(names)
        if type(request).__name__ == "DescribeShareGroupOffsetsRequest":
            assert {self.kinds[name] for name in names} == {"share"}
            return SimpleNamespace(groups=[self._told(name, "topic_name", "start_offset") for name in names])
        assert not any(self.kinds.get(name) == "share" for name in names)
        return SimpleNamespace(groups=[self._told(name, "name", "committed_offset") for name in names])

    def _told(self, group: str, topic: str, offset_of: str) -> Any:
        """One group's answer, in which its topics and offsets are called so."""
        topics = [
            SimpleNamespace(**{
                topic: partition.topic,
                "partitions": [SimpleNamespace(**{
                    "partition_index": partition.number, offset_of: offset, "lag": self.lags.get(group, -1),
                    "error_code": self.broken.get(partition, 0),
                })],
            })
            for partition, offset in self.groups[group][1].items()
        ]  # fmt: skip
        return SimpleNamespace(group_id=group, error_code=self.errors.get(group, 0), topics=topics)


class World:
    """A reader and its brokers, with a group on each broker and one on both topics."""

    def __init__(self) -> None:
        self.brokers = Brokers()
        self.brokers.groups = {"a": (1, {T1: 5}), "b": (2, {T2: 7}), "c": (2, {T1: 1, T3: -1})}
        self.reader = GroupReader(self.brokers)  # type: ignore[arg-type]
        self.leaderless = 0

    def read(self) -> CommittedOffsets:
        """One check."""
        offsets = SimpleNamespace(
            name=OFFSETS_TOPIC, partitions=[SimpleNamespace(leader_id=-1)] * self.leaderless
        )
        metadata = SimpleNamespace(
            brokers=[SimpleNamespace(node_id=1), SimpleNamespace(node_id=2)], topics=[offsets]
        )
        return asyncio.run(self.reader.read(metadata))


def test_all_answer() -> None:
    """Offsets by partition and group; a partition without a committed offset is not the group's."""
    found = World().read()
    assert dict(found.offsets) == {T1: {"a": Come(5), "c": Come(1)}, T2: {"b": Come(7)}}
    assert not found.all_unknown and not found.unknown and found.failures == []


@pytest.fixture
def world() -> World:
    """One whose brokers have all answered once."""
    world = World()
    world.read()
    return world


def test_a_silent_broker_costs_what_its_groups_had(world: World) -> None:
    """Once it has been heard; others' topics go on."""
    world.brokers.silent = {2}
    found = world.read()
    assert found.unknown == {T2, T1} and not found.all_unknown
    assert found.failures == ["groups: broker 2 did not answer"]
    world.brokers.silent = set()
    assert world.read().unknown == set()


def test_a_broker_that_was_never_heard_costs_all() -> None:
    """Nobody knows which topics its groups read."""
    world = World()
    world.brokers.silent = {2}
    assert world.read().all_unknown
    world.brokers.silent = set()
    assert not world.read().all_unknown


def test_a_coordinator_that_tells_no_offsets(world: World) -> None:
    """As a silent one; a group that was never read costs all topics."""
    world.brokers.deaf = {1}
    assert world.read().unknown == {T1}
    world.brokers.groups["new"] = (1, {T3: 1})
    assert world.read().all_unknown


def test_a_coordinator_that_still_loads(world: World) -> None:
    """Its list is not whole: groups that are missing from it have not gone."""
    world.brokers.listing = {2: LOADING}
    del world.brokers.groups["b"]
    found = world.read()
    assert found.unknown == {T2} and dict(found.offsets) == {T1: {"a": Come(5), "c": Come(1)}}


def test_groups_whose_coordinator_is_nowhere(world: World) -> None:
    """A partition of their topic without a leader: they are on no list, and have not gone."""
    world.leaderless = 1
    del world.brokers.groups["b"]
    found = world.read()
    assert found.unknown == {T2}
    world.leaderless = 0
    assert world.read().unknown == set()
    late = World()
    late.leaderless = 1
    assert late.read().all_unknown


def test_one_group_is_refused_or_has_gone(world: World) -> None:
    """Gone meanwhile: it is none. Refused: its topics are unread, and it is named."""
    world.brokers.errors = {"a": GONE, "b": LOADING}
    found = world.read()
    assert found.unknown == {T2} and dict(found.offsets) == {T1: {"c": Come(1)}}
    assert len(found.failures) == 1 and "such as b" in found.failures[0]


def test_share_groups_are_subscriptions() -> None:
    """With their own lag where it is told; of what they have not begun with they are none."""
    world = World()
    world.brokers.kinds = {"b": "share", "c": "share"}
    world.brokers.lags = {"b": 2}
    found = world.read()
    assert dict(found.offsets) == {T1: {"a": Come(5), "c": Come(1)}, T2: {"b": Come(7, 2)}}
    assert world.brokers.asked == [["a"], ["b", "c"]] and found.failures == []
    assert [Come(7, lag).position(20) for lag in (-1, 0, 2, 13, 14, 30)] == [7, 20, 18, 7, 7, 7]
    assert [Come(7, lag).floor(8, 18) for lag in (-1, 2)] == [8, 18]


def test_share_groups_that_are_not_answered_for(world: World) -> None:
    """Silent, refused or gone: as any other; one that was heard of keeps its kind meanwhile."""
    world.brokers.kinds = {"b": "share"}
    assert world.read().offsets[T2] == {"b": Come(7)}
    world.brokers.errors = {"b": LOADING}
    found = world.read()
    assert found.unknown == {T2} and "such as b" in found.failures[0]
    world.brokers.errors = {"b": GONE}
    assert world.read().unknown == set()
    world.brokers.errors, world.brokers.silent = {}, {2}
    world.read()
    assert world.reader.is_share("b")


def test_a_partition_of_a_share_group_without_a_leader() -> None:
    """It alone is not known, from the first check on."""
    world = World()
    world.brokers.groups = {"s": (1, {T1: 5, T2: 7})}
    world.brokers.kinds, world.brokers.broken = {"s": "share"}, {T2: NO_LEADER}
    found = world.read()
    assert not found.all_unknown and found.unknown == {T2} and dict(found.offsets) == {T1: {"s": Come(5)}}
    assert len(found.failures) == 1 and "such as s" in found.failures[0]
    assert asyncio.run(world.reader.of(T1, 1, ["s"])) == {"s": Come(5)}
    with pytest.raises(Unanswered, match="for the offsets of s"):
        asyncio.run(world.reader.of(T2, 1, ["s"]))
    # A coordinator that is silent then costs both.
    world.brokers.silent = {1}
    assert world.read().unknown == {T1, T2}


def test_a_share_group_whose_start_offset_is_missing() -> None:
    """Its coordinator cannot read its state, or it was made anew: after some checks that is believed."""
    world = World()
    own = {T1: 5, T2: -1}
    world.brokers.groups, world.brokers.kinds = {"s": (1, own)}, {"s": "share"}
    for _ in range(2):
        own[T1] = 5
        assert world.read().unknown == set()
        own[T1] = -1
        for _ in range(STARTS_MISSED_MAX):
            found = world.read()
            assert found.unknown == {T1} and "no start offset" in found.failures[0]
            # An error or silence in between is no such check.
            world.brokers.broken = {T1: NO_LEADER}
            world.read()
            world.brokers.broken, world.brokers.silent = {}, {1}
            world.read()
            world.brokers.silent = set()
        found = world.read()
        assert found.unknown == set() and found.failures == [] and not found.offsets
    own[T1] = 5
    world.read()
    world.brokers.groups = {}
    world.read()
    world.brokers.groups = {"s": (1, {T1: -1})}
    assert world.read().unknown == set()


def test_of_one_partition_an_answer_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else a group has; a share group tells all."""
    monkeypatch.setattr("streaming.collect.kafka.groups.OFFSETS_PER_REQUEST", 2)
    world = World()
    world.brokers.groups = {name: (1, {T1: 1, T2: 1}) for name in "abst"}
    world.brokers.kinds = {"s": "share", "t": "share"}
    world.read()
    world.brokers.asked = []
    assert len(asyncio.run(world.reader.of(T1, 1, list("abst")))) == 4
    assert sorted(world.brokers.asked) == [["a", "b"], ["s"], ["t"]]


def test_answers_are_bounded_by_what_groups_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first time a group counts one; one group is not divided."""
    monkeypatch.setattr("streaming.collect.kafka.groups.OFFSETS_PER_REQUEST", 2)
    world = World()
    world.brokers.groups = {
        f"g{number}": (1, {Partition(f"t{topic}", 0): 1 for topic in range(number)}) for number in range(4)
    }
    world.read()
    assert world.brokers.asked == [["g0", "g1"], ["g2", "g3"]]
    world.brokers.asked = []
    world.read()
    assert world.brokers.asked == [["g0", "g1"], ["g2"], ["g3"]]


def test_more_groups_than_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows what the others hold back."""
    monkeypatch.setattr("streaming.collect.kafka.groups.GROUPS_MAX", 2)
    found = World().read()
    assert found.all_unknown and "2 are read" in found.failures[0]


async def test_all_groups_count_before_anything_is_deleted() -> None:
    """Share groups too, as far as a member may read the partition: the others have nothing of it."""

    class All(Brokers):
        async def metadata(self, _topics: Any) -> Any:
            return SimpleNamespace(brokers=[SimpleNamespace(node_id=node) for node in (1, 2)])

    brokers = All()
    brokers.groups = {"a": (1, {T1: 1}), "b": (2, {T1: -1, T2: 1}), "c": (2, {T2: 1}), "d": (2, {T1: -1})}
    brokers.kinds = {"b": "share", "c": "share"}
    connection: Any = brokers
    reader = GroupReader(connection)
    acting = BacklogActor(connection, PartitionReader(connection), reader)
    assert sorted(await acting.groups()) == ["a", "b", "c", "d"]
    assert await reader.of(T1, 1, ["a"]) == {"a": Come(1)}
    assert await reader.of(T1, 2, ["b", "c", "d"]) == {"b": Come(-1)}
    brokers.errors = {"b": LOADING}
    with pytest.raises(Unanswered, match="for the offsets of b"):
        await reader.of(T1, 2, ["b", "c", "d"])
    brokers.silent = {2}
    with pytest.raises(CannotEvict, match="not all groups are known"):
        await acting.groups()
