"""Who acts for which group, in every version, as kafka-python writes it."""

import struct
from typing import Any

import pytest
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
from kafka_kit import build, request, response

from enforcer.kafka.groups.frames import (
    CONSUMER_GROUP_HEARTBEAT,
    SYNC_GROUP,
    GroupActor,
    acting,
    assignment,
    let_in,
    told,
)
from enforcer.wire.kafka.fields import NO_TAGS, array_length, string
from enforcer.wire.kafka.frames import BadFrame, parse_header


def acts(message: Any) -> list[GroupActor]:
    """What a request says."""
    return acting(*request(message))


def with_static(version: int, since: int) -> dict[str, Any]:
    """The name of a static member, where a version has it."""
    return {"group_instance_id": "s1"} if version >= since else {}


@pytest.mark.parametrize("version", range(10))
def test_joining(version: int) -> None:
    """Consumers count; Kafka Connect's workers are none."""

    def join(kind: str) -> list[GroupActor]:
        return acts(
            build(
                JoinGroupRequest, version, group_id="g", session_timeout_ms=1, rebalance_timeout_ms=1,
                member_id="m", protocol_type=kind, protocols=[], **with_static(version, 5),
            )
        )  # fmt: skip

    assert join("consumer") == [GroupActor("g", "m")]
    assert join("connect") == []


@pytest.mark.parametrize("version", range(6))
def test_syncing(version: int) -> None:
    """The member and its group."""
    fields: dict[str, Any] = {"generation_id": 3, "member_id": "m", "assignments": []}
    if version >= 5:
        fields |= {"protocol_type": "consumer", "protocol_name": "range"}
    message = build(SyncGroupRequest, version, group_id="g", **fields, **with_static(version, 3))
    assert acts(message) == [GroupActor("g", "m")]


@pytest.mark.parametrize("version", range(5))
def test_heartbeats(version: int) -> None:
    """The member and its group."""
    message = build(HeartbeatRequest, version, group_id="g", generation_id=3, member_id="m")
    assert acts(message) == [GroupActor("g", "m")]


@pytest.mark.parametrize("version", range(6))
def test_leaving(version: int) -> None:
    """One member, later several."""
    if version < 3:
        message = build(LeaveGroupRequest, version, group_id="g", member_id="m")
        assert acts(message) == [GroupActor("g", "m", leaves=True)]
        return
    identity = LeaveGroupRequest.MemberIdentity
    members = [build(identity, version, member_id=name, group_instance_id=None) for name in "mn"]
    message = build(LeaveGroupRequest, version, group_id="g", members=members)
    assert acts(message) == [GroupActor("g", name, leaves=True) for name in "mn"]


@pytest.mark.parametrize("version", range(2, 10))
def test_committing(version: int) -> None:
    """The group."""
    message = build(OffsetCommitRequest, version, group_id="g", member_id="m", topics=[])
    assert acts(message) == [GroupActor("g", "")]


@pytest.mark.parametrize("version", range(1, 10))
def test_asking_for_offsets(version: int) -> None:
    """The group, from version 8 on several."""
    if version < 8:
        topic = build(OffsetFetchRequest.OffsetFetchRequestTopic, version, name="t", partition_indexes=[1])
        message = build(OffsetFetchRequest, version, group_id="g", topics=[topic])
        assert acts(message) == [GroupActor("g", "")]
        return
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    topic = build(group.OffsetFetchRequestTopics, version, name="t", partition_indexes=[1, 2])
    groups = [build(group, version, group_id=name, topics=[topic]) for name in "gh"]
    message = build(OffsetFetchRequest, version, groups=groups)
    assert acts(message) == [GroupActor("g", ""), GroupActor("h", "")]


@pytest.mark.parametrize("epoch", [0, 3, -1, -2])
def test_the_consumer_protocol(epoch: int) -> None:
    """An epoch below 0 leaves. (kafka-python does not know these messages.)"""
    head = struct.pack(">hhih", CONSUMER_GROUP_HEARTBEAT, 1, 7, -1) + NO_TAGS
    frame = head + string("g", True) + string("m", True) + struct.pack(">i", epoch) + bytes(8)
    assert acting(frame, parse_header(frame)) == [GroupActor("g", "m", leaves=epoch < 0)]


CONTENT = struct.pack(">hi", 1, 1) + struct.pack(">h1s", 1, b"t") + struct.pack(">iiii", 2, 0, 5, -1)


