"""What requests of consumer groups say about who reads and where groups stand, and their answers about what.

Sources: Kafka's message schemas (JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5, OffsetCommit
0-10, OffsetFetch 0-10, TxnOffsetCommit 0-5, ConsumerGroupHeartbeat 0-1, ConsumerProtocolAssignment 0-3);
KIP-848.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from enforcer.wire.kafka.codec import Reader, asked
from enforcer.wire.kafka.codec import told as answered
from enforcer.wire.kafka.frames import HEARTBEAT, BadFrame, Reason, RequestHeader
from enforcer.wire.kafka.traffic import FETCH_PARTS_MAX

OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
JOIN_GROUP: Final = 11
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
TXN_OFFSET_COMMIT: Final = 28
CONSUMER_GROUP_HEARTBEAT: Final = 68
GROUP_KEYS: Final = frozenset({
    OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, CONSUMER_GROUP_HEARTBEAT,
    TXN_OFFSET_COMMIT,
})  # fmt: skip
"""Requests that name a consumer group."""
TOLD_KEYS: Final = frozenset({SYNC_GROUP, CONSUMER_GROUP_HEARTBEAT})
"""Those whose answers say what a member reads."""
LAST_VERSION: Final = {
    OFFSET_COMMIT: 10, OFFSET_FETCH: 10, JOIN_GROUP: 9, HEARTBEAT: 4, LEAVE_GROUP: 5, SYNC_GROUP: 5,
    CONSUMER_GROUP_HEARTBEAT: 1, TXN_OFFSET_COMMIT: 5,
}  # fmt: skip
"""The newest that is read; newer ones pass, and nothing is learnt from them."""
_COMMITS: Final = (OFFSET_COMMIT, TXN_OFFSET_COMMIT)
_CONSUMERS: Final = ("", "consumer")
"""Protocol types of groups that consume; others are Kafka Connect's workers and the like."""
GROUPS_FROM: Final = 8
"""OffsetFetch names several groups from this version on."""
_MEMBERS_FROM: Final = 3
"""LeaveGroup names several members from this version on."""
_ERROR_FROM: Final = 2
"""OffsetFetch tells an error of the group from this version on; before, of each partition alone."""
_NO_MEMBER: Final = (0, 25)
"""What LeaveGroup tells of whom the group does not have now: left, or UNKNOWN_MEMBER_ID."""

Parts = dict[str | bytes, frozenset[int]]


class GroupActor(NamedTuple):
    """Who acts for a group.

    Attributes:
        group: which group.
        member: as which member; "": not said, or it has no name yet.
        leaves: whether the member leaves.
    """

    group: str
    member: str
    leaves: bool = False


class Place(NamedTuple):
    """Where a group stands in a partition.

    Attributes:
        group: which group.
        topic: name or id.
        number: of the partition.
        offset: of the next record; -1 where it has never committed.
    """

    group: str
    topic: str | bytes
    number: int
    offset: int


_PARTS: Final = "(Partitions(ErrorCode))"
_ASKS: Final[Mapping[int, Callable[..., Any]]] = {
    key: asked(key, wanted)
    for key, wanted in {
        JOIN_GROUP: "GroupId:text MemberId:text ProtocolType:text",
        SYNC_GROUP: "GroupId:text MemberId:text",
        HEARTBEAT: "GroupId:text MemberId:text",
        LEAVE_GROUP: "GroupId:text MemberId:text Members(MemberId:text)",
        OFFSET_COMMIT: "GroupId:text",
        OFFSET_FETCH: "GroupId:text Groups(GroupId:text)",
        CONSUMER_GROUP_HEARTBEAT: "GroupId:text MemberId:text MemberEpoch",
        TXN_OFFSET_COMMIT: "GroupId:text",
    }.items()
}
_TELLS: Final[Mapping[int, Callable[..., Any]]] = {
    **{key: answered(key, "ErrorCode") for key in GROUP_KEYS},
    **{key: answered(key, f"Topics{_PARTS}", rows=4) for key in _COMMITS},
    LEAVE_GROUP: answered(LEAVE_GROUP, "ErrorCode Members(MemberId:text ErrorCode)"),
    OFFSET_FETCH: answered(OFFSET_FETCH, f"Topics{_PARTS} ErrorCode Groups(GroupId:text ErrorCode)"),
}
_SYNCED: Final = answered(SYNC_GROUP, "ErrorCode Assignment?")
_BEATEN: Final = answered(
    CONSUMER_GROUP_HEARTBEAT,
    "ErrorCode MemberId:text Assignment(TopicPartitions(TopicId Partitions))",
)


