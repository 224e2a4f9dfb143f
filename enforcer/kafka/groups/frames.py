"""What requests of consumer groups say about who reads, and their answers about what.

Sources: Kafka's message schemas (JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5, OffsetCommit
0-10, OffsetFetch 0-10, TxnOffsetCommit 0-5, ConsumerGroupHeartbeat 0-1, ConsumerProtocolAssignment 0-3);
KIP-848. Where groups stand is read in offsets.py.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from enforcer.wire.kafka.fields import Cursor
from enforcer.wire.kafka.frames import (
    HEARTBEAT,
    BadFrame,
    Reason,
    RequestHeader,
    is_flexible,
    response_body_offset,
)
from enforcer.wire.kafka.traffic import FETCH_PARTS_MAX, TOPIC_ID_BYTES

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
_CONSUMERS: Final = ("", "consumer")
"""Protocol types of groups that consume; others are Kafka Connect's workers and the like."""
GROUPS_FROM: Final = 8
"""OffsetFetch names several groups from this version on."""
_MEMBERS_FROM: Final = 3
"""LeaveGroup names several members from this version on."""
THROTTLE_FROM: Final = {
    OFFSET_COMMIT: 3, OFFSET_FETCH: 3, JOIN_GROUP: 2, HEARTBEAT: 1, LEAVE_GROUP: 1, SYNC_GROUP: 1,
    CONSUMER_GROUP_HEARTBEAT: 0, TXN_OFFSET_COMMIT: 0,
}  # fmt: skip
"""From this version on an answer begins with a throttle time."""
_ERROR_FROM: Final = 2
"""OffsetFetch tells an error of the group from this version on; before, of each partition alone."""
_NO_MEMBER: Final = (0, 25)
"""What LeaveGroup tells of whom the group does not have now: left, or UNKNOWN_MEMBER_ID."""

Parts = dict[str | bytes, frozenset[int]]


class Acting(NamedTuple):
    """Who acts for a group.

    Attributes:
        group: which group.
        member: as which member; "": not said, or it has no name yet.
        leaves: whether the member leaves.
    """

    group: str
    member: str
    leaves: bool = False


def acting(frame: bytes, header: RequestHeader) -> list[Acting]:
    """Who acts for what groups in a request of GROUP_KEYS.

    Raises:
        BadFrame: it cannot be read.
    """
    version = header.api_version
    if version > LAST_VERSION[header.api_key]:
        return []
    cursor = Cursor(frame, header.body_offset, is_flexible(header.api_key, version))
    return _READ[header.api_key](cursor, version)


def _join(cursor: Cursor, version: int) -> list[Acting]:
    group = cursor.string()
    cursor.skip(8 if version >= 1 else 4)  # timeouts
    member = cursor.string()
    if version >= 5:
        cursor.skip_string()  # name of a static member
    return [Acting(group, member)] if cursor.string() in _CONSUMERS else []


def _member(cursor: Cursor, _version: int) -> list[Acting]:
    group = cursor.string()
    cursor.skip(4)  # generation
    return [Acting(group, cursor.string())]


def _leave(cursor: Cursor, version: int) -> list[Acting]:
    group = cursor.string()
    if version < _MEMBERS_FROM:
        return [Acting(group, cursor.string(), leaves=True)]
    found = []
    for _ in cursor.elements():
        found.append(Acting(group, cursor.string(), leaves=True))
        cursor.skip_string()  # name of a static member
        if version >= 5:
            cursor.skip_string()  # reason
        cursor.skip_tags()
    return found


def _commit(cursor: Cursor, _version: int) -> list[Acting]:
    return [Acting(cursor.string(), "")]


def _txn_commit(cursor: Cursor, _version: int) -> list[Acting]:
    cursor.skip_string()  # transactional id
    return [Acting(cursor.string(), "")]


def _offsets(cursor: Cursor, version: int) -> list[Acting]:
    if version < GROUPS_FROM:
        return [Acting(cursor.string(), "")]
    found = []
    for _ in cursor.elements():
        found.append(Acting(cursor.string(), ""))
        if version >= 9:
            cursor.skip_string()  # member
            cursor.skip(4)  # its epoch
        for _ in cursor.elements():
            if version >= 10:
                cursor.skip(TOPIC_ID_BYTES)
            else:
                cursor.skip_string()
            cursor.skip(4 * max(0, cursor.array_length()))
            cursor.skip_tags()
        cursor.skip_tags()
    return found


def _heartbeat(cursor: Cursor, _version: int) -> list[Acting]:
    group, member = cursor.string(), cursor.string()
    # An epoch below 0: it leaves; as a static member it may come again, and then says so.
    return [Acting(group, member, leaves=cursor.int32() < 0)]


_READ: Final[dict[int, Callable[[Cursor, int], list[Acting]]]] = {
    JOIN_GROUP: _join,
    SYNC_GROUP: _member,
    HEARTBEAT: _member,
    LEAVE_GROUP: _leave,
    OFFSET_COMMIT: _commit,
    OFFSET_FETCH: _offsets,
    CONSUMER_GROUP_HEARTBEAT: _heartbeat,
    TXN_OFFSET_COMMIT: _txn_commit,
}