@pytest.mark.parametrize("version", range(6))
def test_what_a_sync_tells(version: int) -> None:
    """The assignment; nothing with an error; not known if it is not Kafka's."""

    def tell(content: bytes, error: int = 0) -> Any:
        message = build(SyncGroupResponse, version, error_code=error, assignment=content)
        return told(response(message), SYNC_GROUP, version)

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
        return told(frame, CONSUMER_GROUP_HEARTBEAT, 1)

    row = topic_id + array_length(2, True) + struct.pack(">ii", 1, 2) + NO_TAGS
    assigned = b"\1" + array_length(1, True) + row + NO_TAGS
    assert tell(assigned) == ("m", {topic_id: frozenset({1, 2})})
    assert tell(b"\xff") is None
    assert tell(b"\xff", error=25) is None


ME = GroupActor("g", "m")


def known(message: Any, found: list[GroupActor]) -> list[GroupActor]:
    """Whom a broker's answer lets in."""
    return let_in(found, response(message), message.API_KEY, message.API_VERSION)


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
def test_who_is_refused_by_the_consumer_protocol(error: int, found: list[GroupActor]) -> None:
    """(kafka-python does not know these messages.)"""
    frame = struct.pack(">i", 7) + NO_TAGS + struct.pack(">ih", 0, error)
    assert let_in([ME], frame, CONSUMER_GROUP_HEARTBEAT, 1) == found


@pytest.mark.parametrize("version", range(6))
def test_who_has_left(version: int) -> None:
    """Each of several members by its own error; one that the group does not know is not in it."""
    both = [GroupActor("g", name, leaves=True) for name in "mn"]
    assert known(build(LeaveGroupResponse, version, error_code=30), both[:1]) == []
    if version < 3:
        assert known(build(LeaveGroupResponse, version, error_code=25), both[:1]) == both[:1]
        return
    rows = [
        build(LeaveGroupResponse.MemberResponse, version, member_id=name, error_code=error)
        for name, error in (("m", 82), ("n", 25))
    ]
    assert known(build(LeaveGroupResponse, version, members=rows), both) == both[1:]


@pytest.mark.parametrize("version", range(2, 10))
@pytest.mark.parametrize(("errors", "found"), [((0,), [ME]), ((30, 0), [ME]), ((30, 30), []), ((), [])])
def test_who_has_committed(version: int, errors: tuple[int, ...], found: list[GroupActor]) -> None:
    """An error stands with each partition alone."""
    topic = OffsetCommitResponse.OffsetCommitResponseTopic
    rows = [
        build(topic.OffsetCommitResponsePartition, version, partition_index=number, error_code=error)
        for number, error in enumerate(errors)
    ]
    topics = [build(topic, version, name="t", partitions=rows)]
    assert known(build(OffsetCommitResponse, version, topics=topics), [ME]) == found


@pytest.mark.parametrize("version", range(1, 10))
def test_who_has_got_offsets(version: int) -> None:
    """An error stands with the partitions, then behind all topics, then with each group."""
    if version >= 8:
        group = OffsetFetchResponse.OffsetFetchResponseGroup
        topic = _fetched(group.OffsetFetchResponseTopics, version, 0)
        groups = [
            build(group, version, group_id=name, topics=[topic], error_code=error)
            for name, error in (("g", 30), ("h", 0))
        ]
        both = [ME, GroupActor("h", "")]
        assert known(build(OffsetFetchResponse, version, groups=groups), both) == both[1:]
        return
    for error in (0, 30):
        topic = _fetched(OffsetFetchResponse.OffsetFetchResponseTopic, version, error)
        fields = {"topics": [topic]} | ({"error_code": error} if version >= 2 else {})
        assert known(build(OffsetFetchResponse, version, **fields), [ME]) == ([] if error else [ME])


def _fetched(topic: Any, version: int, error: int) -> Any:
    part = getattr(topic, "OffsetFetchResponsePartition", None) or topic.OffsetFetchResponsePartitions
    rows = [
        build(part, version, partition_index=0, committed_offset=5, metadata="x", error_code=error)
        for _ in range(2)
    ]
    return build(topic, version, name="t", partitions=rows)


def test_newer_versions_are_not_read() -> None:
    """What a later Kafka puts into them is its own."""
    frame = struct.pack(">hhih", SYNC_GROUP, 6, 7, -1) + NO_TAGS + b"?"
    assert acting(frame, parse_header(frame)) == []
    assert told(b"?", SYNC_GROUP, 6) is None


def test_damaged_assignments() -> None:
    """Too many partitions, or too few bytes, are no assignment."""
    for content in (CONTENT[:-8], struct.pack(">hi", 1, 1_000_000), CONTENT[:9] + b"\x7f" + CONTENT[10:]):
        with pytest.raises(BadFrame):
            assignment(content)
