"""Produce requests taken apart and answers put together, in every version."""

import pytest
from each_kit import each
from kafka.protocol.producer import ProduceRequest, ProduceResponse
from kafka_kit import CORRELATION_ID, decode, with_tag
from traffic_kit import batch, key_of, produce, produce_response

from enforcer.kafka.produce import PartitionRefusal, Place, answer, asked_in, merged, without
from enforcer.wire.kafka.frames import BadFrame

VERSIONS = range(3, 14)
TOPICS = {"a": [batch(1), batch(2), batch(3)], "b": [batch(4)]}


def refused_of(version: int, *places: Place) -> dict[Place, PartitionRefusal]:
    """Some partitions that may not be written to."""
    by_id = version >= 13
    refusal = (44, "too much")
    return {(key_of(topic.decode(), by_id), number): refusal for topic, number in places}


def errors(version: int, frame: bytes) -> dict[tuple[str, int], int]:
    """What an answer says of each partition."""
    return {
        (topic.topic_id.bytes.rstrip(b"\1").decode() if version >= 13 else topic.name, part.index):
        part.error_code
        for topic in decode(ProduceResponse, version, frame).responses
        for part in topic.partition_responses
    }


@each("version", VERSIONS)
@each("txn", [None, "t"])
def test_what_is_asked_for(version: int, txn: str | None) -> None:
    """Acks, timeout and partitions, with and without a transaction."""
    frame, header = produce(version, TOPICS, acks=-1, txn=txn)
    asked = asked_in(frame, header)
    expected = [
        (key_of(topic, version >= 13), n) for topic, parts in TOPICS.items() for n in range(len(parts))
    ]
    assert (asked.acks, asked.timeout_ms, asked.places) == (-1, 1_000, expected)


@each("version", VERSIONS)
def test_what_is_free_goes_on_unchanged(version: int) -> None:
    """Topics of which nothing is left are not named any more; records and transaction stay."""
    frame, header = produce(version, TOPICS, acks=1, txn="t")
    left = without(frame, header, refused_of(version, (b"a", 1), (b"b", 0)))
    read = decode(ProduceRequest, version, left)
    assert (read.transactional_id, read.acks, read.timeout_ms) == ("t", 1, 1_000)
    (topic,) = read.topic_data
    assert [(part.index, bytes(part.records)) for part in topic.partition_data] == [
        (0, TOPICS["a"][0]),
        (2, TOPICS["a"][2]),
    ]
    assert without(frame, header, ()) == frame


@each("version", VERSIONS)
def test_answers_say_what_was_refused(version: int) -> None:
    """Of all partitions, or beside what the broker says; with a message where the version has one."""
    _, header = produce(version, TOPICS)
    refused = refused_of(version, (b"a", 1), (b"b", 0))
    whole = answer(header, refused)
    assert errors(version, whole) == {("a", 1): 44, ("b", 0): 44}
    said = decode(ProduceResponse, version, whole).responses[0].partition_responses[0]
    assert int.from_bytes(whole[:4], "big") == CORRELATION_ID and said.base_offset == -1
    assert version < 8 or said.error_message == "too much"
    broker = produce_response(version, {"a": [0, 0, 3]})
    together = merged(header, refused_of(version, (b"a", 3), (b"b", 0)), broker)
    assert errors(version, together) == {("a", 0): 0, ("a", 1): 0, ("a", 2): 3, ("a", 3): 44, ("b", 0): 44}
    assert merged(header, {}, broker) == broker


@pytest.mark.parametrize("version", [3, 9, 13])
def test_however_many_partitions_are_taken_apart(version: int) -> None:
    """Of a request for thousands of them some may be blocked, and its connection stays."""
    frame, header = produce(version, {"a": [batch(1)] * 5_000, "b": [batch(1)] * 5_000})
    places = asked_in(frame, header).places
    assert len(asked_in(without(frame, header, set(places[1:])), header).places) == 1
    whole = answer(header, dict.fromkeys(places, (44, "too much")))
    assert len(errors(version, merged(header, {(places[0][0], 7_000): (44, "")}, whole))) == 10_001


def test_tags_that_nobody_knows_are_kept() -> None:
    """Such as the addresses of new leaders."""
    _, header = produce(9, TOPICS)
    broker = produce_response(9, {"a": [0]})
    tagged = with_tag(broker, len(broker) - 1)
    assert merged(header, refused_of(9, (b"b", 0)), tagged).endswith(tagged[len(broker) - 1 :])


@pytest.mark.parametrize("version", [3, 9, 13])
def test_damage_is_refused(version: int) -> None:
    """However much of it is there."""
    frame, header = produce(version, {"a": [b"xyz"]})
    for stop in range(header.body_offset, len(frame) - 2):
        with pytest.raises(BadFrame):
            asked_in(frame[:stop], header)
    with pytest.raises(BadFrame):
        merged(header, refused_of(version, (b"a", 1)), produce_response(version, {"a": [0]})[:-4])
