"""Committed offsets of all groups: ListGroups of every broker, OffsetFetch of many at a time (KIP-709).

A broker lists the groups that it coordinates, so nobody has to be asked where a group is. A group that is not
answered for costs the topics that it had before, since a topic that lacks a subscription would look as if
nobody held it back; a broker that was never answered for costs all of them.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.consumer import OffsetFetchRequest

from streaming.collect.kafka.connection import Connection, Unanswered, chunks, gathered, why
from streaming.collect.kafka.partitions import Partition, by_topic
from streaming.contract.printable import printable

OFFSETS_PER_REQUEST: Final = 4_000
"""Committed offsets in one answer, by what each group had at the last check; a group is not divided."""
GROUPS_MAX: Final = 200_000
"""Groups that are read; if there are more, no topic's are known and all are unread."""

OFFSETS_TOPIC: Final = "__consumer_offsets"
INACTIVE: Final = frozenset({"Empty", "Dead"})
"""States of a group that has no members."""
NOT_FOUND: Final = 69
_SHARE: Final = "share"
"""Share groups commit no offsets."""
_SAID_MAX: Final = 5


@dataclass(slots=True)
class CommittedOffsets:
    """What groups have committed.

    Attributes:
        offsets: of each partition, by group.
        all_unknown: nobody knows who is missing: no partition's groups are known.
        unknown: partitions of which a group's offset may be missing.
        failures: why.
    """

    offsets: dict[Partition, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    all_unknown: bool = False
    unknown: set[Partition] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)


