"""What became of data, read and written in every version; kafka-python is the second opinion."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.producer import ProduceRequest
from kafka_kit import decode
from traffic_kit import batch, fetch_response, key_of, produce, produce_response

from enforcer.wire.kafka.frames import BadFrame, produce_acks
from enforcer.wire.kafka.outcomes import emptied, refused, surely_accepted, with_acks
from enforcer.wire.kafka.traffic import Part

PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_partitions_that_were_refused(version: int) -> None:
    """Each by topic and number; none in a good answer."""
    frame = produce_response(version, {"one": [0, 3, 0], "n" * 200: [87], "three": [0]})
    ids = version >= 13
    assert refused(frame, version) == [(key_of("one", ids), 1), (key_of("n" * 200, ids), 0)]
    assert refused(produce_response(version, {"one": [0, 0]}), version) == []


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("name", ["t", "n" * 200])
def test_the_usual_answer_is_known_by_its_beginning(version: int, name: str) -> None:
    """For one partition; anything else is to be read."""
    part = Part(key_of(name, version >= 13), 0, 1, 1)
    assert surely_accepted(produce_response(version, {name: [0]}), version, part) is (
        len(name) == 1 or not 9 <= version < 13
    )
    assert not surely_accepted(produce_response(version, {name: [3]}), version, part)
    assert not surely_accepted(produce_response(version, {"other": [0]}), version, part)


def test_old_answers() -> None:
    """Versions 0 to 2, which kafka-python has no more."""
    head = (7).to_bytes(4, "big") + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\2"
    for version, width in ((0, 8), (1, 8), (2, 16)):
        parts = b"".join(
            number.to_bytes(4, "big") + error.to_bytes(2, "big") + bytes(width)
            for number, error in ((0, 0), (5, 6))
        )
        assert refused(head + parts + bytes(4), version) == [(b"t", 5)]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_response_that_brings_nothing(version: int) -> None:
    """The same session, no topics, no error."""
    session = {"session_id": 5} if version >= 7 else {}
    frame = fetch_response(version, {"one": [batch(5)], "two": [batch(1)]}, throttle_time_ms=9, **session)
    read = decode(FetchResponse, version, emptied(frame, version))
    assert (read.throttle_time_ms, read.responses) == (9, [])
    if version >= 7:
        assert (read.session_id, read.error_code) == (5, 0)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("txn", [None, "some id"])
def test_acks_are_asked_for(version: int, txn: str | None) -> None:
    """And nothing else is changed."""
    frame, header = produce(version, {"t": [batch(2)]}, acks=0, txn=txn)
    asked = with_acks(frame, header)
    assert produce_acks(asked, header) == 1
    assert decode(ProduceRequest, version, asked).acks == 1
    assert asked == produce(version, {"t": [batch(2)]}, acks=1, txn=txn)[0]


@given(st.sampled_from(PRODUCE_VERSIONS), st.data())
def test_damage_is_a_bad_frame_or_some_partitions(version: int, data: st.DataObject) -> None:
    """Cut and changed answers raise BadFrame or give partitions; nothing else."""
    frame = bytearray(produce_response(version, {"one": [0, 3], "two": [87]}))
    for _ in range(data.draw(st.integers(0, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(frame[: data.draw(st.integers(0, len(frame)))])
    with suppress(BadFrame):
        assert all(isinstance(number, int) for _, number in refused(cut, version))
    with suppress(BadFrame):
        emptied(cut, version)
