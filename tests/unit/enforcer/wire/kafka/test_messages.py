"""Metadata requests without auto-creation, and the lookup of partition counts."""

import uuid

import pytest
from each_kit import each
from kafka.protocol.metadata.metadata import MetadataRequest, MetadataResponse
from kafka_kit import CORRELATION_ID, build, request, response, with_tag

from enforcer.wire.kafka import messages
from enforcer.wire.kafka.codec import response_layout
from enforcer.wire.kafka.frames import METADATA, NO_ID, parse_header
from enforcer.wire.kafka.messages import NOTHING_KNOWN


def metadata_request(version: int, names: list[str] | None, auto: bool) -> MetadataRequest:
    """A Metadata request for some topics, or for all (null, in version 0 an empty list)."""
    rows = None if names is None else [{"name": name} for name in names]
    return build(MetadataRequest, version, topics=rows, allow_auto_topic_creation=auto)


@each("version", range(4, 14))
@each("names", [None, [], ["a"], ["a", "b" * 200]])
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


@each("version", range(4))
@each("names", [None, [], ["a", "b"]])
def test_old_versions_become_version_4(version: int, names: list[str] | None) -> None:
    """Versions without the flag are asked as version 4; "all topics" keeps its meaning."""
    if version == 0 and names is None:
        names = []  # version 0 has no null list
    frame, head = request(metadata_request(version, names, True))
    changed_frame, changed = messages.forbid_auto_creation(frame, head)
    expected = None if version == 0 and not names else names
    assert changed
    assert changed_frame == request(metadata_request(4, expected, False))[0]


@each("version", range(14))
@each("more", [b"\1", b"\0", b"\1\1"])
def test_bytes_left_over_are_not_passed_on(version: int, more: bytes) -> None:
    """A byte behind the topics would be read in the place of the flag that is put in."""
    frame, head = request(metadata_request(version, ["a"], True))
    assert messages.forbid_auto_creation(frame + more, head) == messages.forbid_auto_creation(frame, head)


@each("version", range(14))
def test_unknown_topics_are_found(version: int) -> None:
    """Topics with error 3, and no others, whatever else the answer holds."""
    part = {
        "partition_index": 0, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1], "offline_replicas": [2],
    }  # fmt: skip
    found = [
        {"name": name, "error_code": error, "partitions": [] if error else [part, part]}
        for name, error in (("there", 0), ("absent", 3), ("secret", 29), ("gone", 3))
    ]
    answer = build(MetadataResponse, version, brokers=[BROKER], cluster_id="c", controller_id=1, topics=found)
    assert messages.unknown_topics(response(answer), version) == ["absent", "gone"]


@pytest.mark.parametrize("version", range(4))
def test_answers_turn_back_into_old_versions(version: int) -> None:
    """A version 4 answer loses exactly the fields that the old version lacks."""
    brokers = [
        {"node_id": node, "host": "b", "port": 9092, "rack": rack} for node, rack in ((1, "r"), (2, None))
    ]
    rows = [
        {"partition_index": number, "leader_id": 1, "replica_nodes": [1, 2], "isr_nodes": [2]}
        for number in (0, 1)
    ]
    topics = [
        {"error_code": 5, "name": "t", "is_internal": True, "partitions": rows},
        {"error_code": 3, "name": "none", "partitions": []},
    ]
    values = {"throttle_time_ms": 9, "cluster_id": "c", "controller_id": 2}
    answers = [
        response(build(MetadataResponse, one, brokers=brokers, topics=topics, **values))
        for one in (4, version)
    ]
    assert messages.metadata_answer_as(answers[0], version) == answers[1]


@pytest.mark.parametrize("version", [1, 2])
def test_answers_of_very_many_topics_turn_back_too(version: int) -> None:
    """What is the same in both is not walked through."""
    topics = [{"name": f"t{number}", "partitions": []} for number in range(15_000)]
    values = {"brokers": [], "topics": topics, "throttle_time_ms": 0, "cluster_id": "c", "controller_id": 1}
    whole = response(build(MetadataResponse, 4, **values))
    assert len(messages.metadata_answer_as(whole, version)) == len(whole) - 4 - (3 if version == 1 else 0)


