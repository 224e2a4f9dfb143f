"""Metadata requests without auto-creation, and the lookup of partition counts."""

import struct
import uuid
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.metadata.metadata import MetadataRequest, MetadataResponse
from kafka_kit import CORRELATION_ID, build, request, response, with_tag

from enforcer.wire.kafka import messages
from enforcer.wire.kafka.fields import NO_ID
from enforcer.wire.kafka.frames import METADATA, BadFrame, parse_header
from enforcer.wire.kafka.messages import NOTHING_KNOWN


def metadata_request(version: int, names: list[str] | None, auto: bool) -> MetadataRequest:
    """A Metadata request for some topics, or for all (null, in version 0 an empty list)."""
    rows = None
    if names is not None:
        rows = [build(MetadataRequest.MetadataRequestTopic, version, name=name) for name in names]
    return build(MetadataRequest, version, topics=rows, allow_auto_topic_creation=auto)


@pytest.mark.parametrize("version", range(4, 14))
@pytest.mark.parametrize("names", [None, [], ["a"], ["a", "b" * 200]])
def test_flag_is_cleared(version: int, names: list[str] | None) -> None:
    """From version 4 on one byte changes, and nothing if it was clear already."""
    frame, head = request(metadata_request(version, names, True))
    quiet, _ = request(metadata_request(version, names, False))
    assert messages.forbid_auto_creation(frame, head) == (quiet, True)
    assert messages.forbid_auto_creation(quiet, head) == (quiet, False)


def test_flag_is_found_behind_unknown_tags() -> None:
    """Tags of a topic do not hide the flag and survive."""
    frame, head = request(metadata_request(12, ["a"], True))
    at = head.body_offset + 1 + 16 + 2
    quiet, _ = request(metadata_request(12, ["a"], False))
    assert messages.forbid_auto_creation(with_tag(frame, at), head) == (with_tag(quiet, at), True)


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("names", [None, [], ["a", "b"]])
def test_old_versions_become_version_4(version: int, names: list[str] | None) -> None:
    """Versions without the flag are asked as version 4; "all topics" keeps its meaning."""
    if version == 0 and names is None:
        names = []  # version 0 has no null list
    frame, head = request(metadata_request(version, names, True))
    changed_frame, changed = messages.forbid_auto_creation(frame, head)
    expected = None if version == 0 and not names else names
    assert changed
    assert changed_frame == request(metadata_request(4, expected, False))[0]


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("more", [b"\1", b"\0", b"\1\1"])
def test_bytes_left_over_are_not_passed_on(version: int, more: bytes) -> None:
    """A byte behind the topics would be read in the place of the flag that is put in."""
    frame, head = request(metadata_request(version, ["a"], True))
    assert messages.forbid_auto_creation(frame + more, head) == messages.forbid_auto_creation(frame, head)


@pytest.mark.parametrize("version", range(14))
def test_unknown_topics_are_found(version: int) -> None:
    """Topics with error 3, and no others, whatever else the answer holds."""
    broker = build(MetadataResponse.MetadataResponseBroker, version, node_id=1, host="h", port=1, rack="r")
    topic = MetadataResponse.MetadataResponseTopic
    part = build(
        topic.MetadataResponsePartition, version, partition_index=0, leader_id=1, replica_nodes=[1],
        isr_nodes=[1], offline_replicas=[2],
    )  # fmt: skip
    found = [
        build(topic, version, name=name, error_code=error, partitions=[] if error else [part, part])
        for name, error in (("there", 0), ("absent", 3), ("secret", 29), ("gone", 3))
    ]
    answer = build(MetadataResponse, version, brokers=[broker], cluster_id="c", controller_id=1, topics=found)
    assert messages.unknown_topics(response(answer), version) == ["absent", "gone"]


@pytest.mark.parametrize("version", range(4))
def test_answers_turn_back_into_old_versions(version: int) -> None:
    """A version 4 answer loses exactly the fields that the old version lacks."""
    cls = MetadataResponse
    topic = cls.MetadataResponseTopic

    def answer(version: int) -> bytes:
        brokers = [
            build(cls.MetadataResponseBroker, version, node_id=node, host="b", port=9092, rack=rack)
            for node, rack in ((1, "r"), (2, None))
        ]
        partition = topic.MetadataResponsePartition
        rows = [
            build(partition, version, partition_index=n, leader_id=1, replica_nodes=[1, 2], isr_nodes=[2])
            for n in (0, 1)
        ]
        topics = [
            build(topic, version, error_code=5, name="t", is_internal=True, partitions=rows),
            build(topic, version, error_code=3, name="none", partitions=[]),
        ]
        values = {"throttle_time_ms": 9, "cluster_id": "c", "controller_id": 2}
        return response(build(cls, version, brokers=brokers, topics=topics, **values))

    assert messages.metadata_answer_as(answer(4), version) == answer(version)


