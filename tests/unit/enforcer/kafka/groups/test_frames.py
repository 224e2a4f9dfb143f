"""Who acts for which group, and where groups stand, in every version, as kafka-python writes it."""

import struct
from typing import Any
from uuid import UUID

import pytest
from each_kit import each
from kafka.protocol.consumer import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafka.protocol.producer import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kafka_kit import build, request, response

from enforcer.kafka.groups import frames
from enforcer.wire.kafka.frames import NO_TAGS, BadFrame, array_length, parse_header, string

ME, SOMEBODY = frames.GroupActor("g", "m"), frames.GroupActor("g", "")
MEMBER = {"group_id": "g", "member_id": "m"}
STATIC = MEMBER | {"group_instance_id": "s1"}
ASKS_FOR = {"topics": [{"name": "t", "partition_indexes": [1, 2]}]}


@each(
    ("kind", "versions", "fields", "found"),
    [
        # Kafka Connect's workers are no consumers.
        (JoinGroupRequest, range(10), STATIC | {"protocol_type": "consumer"}, [ME]),
        (JoinGroupRequest, range(10), STATIC | {"protocol_type": "connect"}, []),
        (SyncGroupRequest, range(6), STATIC | {"protocol_type": "consumer", "protocol_name": "range"}, [ME]),
        (HeartbeatRequest, range(5), STATIC, [ME]),
        # One member, later several.
        (LeaveGroupRequest, range(3), MEMBER, [ME._replace(leaves=True)]),
        (LeaveGroupRequest, range(3, 6), {"group_id": "g", "members": [{"member_id": n} for n in "mn"]},
         [frames.GroupActor("g", name, leaves=True) for name in "mn"]),
        (OffsetCommitRequest, range(2, 10), MEMBER, [SOMEBODY]),
        (OffsetFetchRequest, range(1, 8), {"group_id": "g"} | ASKS_FOR, [SOMEBODY]),
        (OffsetFetchRequest, range(8, 10), {"groups": [{"group_id": name} | ASKS_FOR for name in "gh"]},
         [SOMEBODY, frames.GroupActor("h", "")]),
    ],
)  # fmt: skip
def test_who_acts(kind: Any, versions: range, fields: dict[str, Any], found: list[frames.GroupActor]) -> None:
    """The member and its group, or only the group, in every version."""
    for version in versions:
        assert frames.acting(*request(build(kind, version, **fields))) == found


@pytest.mark.parametrize("epoch", [0, 3, -1, -2])
def test_the_consumer_protocol(epoch: int) -> None:
    """An epoch below 0 leaves. (kafka-python does not know these messages.)"""
    head = struct.pack(">hhih", frames.CONSUMER_GROUP_HEARTBEAT, 1, 7, -1) + NO_TAGS
    frame = head + string("g", True) + string("m", True) + struct.pack(">i", epoch) + bytes(8)
    assert frames.acting(frame, parse_header(frame)) == [frames.GroupActor("g", "m", leaves=epoch < 0)]


CONTENT = struct.pack(">hi", 1, 1) + struct.pack(">h1s", 1, b"t") + struct.pack(">iiii", 2, 0, 5, -1)


@each("version", range(6))
def test_what_a_sync_tells(version: int) -> None:
    """The assignment; nothing with an error; not known if it is not Kafka's."""

    def tell(content: bytes, error: int = 0) -> Any:
        message = build(SyncGroupResponse, version, error_code=error, assignment=content)
        return frames.told(response(message), frames.SYNC_GROUP, version)

    assert tell(CONTENT) == ("", {"t": frozenset({0, 5})})
    assert tell(b"") == ("", {})
    assert tell(b"", error=27) is None
    assert tell(b"\0\1\0\0\1") == ("", None)


def test_what_a_heartbeat_tells() -> None:
    """The assignment by topic ids, if it has changed."""
    topic_id = bytes(15) + b"\5"

    def tell(assigned: bytes, error: int = 0) -> Any:
        head = struct.pack(">i", 7) + NO_TAGS + struct.pack(">ih", 0, error)
        names = string(None, True) + string("m", True)
        frame = head + names + struct.pack(">ii", 1, 5_000) + assigned + NO_TAGS
        return frames.told(frame, frames.CONSUMER_GROUP_HEARTBEAT, 1)

    row = topic_id + array_length(2, True) + struct.pack(">ii", 1, 2) + NO_TAGS
    assigned = b"\1" + array_length(1, True) + row + NO_TAGS
    assert tell(assigned) == ("m", {topic_id: frozenset({1, 2})})
    assert tell(b"\xff") is None
    assert tell(b"\xff", error=25) is None


def known(message: Any, found: list[frames.GroupActor]) -> list[frames.GroupActor]:
    """Whom a broker's answer lets in."""
    return frames.let_in(found, response(message), message.API_KEY, message.API_VERSION)


@pytest.mark.parametrize(
    ("answer", "versions"),
    [(JoinGroupResponse, range(10)), (SyncGroupResponse, range(6)), (HeartbeatResponse, range(5))],
)
def test_who_is_refused_acts_for_nobody(answer: Any, versions: range) -> None:
    """Anybody may name any group in a request."""
    for version in versions:
        assert known(build(answer, version, error_code=0), [ME]) == [ME]
        for error in (16, 25, 30):
            assert known(build(answer, version, error_code=error), [ME]) == []


@pytest.mark.parametrize(("error", "found"), [(0, [ME]), (25, []), (30, [])])
def test_who_is_refused_by_the_consumer_protocol(error: int, found: list[frames.GroupActor]) -> None:
    """(kafka-python does not know these messages.)"""
    frame = struct.pack(">i", 7) + NO_TAGS + struct.pack(">ih", 0, error)
    assert frames.let_in([ME], frame, frames.CONSUMER_GROUP_HEARTBEAT, 1) == found


