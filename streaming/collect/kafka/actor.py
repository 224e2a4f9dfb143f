"""Requests about one partition and its groups: asked just before acting on them, and what acts."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from kafka import TopicPartition
from kafka.protocol.admin import DeleteRecordsRequest, DescribeGroupsRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.structs import OffsetAndMetadata

from streaming.collect.backlog.cluster import CannotEvict
from streaming.collect.kafka.connection import REQUEST_MS, Connection, Unanswered, chunks, why
from streaming.collect.kafka.groups import NOT_FOUND, Come, GroupReader
from streaming.collect.kafka.partitions import (
    EARLIEST,
    LATEST,
    PARTITIONS_PER_REQUEST,
    Partition,
    PartitionReader,
    Place,
)
from streaming.contract.printable import printable
from streaming.kafka_io.admin_client import AdminClient
from streaming.kafka_io.messages import AlterShareGroupOffsetsRequest

_DEAD = "Dead"
_GROUP = 0
"""FindCoordinator's type of key."""


class BacklogActor:
    """Asks and acts."""

    def __init__(self, connection: Connection, reader: PartitionReader, groups: GroupReader) -> None:
        self._connection = connection
        self._reader = reader
        self._groups = groups

    async def found(self, place: Place) -> Place | None:
        """The same partition of the same topic where it is now; None: it has gone, or was created anew.

        Raises:
            Unanswered: nobody tells, or it has no leader.
        """
        answer = await self._connection.metadata([place.partition.topic])
        for topic in answer.topics:
            if topic.topic_id != place.topic_id:
                continue
            for one in topic.partitions:
                if one.partition_index == place.partition.number:
                    if one.leader_id < 0:
                        raise Unanswered(f"{printable(place.full)} has no leader")
                    return replace(place, leader=one.leader_id)
        return None

    async def still(self, place: Place) -> Place:
        """The same, if it is there.

        Raises:
            CannotEvict: it is not.
            Unanswered: see `found`.
        """
        now = await self.found(place)
        if now is None:
            raise CannotEvict(f"{printable(place.full)} has gone, or was created anew, since the report")
        return now

    async def extent(self, place: Place) -> tuple[int, int]:
        """Where its log begins and ends now.

        Raises:
            Unanswered: its leader does not tell, or is not any more.
        """
        return await self.offset(place, EARLIEST), await self.offset(place, LATEST)

    async def offset(self, place: Place, at: int) -> int:
        """The first offset at a time, -1 if there is none; see PartitionReader.offsets.

        Raises:
            Unanswered: as with `extent`.
        """
        failures: list[str] = []
        found = await self._reader.offsets(place.leader, [place.partition], at, failures)
        if place.partition not in found:
            raise Unanswered("; ".join(failures) or f"broker {place.leader} tells no offset")
        return found[place.partition]

    async def coordinators(self, groups: Sequence[str]) -> dict[str, int]:
        """The coordinator of each group.

        Raises:
            Unanswered: nobody tells, or one has none.
        """
        found = {}
        for piece in chunks(list(groups), PARTITIONS_PER_REQUEST):
            request = FindCoordinatorRequest(key_type=_GROUP, coordinator_keys=list(piece), min_version=4)
            answer = await self._connection.send(request)
            found.update({one.key: one.node_id for one in answer.coordinators if not one.error_code})
        for group in groups:
            if group not in found:
                raise Unanswered(f"group {printable(group)} has no coordinator now")
        return found

    async def groups(self) -> list[str]:
        """All groups of the cluster.

        Raises:
            CannotEvict: a broker does not list its own.
        """
        answer = await self._connection.metadata([])
        failures: list[str] = []
        listed, silent = await self._groups.listed([broker.node_id for broker in answer.brokers], failures)
        if silent:
            raise CannotEvict(f"not all groups are known: {'; '.join(failures)}")
        return list(listed)

    async def committed(self, place: Place, node: int, group: str) -> Come | None:
        """How far a group has come; None: it has no offset, or has gone.

        Raises:
            Unanswered: it is not known.
        """
        return (await self._groups.of(place.partition, node, [group])).get(group)

    async def committed_by(self, place: Place, groups: Sequence[str]) -> dict[str, Come]:
        """How far several have come, without those that have no offset.

        Raises:
            Unanswered: of at least one it is not known.
        """
        by_node: dict[int, list[str]] = defaultdict(list)
        for group, node in (await self.coordinators(groups)).items():
            by_node[node].append(group)
        found: dict[str, Come] = {}
        for node, own in by_node.items():
            found.update(await self._groups.of(place.partition, node, own))
        return found

    async def state(self, group: str, node: int) -> str:
        """A group's state, such as Empty or Stable.

        Raises:
            Unanswered: its coordinator does not tell.
        """
        answer = await self._connection.send(DescribeGroupsRequest(groups=[group]), node)
        one = answer.groups[0]
        if not one.error_code and one.group_state != _DEAD:
            return str(one.group_state)
        if one.error_code not in (0, NOT_FOUND):
            raise Unanswered(
                f"broker {node} does not describe group {printable(group)}: {why(one.error_code)}"
            )
        # That message knows the groups of the older protocol only (KIP-848).
        return await self._groups.state(group, node)

    async def move(self, place: Place, group: str, floor: int, target: int) -> None:
        """Move a group's offset forward to `target`, if it is not there already, and see that it was moved.

        Args:
            floor: how far it had come at least, when that was prepared.

        Raises:
            CannotEvict: it was refused, or the group was moved back; nothing was done.
            Unanswered: it is not known whether it was done.
        """
        node = (await self.coordinators([group]))[group]
        # An end from before a lag puts the group too far back if at all, one from after it too far on.
        end = await self.offset(place, LATEST)
        committed = await self.committed(place, node, group)
        if committed is None:
            raise CannotEvict(f"group {printable(group)} has no offset any more")
        if committed.position(end) >= target:
            return
        start, end = await self.extent(place)
        come = max(start, committed.position(end))
        if come < floor:
            raise CannotEvict(f"group {printable(group)} was moved back to offset {come} meanwhile")
        move = self._move_share if self._groups.is_share(group) else self._commit
        code = await move(place.partition, node, group, target)
        if code:
            raise CannotEvict(f"broker {node} does not move the offset of {printable(group)}: {why(code)}")
        after = await self.committed(place, node, group)
        if after is None or after.first < target:
            raise Unanswered(f"the offset of {printable(group)} is {after and after.first}, not {target}")

    async def _commit(self, partition: Partition, node: int, group: str, target: int) -> int:
        """Commit an offset from outside, which a group with members is refused; the coordinator's code."""
        offsets = {TopicPartition(*partition): OffsetAndMetadata(target, "", -1)}
        request = AdminClient._alter_group_offsets_request(group, offsets)
        answer = await self._connection.send(request, node)
        return int(answer.topics[0].partitions[0].error_code)

    async def _move_share(self, partition: Partition, node: int, group: str, target: int) -> int:
        """The same of a share group's start offset; it too is refused while there are members."""
        topics = [(partition.topic, [(partition.number, target)])]
        request = AlterShareGroupOffsetsRequest(group_id=group, topics=topics)
        answer = await self._connection.send(request, node)
        codes = [one.error_code for topic in answer.responses for one in topic.partitions]
        if not answer.error_code and not codes:
            raise Unanswered(f"broker {node} does not tell whether it has moved {printable(group)}")
        return int(answer.error_code or codes[0])

    async def delete(self, place: Place, target: int) -> None:
        """Delete all records before an offset.

        Raises:
            CannotEvict: it was refused; nothing was done.
            Unanswered: it is not known whether it was done.
        """
        topics = [(place.partition.topic, [(place.partition.number, target)])]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=REQUEST_MS)
        answer = await self._connection.send(request, place.leader)
        one = answer.topics[0].partitions[0]
        if one.error_code:
            raise CannotEvict(
                f"broker {place.leader} does not delete records of {printable(place.full)}:"
                f" {why(one.error_code)}"
            )
        if one.low_watermark < target:
            raise Unanswered(f"{printable(place.full)} begins at {one.low_watermark}, not {target}")
