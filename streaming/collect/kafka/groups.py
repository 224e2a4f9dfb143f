"""How far all groups have come: ListGroups of every broker, OffsetFetch of many at a time (KIP-709).

Share groups (KIP-932) are asked for by DescribeShareGroupOffsets. A broker lists the groups that it
coordinates, so nobody has to be asked where a group is. A group that is not answered for costs the topics
that it had before, since a topic that lacks a subscription would look as if nobody held it back; a broker
that was never answered for costs all of them.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.consumer import OffsetFetchRequest

from streaming.collect.kafka.connection import Connection, Unanswered, gathered, why
from streaming.collect.kafka.partitions import Partition, by_topic
from streaming.contract.printable import printable
from streaming.kafka_io.messages import DescribeShareGroupOffsetsRequest

OFFSETS_PER_REQUEST: Final = 4_000
"""Committed offsets in one answer, by what each group had at the last check; a group is not divided."""
GROUPS_MAX: Final = 200_000
"""Groups that are read; if there are more, no topic's are known and all are unread."""

OFFSETS_TOPIC: Final = "__consumer_offsets"
INACTIVE: Final = frozenset({"Empty", "Dead"})
"""States of a group that has no members."""
NOT_FOUND: Final = 69
STARTS_MISSED_MAX: Final = 8
"""Checks in which a share group's start offset may be missing where it had one; after them it has none."""
_SHARE: Final = "share"
_SAID_MAX: Final = 5


class Come(NamedTuple):
    """How far a group has come in a partition.

    Attributes:
        first: its committed offset. A share group's start offset as its coordinator has it: what is before it
            is acknowledged, and what was acknowledged last is often not. -1: a share group that may read and
            has acknowledged nothing yet.
        lag: of a share group: how many entries it has not acknowledged (KIP-1226, Kafka 4.2); -1: not told.
    """

    first: int
    lag: int = -1

    def position(self, end: int) -> int:
        """The offset that has as many entries before the partition's `end` as it has not acknowledged."""
        return self.first if self.lag < 0 else max(self.first, end - self.lag)

    def since(self, start: int) -> int:
        """From where on it loses entries of a log, at most: a share group has acknowledged some of them."""
        return max(start, self.first)

    def floor(self, start: int, reported: int) -> int:
        """Its position at least: lag and end are of two moments, so a share group's is as `reported`."""
        return reported if self.lag >= 0 else self.since(start)


class _Told(NamedTuple):
    """What a coordinator answers about a group.

    Attributes:
        group: its name.
        code: what is wrong with all of it; 0 for nothing.
        come: how far it has come.
        wrong: what is wrong with other partitions, such as that nobody leads one and tells its lag.
    """

    group: str
    code: int
    come: dict[Partition, Come]
    wrong: dict[Partition, int]


@dataclass(slots=True)
class CommittedOffsets:
    """How far groups have come.

    Attributes:
        offsets: in each partition, by group.
        all_unknown: nobody knows who is missing: no partition's groups are known.
        unknown: partitions of which a group's offset may be missing.
        failures: why.
    """

    offsets: dict[Partition, dict[str, Come]] = field(default_factory=lambda: defaultdict(dict))
    all_unknown: bool = False
    unknown: set[Partition] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)


