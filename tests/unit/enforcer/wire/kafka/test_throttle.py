"""throttle_time_ms is found and raised in every response that has it."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import api_versions, metadata
from kafka.protocol.producer import ProduceResponse
from kafka_kit import build, decode, response

from enforcer.wire.kafka.frames import PRODUCE, BadFrame
from enforcer.wire.kafka.throttle import FIRST_FIELD_FROM, patch_throttle, throttle_offset

TOO_OLD = {
    1: 4,
    9: 1,
    23: 2,
    29: 1,
    30: 1,
    31: 1,
    32: 1,
    34: 1,
    35: 1,
    19: 2,
    20: 1,
}  # below Kafka 4.1's range


def responses_with_throttle_first() -> list[type[ApiMessage]]:
    """Every response class of kafka-python whose API we say has the field first."""
    classes: list[type[Any]] = []
    found: list[type[ApiMessage]] = []
    classes += ApiMessage.__subclasses__()
    while classes:
        cls = classes.pop()
        classes += cls.__subclasses__()
        if cls.type == "response" and cls._class_version is None and cls.API_KEY in FIRST_FIELD_FROM:
            found.append(cls)
    return sorted(set(found), key=lambda cls: int(cls.API_KEY))


def test_many_apis_are_compared() -> None:
    """The oracle knows most of the table, so the comparison below is not an empty one."""
    assert len(responses_with_throttle_first()) >= 25


@pytest.mark.parametrize("cls", responses_with_throttle_first(), ids=lambda cls: str(cls.name))
def test_first_field_of_every_version(cls: type[ApiMessage]) -> None:
    """The field is raised exactly in the versions that have it, and nothing else changes."""
    for version in range(TOO_OLD.get(cls.API_KEY, 0), cls.max_version + 1):
        frame = response(build(cls, version))
        patched = patch_throttle(cls.API_KEY, version, frame, 1234)
        if version < FIRST_FIELD_FROM[cls.API_KEY]:
            assert patched == frame
            assert not cls.fields["throttle_time_ms"].for_version_q(version)
            continue
        assert decode(cls, version, patched).throttle_time_ms == 1234
        assert patch_throttle(cls.API_KEY, version, patched, 1233) == patched
        offset = throttle_offset(cls.API_KEY, version, frame)
        assert offset is not None
        assert frame[:offset] + frame[offset + 4 :] == patched[:offset] + patched[offset + 4 :]


@pytest.mark.parametrize("version", range(5))
def test_api_versions_has_it_behind_the_keys(version: int) -> None:
    """ApiVersions v1+ is walked over its keys; tagged features behind it stay."""
    cls = api_versions.ApiVersionsResponse
    keys = [build(cls.ApiVersion, version, api_key=key, min_version=0, max_version=3) for key in range(5)]
    frame = response(build(cls, version, api_keys=keys))
    patched = patch_throttle(18, version, frame, 77)
    message = decode(cls, version, patched)
    assert message.throttle_time_ms == (77 if version else 0)
    assert [key.api_key for key in message.api_keys] == [0, 1, 2, 3, 4]


def test_api_versions_error_35_has_none() -> None:
    """The answer to a too-new ApiVersions request has the form of version 0, which has no throttle time."""
    frame = bytes.fromhex("00000005 0023 00000001 0012 0000 0004")
    assert patch_throttle(18, 99, frame, 5) == frame


def produce_response(version: int, partitions: int, endpoints: list[tuple[str, int, str | None]]) -> bytes:
    """A Produce response with some partitions in error, and the addresses of new leaders from v10 on."""
    cls = ProduceResponse
    topic = cls.TopicProduceResponse
    rows = [build(topic.PartitionProduceResponse, version, index=index) for index in range(partitions)]
    values: dict[str, Any] = {"responses": [build(topic, version, name="t", partition_responses=rows)]}
    if endpoints:
        values["node_endpoints"] = [
            build(cls.NodeEndpoint, version, node_id=node, host=host, port=port, rack=rack)
            for node, (host, port, rack) in enumerate(endpoints)
        ]
    return response(build(cls, version, throttle_time_ms=10, **values))


RACKS = st.sampled_from([None, "", "r", "ra", "rac", "rack", "rack5", "rack-6"])
ENDPOINTS = st.lists(
    st.tuples(st.sampled_from(["h", "broker-1"]), st.integers(256, 65535), RACKS), min_size=0, max_size=3
)


@given(st.integers(3, 13), st.integers(0, 3), ENDPOINTS, st.integers(0, 1 << 23))
def test_produce_in_every_version(
    version: int, partitions: int, endpoints: list[tuple[str, int, str | None]], throttle_ms: int
) -> None:
    """Produce has the field at its end, before the tag of new leaders if there is one."""
    frame = produce_response(version, partitions, endpoints if version >= 10 else [])
    patched = patch_throttle(PRODUCE, version, frame, throttle_ms)
    assert decode(ProduceResponse, version, patched).throttle_time_ms == max(10, throttle_ms)
    assert patch_throttle(PRODUCE, version, patched, 1) == patched


def test_apis_without_the_field_come_back_unchanged() -> None:
    """SaslHandshake, Produce 0 and unknown APIs have none."""
    frame = response(build(metadata.MetadataResponse, 2))
    for key, version in ((3, 2), (17, 1), (PRODUCE, 0), (500, 0), (27, 1)):
        assert patch_throttle(key, version, frame, 9) == frame
        assert throttle_offset(key, version, frame) is None


def test_behind_an_error_code() -> None:
    """OffsetDelete has it after the error code, RenewDelegationToken after error and expiry."""
    offset_delete = bytes(4) + b"\0\1" + bytes(4) + bytes(4)
    assert patch_throttle(47, 0, offset_delete, 3) == bytes(4) + b"\0\1" + b"\0\0\0\3" + bytes(4)
    renewal = bytes(5) + b"\0\1" + bytes(8) + bytes(4) + b"\0"
    assert patch_throttle(39, 2, renewal, 3) == bytes(5) + b"\0\1" + bytes(8) + b"\0\0\0\3" + b"\0"


@given(st.sampled_from([0, 1, 3, 18, 19, 39, 47]), st.integers(0, 13), st.binary(max_size=60))
def test_throttle_survives_garbage(api_key: int, version: int, frame: bytes) -> None:
    """Garbage is patched in place or raises BadFrame."""
    with suppress(BadFrame):
        assert len(patch_throttle(api_key, version, frame, 1)) == len(frame)