class GroupReader:
    """Asks coordinators, and remembers what each group had.

    Args:
        connection: the cluster.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._had: dict[str, tuple[Partition, ...]] = {}
        self._heard: set[int] = set()
        self.shares: list[str] = []
        """Share groups (KIP-932) that the last list named: they read without committing offsets."""

    async def read(self, metadata: Any) -> CommittedOffsets:
        """The offsets of all groups.

        Args:
            metadata: of the brokers, and of all topics.
        """
        result = CommittedOffsets()
        nodes = [broker.node_id for broker in metadata.brokers]
        listed, silent = await self.listed(nodes, result.failures)
        orphans = _leaderless(metadata.topics)
        if orphans:
            result.failures.append(f"{orphans} partitions of {OFFSETS_TOPIC} have no leader")
        if len(listed) > GROUPS_MAX:
            result.failures.append(f"{len(listed)} groups; at most {GROUPS_MAX} are read")
            result.all_unknown = True
            return result
        result.all_unknown = bool(silent - self._heard) or (bool(orphans) and not self._heard)
        self._heard = (self._heard | set(nodes) - silent) & set(nodes)
        if silent or orphans:
            # Whom we do not hear of now may have gone, or stand where nobody answers.
            for group in self._had.keys() - listed.keys():
                result.unknown.update(self._had[group])
        else:
            self._had = {group: had for group, had in self._had.items() if group in listed}
        await self._fetch_all(listed, result)
        return result

    async def listed(self, nodes: Sequence[int], failures: list[str]) -> tuple[dict[str, int], set[int]]:
        """All groups with their coordinator, and the brokers that did not answer."""
        answers = await gathered(self._connection.send(_list_request(), node) for node in nodes)
        found, silent, shares = dict[str, int](), set[int](), list[str]()
        for node, answer in zip(nodes, answers, strict=True):
            if isinstance(answer, Unanswered):
                silent.add(node)
                failures.append(f"groups: {answer}")
                continue
            if answer.error_code:
                silent.add(node)
                failures.append(f"broker {node} does not list its groups: {why(answer.error_code)}")
            for group in answer.groups:
                if answer.API_VERSION < 5 or group.group_type != _SHARE:
                    found[group.group_id] = node
                else:
                    shares.append(group.group_id)
        self.shares = shares
        return found, silent

    async def state(self, group: str, node: int) -> str:
        """The state of a group in its coordinator's list.

        Raises:
            Unanswered: it is not there.
        """
        answer = await self._connection.send(_list_request(), node)
        for one in answer.groups:
            if one.group_id == group:
                return str(one.group_state)
        raise Unanswered(f"broker {node} does not list group {printable(group)}")

    async def _fetch_all(self, listed: dict[str, int], result: CommittedOffsets) -> None:
        pieces = list(self._pieces(listed))
        answers = await gathered(self._fetch(node, groups) for node, groups in pieces)
        failed = dict[str, int]()
        for (node, groups), answer in zip(pieces, answers, strict=True):
            if isinstance(answer, Unanswered):
                result.failures.append(f"offsets of {len(groups)} groups: {answer}")
                for group in groups:
                    self._missed(group, result)
                continue
            for group in answer.groups:
                code = _code(group)
                if code == NOT_FOUND:
                    self._had.pop(group.group_id, None)
                elif code:
                    reason = f"broker {node} tells no offsets of a group: {why(code)}"
                    failed[f"{reason}, such as {printable(group.group_id)}"] = code
                    self._missed(group.group_id, result)
                else:
                    self._take(group, result)
        result.failures += list(failed)[:_SAID_MAX]

    def _take(self, group: Any, result: CommittedOffsets) -> None:
        had = []
        for topic in group.topics:
            for one in topic.partitions:
                if one.committed_offset >= 0:
                    partition = Partition(topic.name, one.partition_index)
                    result.offsets[partition][group.group_id] = one.committed_offset
                    had.append(partition)
        self._had[group.group_id] = tuple(had)

    def _missed(self, group: str, result: CommittedOffsets) -> None:
        """Note what a group had; of one that was never read nobody knows where it would be missing."""
        if group in self._had:
            result.unknown.update(self._had[group])
        else:
            result.all_unknown = True

    def _pieces(self, listed: dict[str, int]) -> Iterable[tuple[int, list[str]]]:
        """Groups of one coordinator each, so many that their answer is bounded by what they had."""
        filling: dict[int, tuple[list[str], int]] = {}
        for group, node in listed.items():
            groups, weight = filling.get(node, ([], 0))
            # An answer has something for a group without offsets too.
            own = max(1, len(self._had.get(group, ())))
            if groups and weight + own > OFFSETS_PER_REQUEST:
                yield node, groups
                groups, weight = [], 0
            groups.append(group)
            filling[node] = groups, weight + own
        for node, (groups, _) in filling.items():
            yield node, groups

    async def _fetch(self, node: int, groups: Sequence[str]) -> Any:
        return await self._connection.send(_fetch_request(groups, None), node)

    async def of(self, partition: Partition, node: int, groups: Sequence[str]) -> dict[str, int]:
        """What groups of one coordinator have committed for one partition, if it has anything.

        Raises:
            Unanswered: of at least one it is not known.
        """
        found = dict[str, int]()
        for piece in chunks(groups, OFFSETS_PER_REQUEST):
            answer = await self._connection.send(_fetch_request(piece, partition), node)
            for group in answer.groups:
                code = _code(group)
                if code and code != NOT_FOUND:
                    raise Unanswered(
                        f"broker {node}: {why(code)} for the offsets of {printable(group.group_id)}"
                    )
                for one in _parts(group):
                    if not code and one.committed_offset >= 0:
                        found[group.group_id] = one.committed_offset
        return found


def _parts(group: Any) -> list[Any]:
    """What an answer says of each partition of a group."""
    return [one for topic in group.topics for one in topic.partitions]


def _code(group: Any) -> int:
    """What is wrong with an answer, 0: nothing."""
    return group.error_code or next((one.error_code for one in _parts(group) if one.error_code), 0)


def _list_request() -> Any:
    return ListGroupsRequest(states_filter=[], types_filter=[], max_version=5)


def _fetch_request(groups: Sequence[str], partition: Partition | None) -> Any:
    """For one partition, or for all that a group has."""
    one = OffsetFetchRequest.OffsetFetchRequestGroup
    topics = None
    if partition is not None:
        own = one.OffsetFetchRequestTopics
        topics = [own(name=name, partition_indexes=numbers) for name, numbers in by_topic([partition])]
    return OffsetFetchRequest(
        groups=[one(group_id=group, topics=topics) for group in groups], min_version=8, max_version=9
    )


def _leaderless(topics: Iterable[Any]) -> int:
    """Partitions of the topic of offsets whose groups nobody coordinates."""
    return sum(
        one.leader_id < 0 for topic in topics if topic.name == OFFSETS_TOPIC for one in topic.partitions
    )