class GroupReader:
    """Asks coordinators, and remembers what each group had."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._had: dict[str, tuple[Partition, ...]] = {}
        # Where share groups had a start offset, and in how many checks since it is missing.
        self._begun: dict[str, dict[Partition, int]] = {}
        self._heard: set[int] = set()
        self._shares: set[str] = set()

    async def read(self, metadata: Any) -> CommittedOffsets:
        """The offsets of all groups; `metadata` is of the brokers and of all topics."""
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
            for gone in self._had.keys() - listed.keys():
                self._forget(gone)
        await self._fetch_all(listed, result)
        return result

    async def listed(self, nodes: Sequence[int], failures: list[str]) -> tuple[dict[str, int], set[int]]:
        """All groups with their coordinator, and the brokers that did not answer."""
        answers = await gathered(self._connection.send(_list_request(), node) for node in nodes)
        found, silent, shares = dict[str, int](), set[int](), set[str]()
        for node, answer in zip(nodes, answers, strict=True):
            if isinstance(answer, Unanswered):
                silent.add(node)
                failures.append(f"groups: {answer}")
                continue
            if answer.error_code:
                silent.add(node)
                failures.append(f"broker {node} does not list its groups: {why(answer.error_code)}")
            for group in answer.groups:
                found[group.group_id] = node
                if answer.API_VERSION >= 5 and group.group_type == _SHARE:
                    shares.add(group.group_id)
        # Those of a silent broker are still what they were.
        self._shares = shares | (self._shares - found.keys() if silent else set())
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
        pieces = list(self._pieces(listed, whole=True))
        answers = await gathered(self._fetch(node, groups) for node, groups in pieces)
        failed = dict[str, None]()
        for (node, groups), answer in zip(pieces, answers, strict=True):
            if isinstance(answer, Unanswered):
                result.failures.append(f"offsets of {len(groups)} groups: {answer}")
                for group in groups:
                    self._missed(group, result)
                continue
            for told in answer:
                if told.code == NOT_FOUND:
                    self._forget(told.group)
                    continue
                reasons = {why(told.code)} if told.code else self._take(told, result)
                if told.code:
                    self._missed(told.group, result)
                for reason in sorted(reasons):
                    line = f"broker {node} tells no offsets of a group: {reason}"
                    failed[f"{line}, such as {printable(told.group)}"] = None
        result.failures += list(failed)[:_SAID_MAX]

    def _take(self, told: _Told, result: CommittedOffsets) -> set[str]:
        """Note how far a group has come; why that is not known of some partitions."""
        self._had[told.group] = (*told.come, *told.wrong)
        result.unknown.update(told.wrong)
        reasons = {why(code) for code in told.wrong.values()}
        before = self._begun.pop(told.group, {})
        begun = {one: before[one] for one in told.wrong if one in before}
        for partition, come in told.come.items():
            missed = before.get(partition, STARTS_MISSED_MAX)
            if come.first >= 0:
                result.offsets[partition][told.group] = come
                if self.is_share(told.group):
                    begun[partition] = 0
            elif missed < STARTS_MISSED_MAX:
                # A share coordinator that cannot read its state answers so too, without an error.
                begun[partition] = missed + 1
                result.unknown.add(partition)
                reasons.add("no start offset where there was one")
        if begun:
            self._begun[told.group] = begun
        return reasons

    def _forget(self, group: str) -> None:
        self._had.pop(group, None)
        self._begun.pop(group, None)

    def _missed(self, group: str, result: CommittedOffsets) -> None:
        """Note what a group had; of one that was never read nobody knows where it would be missing."""
        if group in self._had:
            result.unknown.update(self._had[group])
        else:
            result.all_unknown = True

    def _pieces(self, listed: Mapping[str, int], *, whole: bool) -> Iterable[tuple[int, list[str]]]:
        """Groups of one coordinator and kind each, so many that their answer is bounded by what they had.

        Share groups' is always whole; others' may be of one partition.
        """
        filling: dict[tuple[int, bool], tuple[list[str], int]] = {}
        for group, node in listed.items():
            kind = node, group in self._shares
            groups, weight = filling.get(kind, ([], 0))
            # An answer has something for a group without offsets too.
            own = max(1, len(self._had.get(group, ()))) if whole or kind[1] else 1
            if groups and weight + own > OFFSETS_PER_REQUEST:
                yield node, groups
                groups, weight = [], 0
            groups.append(group)
            filling[kind] = groups, weight + own
        for (node, _), (groups, _) in filling.items():
            yield node, groups

    async def _fetch(
        self, node: int, groups: Sequence[str], partition: Partition | None = None
    ) -> list[_Told]:
        """Ask for groups of one kind, for one partition, or for all that each has as always of share groups.

        Asked for one that a share group does not read, its coordinator answers as if it did.
        """
        if self.is_share(groups[0]):
            answer = await self._connection.send(_share_request(groups), node)
            return [
                _told(group, ((topic.topic_name, one, Come(one.start_offset, one.lag))
                              for topic in group.topics for one in topic.partitions))
                for group in answer.groups
            ]  # fmt: skip
        answer = await self._connection.send(_fetch_request(groups, partition), node)
        return [
            _told(group, ((topic.name, one, Come(one.committed_offset))
                          for topic in group.topics for one in topic.partitions
                          if one.committed_offset >= 0 or one.error_code))
            for group in answer.groups
        ]  # fmt: skip

    def is_share(self, group: str) -> bool:
        """Whether the last list had it as a share group."""
        return group in self._shares

    async def of(self, partition: Partition, node: int, groups: Sequence[str]) -> dict[str, Come]:
        """How far groups of one coordinator have come in one partition, if they have anything of it.

        Raises:
            Unanswered: of at least one it is not known.
        """
        found = dict[str, Come]()
        for _, piece in self._pieces(dict.fromkeys(groups, node), whole=False):
            for told in await self._fetch(node, piece, partition):
                code = told.code or told.wrong.get(partition, 0)
                if code not in (0, NOT_FOUND):
                    raise Unanswered(f"broker {node}: {why(code)} for the offsets of {printable(told.group)}")
                if partition in told.come:
                    found[told.group] = told.come[partition]
        return found


def _told(group: Any, parts: Iterable[tuple[str, Any, Come]]) -> _Told:
    """An answer about one group, by topic and what it says of one partition."""
    told = _Told(group.group_id, group.error_code, {}, {})
    for topic, one, come in () if told.code else parts:
        partition = Partition(topic, one.partition_index)
        if one.error_code:
            told.wrong[partition] = one.error_code
        else:
            told.come[partition] = come
    return told


def _list_request() -> Any:
    return ListGroupsRequest(states_filter=[], types_filter=[], max_version=5)


def _fetch_request(groups: Sequence[str], partition: Partition | None) -> Any:
    """For one partition, or for all that a group has."""
    topics = None if partition is None else by_topic([partition])
    return OffsetFetchRequest(groups=[(group, topics) for group in groups], min_version=8, max_version=8)


def _share_request(groups: Sequence[str]) -> Any:
    """For all that each has."""
    return DescribeShareGroupOffsetsRequest(groups=[(group, None) for group in groups])


def _leaderless(topics: Iterable[Any]) -> int:
    """Partitions of the topic of offsets whose groups nobody coordinates."""
    return sum(
        one.leader_id < 0 for topic in topics if topic.name == OFFSETS_TOPIC for one in topic.partitions
    )