_ASSIGNED: Final = Reader(
    SYNC_GROUP, "ConsumerProtocolAssignment", "AssignedPartitions(Topic:text Partitions)"
)
_VERSION_BYTES: Final = 2
"""Its version stands before it; later ones only add to the first."""
_TOPIC: Final = "Name|TopicId:text"
_COMMITTED: Final[Mapping[int, Callable[..., Any]]] = {
    key: asked(key, f"GroupId:text Topics({_TOPIC} Partitions(PartitionIndex CommittedOffset))", rows=4)
    for key in _COMMITS
}
_TAKEN: Final[Mapping[int, Callable[..., Any]]] = {
    key: answered(key, f"Topics({_TOPIC} Partitions(PartitionIndex ErrorCode))", rows=4) for key in _COMMITS
}
_GROUP: Final = asked(OFFSET_FETCH, "GroupId:text")
_STANDS: Final = f"Topics({_TOPIC} Partitions(PartitionIndex CommittedOffset ErrorCode))"
_TOLD: Final = answered(OFFSET_FETCH, f"{_STANDS} Groups(GroupId:text {_STANDS})", rows=4)


def acting(frame: bytes, header: RequestHeader) -> list[GroupActor]:
    """Who acts for what groups in a request of GROUP_KEYS.

    Raises:
        BadFrame: it cannot be read.
    """
    key, version = header.api_key, header.api_version
    if version > LAST_VERSION[key]:
        return []
    said = _ASKS[key](frame, header)
    if key in _COMMITS:
        return [GroupActor(said, "")]
    group, member, *more = said
    if key == OFFSET_FETCH:
        return [GroupActor(one, "") for one in (member if version >= GROUPS_FROM else [group])]
    if key == LEAVE_GROUP:
        return [
            GroupActor(group, one, leaves=True) for one in (more[0] if version >= _MEMBERS_FROM else [member])
        ]
    if key == JOIN_GROUP and more[0] not in _CONSUMERS:
        return []
    # An epoch below 0: it leaves; as a static member it may come again, and then says so.
    return [GroupActor(group, member, leaves=key == CONSUMER_GROUP_HEARTBEAT and more[0] < 0)]


def let_in(found: list[GroupActor], response: bytes, key: int, version: int) -> list[GroupActor]:
    """Those of a request for whom the broker did what they asked: anybody may name any group in a request.

    Args:
        found: who acts in the request, by `acting`.

    Raises:
        BadFrame: it cannot be read.
    """
    if not found:
        return found
    said = _TELLS[key](response, version)
    if key in _COMMITS:
        return found if any(0 in parts for parts in said) else []
    if key == OFFSET_FETCH:
        parts, error, groups = said
        if version >= GROUPS_FROM:
            known = {group for group, error in groups if not error}
            return [one for one in found if one.group in known]
        refused = error if version >= _ERROR_FROM else not any(0 in errors for errors in parts)
        return [] if refused else found
    if key != LEAVE_GROUP:
        return [] if said else found
    error, members = said
    if version < _MEMBERS_FROM or error:
        return found if error in _NO_MEMBER else []
    gone = {member for member, error in members if error in _NO_MEMBER}
    return [one for one in found if one.member in gone]


def told(response: bytes, key: int, version: int) -> tuple[str, Parts | None] | None:
    """What an answer tells a member to read, and who that is ("": as it said itself).

    Returns:
        None: it says nothing about that. The partitions are None where they cannot be known.

    Raises:
        BadFrame: it cannot be read.
    """
    if version > LAST_VERSION[key]:
        return None
    if key == SYNC_GROUP:
        error, content = _SYNCED(response, version)
        if error:
            return None
        try:
            return "", assignment(content or b"")
        except BadFrame:
            # The members' own matter; of one that is not Kafka's nothing can be told.
            return "", None
    error, member, assigned = _BEATEN(response, version)
    # Null where nothing has changed.
    return None if error or assigned is None else (member or "", _parts(assigned))


def assignment(content: bytes) -> Parts:
    """The partitions of a classic consumer's assignment; no bytes: none.

    Raises:
        BadFrame: it is not Kafka's.
    """
    if not content:
        return {}
    return _parts(_ASSIGNED(content, 0, _VERSION_BYTES))


def _parts(topics: Iterable[tuple[str | bytes, Collection[int]]]) -> Parts:
    parts: Parts = {}
    room = FETCH_PARTS_MAX
    for topic, numbers in topics:
        room -= len(numbers)
        if room < 0:
            raise BadFrame(Reason.TOO_MANY_ITEMS)
        parts[topic] = frozenset(numbers)
    return parts


def places(frame: bytes, header: RequestHeader, response: bytes) -> list[Place]:
    """What a request about offsets and its answer say together; nothing of what the broker refused.

    Raises:
        BadFrame: one of them cannot be read.
    """
    key, version = header.api_key, header.api_version
    if version > LAST_VERSION[key]:
        return []
    if key == OFFSET_FETCH:
        topics, groups = _TOLD(response, version)
        return [
            Place(group, topic, number, offset)
            for group, topics in [*groups, *([(_GROUP(frame, header), topics)] if topics else ())]
            for topic, parts in topics
            for number, offset, error in parts
            if not error and offset >= 0
        ]
    if key not in _COMMITS:
        return []
    group, topics = _COMMITTED[key](frame, header)
    taken = {
        (topic, number)
        for topic, parts in _TAKEN[key](response, version)
        for number, error in parts
        if not error
    }
    return [
        Place(group, topic, number, offset)
        for topic, parts in topics
        for number, offset in parts
        if (topic, number) in taken
    ]
