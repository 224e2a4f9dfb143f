"""What became of data, read and written in every version; kafka-python is the second opinion."""

import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from each_kit import each
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin.topics import CreatePartitionsResponse, CreateTopicsResponse, DeleteTopicsResponse
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse
from kafka_kit import build, decode, response
from traffic_kit import batch, fetch_response, key_of, produce, produce_response

from enforcer.wire.kafka.codec import patch_throttle, throttle_offset
from enforcer.wire.kafka.frames import FETCH, PRODUCE, BadFrame
from enforcer.wire.kafka.outcomes import emptied, refused, surely_accepted, with_acks
from enforcer.wire.kafka.traffic import Part, produce_acks

PRODUCE_VERSIONS = range(3, 14)


@each("version", PRODUCE_VERSIONS)
def test_partitions_that_were_refused(version: int) -> None:
    """Each by topic and number; none in a good answer."""
    frame = produce_response(version, {"one": [0, 3, 0], "n" * 200: [87], "three": [0]})
    ids = version >= 13
    assert refused(frame, version) == [(key_of("one", ids), 1), (key_of("n" * 200, ids), 0)]
    assert refused(produce_response(version, {"one": [0, 0]}), version) == []


@each("version", PRODUCE_VERSIONS)
@each("name", ["t", "n" * 200])
def test_the_usual_answer_is_known_by_its_beginning(version: int, name: str) -> None:
    """For one partition; anything else is to be read."""
    part = Part(key_of(name, version >= 13), 0, 1, 1)
    assert surely_accepted(produce_response(version, {name: [0]}), version, part)
    assert not surely_accepted(produce_response(version, {name: [3]}), version, part)
    assert not surely_accepted(produce_response(version, {"other": [0]}), version, part)


@pytest.mark.parametrize("version", [8, 12])
def test_nothing_is_kept_of_long_names(version: int) -> None:
    """A client can make up thousands of 32 kB each, in requests that a broker refuses."""
    tracemalloc.start()
    try:
        for number in range(50):
            part = Part(b"%032000d" % number, number, 1, 1)
            assert not surely_accepted(bytes(64), version, part)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 500_000


def test_old_answers() -> None:
    """Versions 0 to 2, which kafka-python has no more."""
    head = (7).to_bytes(4, "big") + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\2"
    for version, width in ((0, 8), (1, 8), (2, 16)):
        parts = b"".join(
            number.to_bytes(4, "big") + error.to_bytes(2, "big") + bytes(width)
            for number, error in ((0, 0), (5, 6))
        )
        assert refused(head + parts + bytes(4), version) == [(b"t", 5)]


@each("version", range(4, 19))
def test_a_fetch_response_that_brings_nothing(version: int) -> None:
    """The same session, no topics, no error."""
    session = {"session_id": 5} if version >= 7 else {}
    frame = fetch_response(version, {"one": [batch(5)], "two": [batch(1)]}, throttle_time_ms=9, **session)
    read = decode(FetchResponse, version, emptied(frame, version))
    assert (read.throttle_time_ms, read.responses) == (9, [])
    if version >= 7:
        assert (read.session_id, read.error_code) == (5, 0)


@each("version", PRODUCE_VERSIONS)
@each("txn", [None, "some id"])
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


THROTTLED = {
    (cls, version)
    for cls in (FetchResponse, CreateTopicsResponse, DeleteTopicsResponse, CreatePartitionsResponse)
    for version in range(cls.min_version, cls.max_version + 1)
    if cls.fields["throttle_time_ms"].for_version_q(version)
}


@each(("cls", "version"), sorted(THROTTLED, key=str))
def test_throttle_time_in_every_version(cls: type[ApiMessage], version: int) -> None:
    """The field is raised, and nothing else changes."""
    frame = response(build(cls, version))
    patched = patch_throttle(cls.API_KEY, version, frame, 1234)
    assert decode(cls, version, patched).throttle_time_ms == 1234
    assert patch_throttle(cls.API_KEY, version, patched, 1233) == patched
    offset = throttle_offset(cls.API_KEY, version, frame)
    assert frame[:offset] + frame[offset + 4 :] == patched[:offset] + patched[offset + 4 :]


def test_versions_without_a_throttle_time() -> None:
    """They come back unchanged."""
    for key, version in ((3, 2), (PRODUCE, 0), (FETCH, 0)):
        assert patch_throttle(key, version, bytes(20), 9) == bytes(20)
        assert not throttle_offset(key, version, bytes(20))


RACKS = st.sampled_from([None, "", "r", "ra", "rac", "rack", "rack5", "rack-6"])
ENDPOINTS = st.lists(
    st.tuples(st.sampled_from(["h", "broker-1"]), st.integers(256, 65535), RACKS), min_size=0, max_size=3
)


@given(st.integers(3, 13), st.integers(0, 3), ENDPOINTS, st.integers(0, 1 << 23))
def test_produce_in_every_version(
    version: int, partitions: int, endpoints: list[tuple[str, int, str | None]], throttle_ms: int
) -> None:
    """Produce has the field at its end, before the tag of new leaders if there is one."""
    rows = [{"name": "t", "partition_responses": [{"index": index} for index in range(partitions)]}]
    nodes = [
        {"node_id": node, "host": host, "port": port, "rack": rack}
        for node, (host, port, rack) in enumerate(endpoints)
    ]
    more: dict[str, Any] = {"node_endpoints": nodes} if nodes and version >= 10 else {}
    frame = response(build(ProduceResponse, version, throttle_time_ms=10, responses=rows, **more))
    patched = patch_throttle(PRODUCE, version, frame, throttle_ms)
    assert decode(ProduceResponse, version, patched).throttle_time_ms == max(10, throttle_ms)
    assert patch_throttle(PRODUCE, version, patched, 1) == patched


@given(st.sampled_from([0, 1, 3, 19]), st.integers(0, 13), st.binary(max_size=60))
def test_throttle_survives_garbage(api_key: int, version: int, frame: bytes) -> None:
    """Garbage is patched in place or raises BadFrame."""
    with suppress(BadFrame):
        assert len(patch_throttle(api_key, version, frame, 1)) == len(frame)