def test_topics_request_creates_nothing() -> None:
    """Our own lookup is a Metadata request by name, as any broker reads it, or by id."""
    frame = messages.topics_request(CORRELATION_ID, b"\0\5tests", ["a", "b"])
    assert frame == request(metadata_request(4, ["a", "b"], False))[0]
    # Asked for nothing, only whether the client was let in.
    nothing = messages.topics_request(CORRELATION_ID, b"\xff\xff", [])
    assert nothing == request(metadata_request(4, [], False), None)[0]
    topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, "t")
    rows = [{"name": None, "topic_id": topic_id}]
    by_id = messages.topics_request(CORRELATION_ID, b"\xff\xff", [topic_id.bytes])
    asked = build(MetadataRequest, 12, topics=rows, allow_auto_topic_creation=False)
    assert by_id == request(asked, None)[0]
    assert parse_header(by_id).api_key == METADATA


BROKER = {"node_id": 1, "host": "b", "port": 1, "rack": "r"}
ROWS = [{"partition_index": number, "replica_nodes": [1]} for number in range(3)]


def test_topic_counts_are_read() -> None:
    """Counts by name and id, None for what does not exist, nothing for what may not be seen."""
    known, unknown = uuid.uuid5(uuid.NAMESPACE_DNS, "a"), uuid.uuid5(uuid.NAMESPACE_DNS, "b")
    nobody = uuid.UUID(int=0)
    topics = [
        {"error_code": code, "name": name, "topic_id": topic_id, "partitions": ROWS[:count]}
        for code, name, topic_id, count in [
            (0, "a", known, 3), (5, "electing", nobody, 2), (3, "none", nobody, 0),
            (17, "bad name", nobody, 0), (29, "hidden", nobody, 0), (100, None, unknown, 0),
        ]
    ]
    answer = build(MetadataResponse, 12, brokers=[BROKER | {"rack": None}], topics=topics, cluster_id="c")
    counts = messages.decode_topics(response(answer), ids=True)
    assert counts.by_name == {"a": 3, "electing": 2, "none": None, "bad name": None}
    assert counts.by_id == {known.bytes: 3, unknown.bytes: None}
    assert counts.names == {known.bytes: "a"}
    assert counts.broker_count == 1
    merged = NOTHING_KNOWN.merged(counts)
    assert merged == counts
    assert NO_ID not in merged.by_id


@pytest.mark.parametrize("ids", [False, True])
def test_an_answer_about_as_many_topics_as_are_asked_for_is_read(ids: bool) -> None:
    """A thousand partitions each, more than clusters have: what cannot be read ends a connection."""
    topic = {"Name": b"t", "TopicId": b"i" * 16, "Partitions": [{"ReplicaNodes": (1, 2, 3)}] * 1_000}
    written = response_layout(3, 12 if ids else 4).write({"Topics": [topic] * messages.ASKED_AT_ONCE})
    counts = messages.decode_topics(bytes(4 + ids) + written, ids)
    assert counts.by_name == {"t": 1_000} and (counts.names == {b"i" * 16: "t"}) is ids


def test_topic_counts_by_name_are_read() -> None:
    """In the version that every broker has, which knows no ids."""
    topics = [
        {"error_code": code, "name": name, "partitions": ROWS[:count]}
        for code, name, count in ((0, "a", 3), (3, "none", 0), (29, "hidden", 0))
    ]
    answer = response(build(MetadataResponse, 4, brokers=[BROKER], topics=topics))
    counts = messages.decode_topics(answer, ids=False)
    assert counts.by_name == {"a": 3, "none": None} and not counts.by_id and counts.broker_count == 1