@pytest.mark.parametrize("version", [1, 2])
def test_answers_of_very_many_topics_turn_back_too(version: int) -> None:
    """What is the same in both is not walked through."""
    cls = MetadataResponse
    topic = cls.MetadataResponseTopic
    topics = [build(topic, 4, name=f"t{number}", partitions=[]) for number in range(15_000)]
    values = {"brokers": [], "topics": topics, "throttle_time_ms": 0, "cluster_id": "c", "controller_id": 1}
    whole = response(build(cls, 4, **values))
    assert len(messages.metadata_answer_as(whole, version)) == len(whole) - 4 - (3 if version == 1 else 0)


def test_topics_request_creates_nothing() -> None:
    """Our own lookup is a Metadata request by name, as any broker reads it, or by id, never by both."""
    row = MetadataRequest.MetadataRequestTopic
    frame = messages.topics_request(CORRELATION_ID, b"\0\5tests", ["a", "b"], [])
    quiet = {"allow_auto_topic_creation": False}
    rows = [build(row, 4, name=name) for name in ("a", "b")]
    assert frame == request(build(MetadataRequest, 4, topics=rows, **quiet))[0]
    # Asked for nothing, only whether the client was let in.
    nothing = messages.topics_request(CORRELATION_ID, b"\xff\xff", [], [])
    assert nothing == request(build(MetadataRequest, 4, topics=[], **quiet), None)[0]
    topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, "t")
    rows = [build(row, 12, name=None, topic_id=topic_id)]
    by_id = messages.topics_request(CORRELATION_ID, b"\xff\xff", [], [topic_id.bytes])
    assert by_id == request(build(MetadataRequest, 12, topics=rows, **quiet), None)[0]
    assert parse_header(by_id).api_key == METADATA
    with pytest.raises(ValueError, match="by name or by id"):
        messages.topics_request(1, b"\xff\xff", ["a"], [bytes(16)])


def test_topic_counts_are_read() -> None:
    """Counts by name and id, None for what does not exist, nothing for what may not be seen."""
    cls = MetadataResponse
    topic = cls.MetadataResponseTopic
    known, unknown = uuid.uuid5(uuid.NAMESPACE_DNS, "a"), uuid.uuid5(uuid.NAMESPACE_DNS, "b")
    nobody = uuid.UUID(int=0)
    rows = [
        build(topic.MetadataResponsePartition, 12, partition_index=n, replica_nodes=[1]) for n in range(3)
    ]
    topics = [
        build(topic, 12, error_code=code, name=name, topic_id=topic_id, partitions=partitions)
        for code, name, topic_id, partitions in [
            (0, "a", known, rows),
            (5, "electing", nobody, rows[:2]),
            (3, "none", nobody, []),
            (17, "bad name", nobody, []),
            (29, "hidden", nobody, []),
            (100, None, unknown, []),
        ]
    ]
    broker = build(cls.MetadataResponseBroker, 12, node_id=1, host="b", port=1, rack=None)
    answer = response(build(cls, 12, brokers=[broker], topics=topics, cluster_id="c"))
    counts = messages.decode_topics(answer, ids=True)
    assert counts.by_name == {"a": 3, "electing": 2, "none": None, "bad name": None}
    assert counts.by_id == {known.bytes: 3, unknown.bytes: None}
    assert counts.names == {known.bytes: "a"}
    assert counts.broker_count == 1
    merged = NOTHING_KNOWN.merged(counts)
    assert merged == counts
    assert NO_ID not in merged.by_id


def test_topic_counts_by_name_are_read() -> None:
    """In the version that every broker has, which knows no ids."""
    cls = MetadataResponse
    topic = cls.MetadataResponseTopic
    rows = [build(topic.MetadataResponsePartition, 4, partition_index=n, replica_nodes=[1]) for n in range(3)]
    topics = [
        build(topic, 4, error_code=code, name=name, partitions=partitions)
        for code, name, partitions in ((0, "a", rows), (3, "none", []), (29, "hidden", []))
    ]
    broker = build(cls.MetadataResponseBroker, 4, node_id=1, host="b", port=1, rack="r")
    counts = messages.decode_topics(response(build(cls, 4, brokers=[broker], topics=topics)), ids=False)
    assert counts.by_name == {"a": 3, "none": None} and not counts.by_id and counts.broker_count == 1


@given(st.integers(0, 13), st.binary(max_size=80))
def test_bodies_survive_garbage(version: int, body: bytes) -> None:
    """Garbage parses or raises BadFrame."""
    frame = struct.pack(">hhih", METADATA, version, 1, -1) + body
    for read in (
        lambda: messages.forbid_auto_creation(frame, parse_header(frame)),
        lambda: messages.metadata_answer_as(body, version % 4),
        lambda: messages.decode_topics(body, ids=version > 6),
    ):
        with suppress(BadFrame):
            read()