@each("version", range(6))
def test_who_has_left(version: int) -> None:
    """Each of several members by its own error; one that the group does not know is not in it."""
    both = [frames.GroupActor("g", name, leaves=True) for name in "mn"]
    assert known(build(LeaveGroupResponse, version, error_code=30), both[:1]) == []
    if version < 3:
        assert known(build(LeaveGroupResponse, version, error_code=25), both[:1]) == both[:1]
        return
    rows = [{"member_id": "m", "error_code": 82}, {"member_id": "n", "error_code": 25}]
    assert known(build(LeaveGroupResponse, version, members=rows), both) == both[1:]


@each("version", range(2, 10))
@each(("errors", "found"), [((0,), [ME]), ((30, 0), [ME]), ((30, 30), []), ((), [])])
def test_who_has_committed(version: int, errors: tuple[int, ...], found: list[frames.GroupActor]) -> None:
    """An error stands with each partition alone."""
    rows = [{"partition_index": number, "error_code": error} for number, error in enumerate(errors)]
    topics = [{"name": "t", "partitions": rows}]
    assert known(build(OffsetCommitResponse, version, topics=topics), [ME]) == found


def fetched(error: int) -> list[dict[str, Any]]:
    """A topic of an answer about offsets, with an error at its partitions."""
    row = {"partition_index": 0, "committed_offset": 5, "metadata": "x", "error_code": error}
    return [{"name": "t", "partitions": [row, row]}]


@each("version", range(1, 10))
def test_who_has_got_offsets(version: int) -> None:
    """An error stands with the partitions, then behind all topics, then with each group."""
    if version >= 8:
        groups = [
            {"group_id": name, "topics": fetched(0), "error_code": error}
            for name, error in (("g", 30), ("h", 0))
        ]
        both = [ME, frames.GroupActor("h", "")]
        assert known(build(OffsetFetchResponse, version, groups=groups), both) == both[1:]
        return
    for error in (0, 30):
        answer = build(OffsetFetchResponse, version, topics=fetched(error), error_code=error)
        assert known(answer, [ME]) == ([] if error else [ME])


def test_newer_versions_are_not_read() -> None:
    """What a later Kafka puts into them is its own."""
    frame = struct.pack(">hhih", frames.SYNC_GROUP, 6, 7, -1) + NO_TAGS + b"?"
    assert frames.acting(frame, parse_header(frame)) == []
    assert frames.told(b"?", frames.SYNC_GROUP, 6) is None


def test_damaged_assignments() -> None:
    """Too many partitions, or too few bytes, are no assignment."""
    for content in (CONTENT[:-8], struct.pack(">hi", 1, 1_000_000), CONTENT[:9] + b"\x7f" + CONTENT[10:]):
        with pytest.raises(BadFrame):
            frames.assignment(content)


ID = UUID(int=5)


def name(version: int, ids_from: int = 10) -> tuple[dict[str, Any], str | bytes]:
    """How a topic is named in a version, in a message and as it is read."""
    return ({"topic_id": ID}, ID.bytes) if version >= ids_from else ({"name": "t"}, "t")


@each("version", range(11))
def test_commits(version: int) -> None:
    """Of the partitions that were taken."""
    field, topic = name(version)
    rows = [
        {"partition_index": number, "committed_offset": offset, "committed_metadata": "x"}
        for number, offset in ((0, 1 << 40), (1, 7))
    ]
    topics = [field | {"partitions": rows}]
    frame = build(OffsetCommitRequest, version, group_id="g", member_id="m", topics=topics)
    errors = [{"partition_index": number, "error_code": error} for number, error in ((1, 27), (0, 0))]
    answer = build(OffsetCommitResponse, version, topics=[field | {"partitions": errors}])
    assert frames.places(*request(frame), response(answer)) == [frames.Place("g", topic, 0, 1 << 40)]


@each("version", range(6))
def test_commits_of_transactions(version: int) -> None:
    """As of a consumer whose results go to Kafka exactly once."""
    part = {"partition_index": 2, "committed_offset": 9, "committed_metadata": None}
    frame = build(TxnOffsetCommitRequest, version, transactional_id="x", group_id="g", producer_id=1,
                  producer_epoch=1, topics=[{"name": "t", "partitions": [part]}])  # fmt: skip
    for error, found in ((0, [frames.Place("g", "t", 2, 9)]), (22, [])):
        row = {"partition_index": 2, "error_code": error}
        topics = [{"name": "t", "partitions": [row]}]
        answer = build(TxnOffsetCommitResponse, version, topics=topics)
        assert frames.places(*request(frame), response(answer)) == found


@each("version", range(1, 11))
def test_what_a_group_is_told(version: int) -> None:
    """At its start, of each group that is asked for; -1 is nowhere."""
    field, topic = name(version)
    rows = [
        {"partition_index": number, "committed_offset": offset, "metadata": "x", "error_code": error}
        for number, offset, error in ((0, 5, 0), (1, -1, 0), (2, 6, 3))
    ]
    told = {"topics": [field | {"partitions": rows}]}
    frame = build(OffsetFetchRequest, version, group_id="h", topics=[], groups=[])
    fields = {"groups": [told | {"group_id": "h"}]} if version >= 8 else told
    answer = build(OffsetFetchResponse, version, **fields)
    assert frames.places(*request(frame), response(answer)) == [frames.Place("h", topic, 0, 5)]