def let_in(found: list[Acting], response: bytes, key: int, version: int) -> list[Acting]:
    """Those of a request for whom the broker did what they asked: anybody may name any group in a request.

    Args:
        found: who acts in the request, by `acting`.
        response: the broker's answer.
        key: its API.
        version: its version.

    Raises:
        BadFrame: it cannot be read.
    """
    if not found:
        return found
    cursor = Cursor(response, response_body_offset(key, version, response), is_flexible(key, version))
    cursor.skip(4 if version >= THROTTLE_FROM[key] else 0)
    if key in (OFFSET_COMMIT, TXN_OFFSET_COMMIT):
        return found if 0 in _part_errors(cursor, version >= 10, lambda: None) else []
    if key == OFFSET_FETCH:
        known = _fetched_groups(cursor, version)
        return found if known is None else [one for one in found if one.group in known]
    error = cursor.int16()
    if key != LEAVE_GROUP:
        return [] if error else found
    if version < _MEMBERS_FROM or error:
        return found if error in _NO_MEMBER else []
    gone = set()
    for _ in cursor.elements():
        member = cursor.string()
        cursor.skip_string()  # name of a static member
        if cursor.int16() in _NO_MEMBER:
            gone.add(member)
        cursor.skip_tags()
    return [one for one in found if one.member in gone]


def _fetched_groups(cursor: Cursor, version: int) -> set[str] | None:
    """The groups whose offsets an answer tells; None: of the only one."""

    def skip_offset() -> None:
        cursor.skip(12 if version >= 5 else 8)  # offset, leader's epoch
        cursor.skip_string()  # metadata

    if version < GROUPS_FROM:
        errors = set(_part_errors(cursor, False, skip_offset))
        error = cursor.int16() if version >= _ERROR_FROM else 0 not in errors
        return set() if error else None
    known = set()
    for _ in cursor.elements():
        group = cursor.string()
        set(_part_errors(cursor, version >= 10, skip_offset))
        if cursor.int16() == 0:
            known.add(group)
        cursor.skip_tags()
    return known


def _part_errors(cursor: Cursor, ids: bool, skip: Callable[[], None]) -> Iterator[int]:
    """The errors of the partitions of an array of topics; `skip` moves over what is before each."""
    for _ in cursor.elements():
        if ids:
            cursor.skip(TOPIC_ID_BYTES)
        else:
            cursor.skip_string()
        for _ in cursor.elements():
            cursor.skip(4)  # number
            skip()
            yield cursor.int16()
            cursor.skip_tags()
        cursor.skip_tags()


def told(response: bytes, key: int, version: int) -> tuple[str, Parts | None] | None:
    """What an answer tells a member to read, and who that is ("": as it said itself).

    Returns:
        None: it says nothing about that. The partitions are None where they cannot be known.

    Raises:
        BadFrame: it cannot be read.
    """
    if version > LAST_VERSION[key]:
        return None
    cursor = Cursor(response, response_body_offset(key, version, response), is_flexible(key, version))
    return _synced(cursor, version) if key == SYNC_GROUP else _beaten(cursor)


def _synced(cursor: Cursor, version: int) -> tuple[str, Parts | None] | None:
    cursor.skip(4 if version >= 1 else 0)  # throttle time
    if cursor.int16():
        return None
    if version >= 5:
        cursor.skip_string()  # protocol type
        cursor.skip_string()  # protocol
    content = cursor.nullable_bytes() or b""
    try:
        return "", assignment(content)
    except BadFrame:
        # The members' own matter; of one that is not Kafka's nothing can be told.
        return "", None


def assignment(content: bytes) -> Parts:
    """The partitions of a classic consumer's assignment; no bytes: none.

    Raises:
        BadFrame: it is not Kafka's.
    """
    parts: Parts = {}
    if not content:
        return parts
    cursor = Cursor(content, 2, False)  # behind its version
    room = FETCH_PARTS_MAX
    for _ in cursor.elements():
        name = cursor.string()
        numbers, room = _numbers(cursor, room)
        parts[name] = numbers
    return parts


def _beaten(cursor: Cursor) -> tuple[str, Parts | None] | None:
    cursor.skip(4)  # throttle time
    error = cursor.int16()
    cursor.skip_string()  # message
    member = cursor.nullable_string() or ""
    cursor.skip(8)  # epoch, interval
    # Null where nothing has changed.
    if error or cursor.int8() < 0:
        return None
    parts: Parts = {}
    room = FETCH_PARTS_MAX
    for _ in cursor.elements():
        topic_id = cursor.raw(TOPIC_ID_BYTES)
        parts[topic_id], room = _numbers(cursor, room)
        cursor.skip_tags()
    return member, parts


def _numbers(cursor: Cursor, room: int) -> tuple[frozenset[int], int]:
    count = max(0, cursor.array_length())
    if count > room:
        raise BadFrame(Reason.TOO_MANY_ITEMS)
    return frozenset(cursor.int32() for _ in range(count)), room - count
