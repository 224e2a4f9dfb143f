"""Frames and headers: whole, in pieces, with trailing bytes, and garbage."""

import struct
from contextlib import suppress

import pytest
from each_kit import each
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import topics
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import api_versions, find_coordinator, metadata
from kafka.protocol.producer import ProduceRequest
from kafka_kit import CORRELATION_ID, build, request

from enforcer.wire.kafka import frames
from enforcer.wire.kafka.traffic import produce_acks


def known_requests() -> list[type[ApiMessage]]:
    """One request class per file that the proxy reads, and a few that it does not."""
    return [
        topics.CreateTopicsRequest, topics.DeleteTopicsRequest, topics.CreatePartitionsRequest,
        metadata.MetadataRequest, api_versions.ApiVersionsRequest, find_coordinator.FindCoordinatorRequest,
        ProduceRequest,
    ]


@each("cls", known_requests())
@each("client_id", ["tests", "", None, "fünf"])
def test_header_of_every_version(cls: type[ApiMessage], client_id: str | None) -> None:
    """Key, version, correlation and client id are read, and the body begins where kafka-python's does."""
    for version in range(cls.max_version + 1):
        message = build(cls, version)
        body = message.encode(version=version)
        frame, header = request(message, client_id)
        assert header[:4] == (cls.API_KEY, version, CORRELATION_ID, client_id)
        assert frame[header.body_offset :] == body


def test_header_skips_tags_and_replaces_bad_text() -> None:
    """A tagged section in the header is passed over; a client id that is no UTF-8 does no harm."""
    frame = struct.pack(">hhih", 3, 9, 1, 2) + b"\xffa" + b"\1\5\3abc" + b"body"
    header = frames.parse_header(frame)
    assert header.client_id == "�a"
    assert frame[header.body_offset :] == b"body"


@each(
    ("frame", "reason"),
    [
        (b"", frames.Reason.TRUNCATED_HEADER),
        (struct.pack(">hhi", 3, 1, 1), frames.Reason.TRUNCATED_HEADER),
        (struct.pack(">hhih", 3, 1, 1, 5) + b"four", frames.Reason.TRUNCATED_HEADER),
        (struct.pack(">hhih", 3, 1, 1, -2), frames.Reason.NEGATIVE_LENGTH),
        (struct.pack(">hhih", 3, 9, 1, -1), frames.Reason.TRUNCATED_HEADER),
        (struct.pack(">hhih", 3, 9, 1, -1) + b"\1\5\x30", frames.Reason.TRUNCATED_BODY),
        (struct.pack(">hhih", 3, 9, 1, -1) + b"\xff" * 6, frames.Reason.BAD_VARINT),
    ],
)
def test_malformed_header_names_its_reason(frame: bytes, reason: frames.Reason) -> None:
    """Each way a header can be wrong has its own label."""
    with pytest.raises(frames.BadFrame) as caught:
        frames.parse_header(frame)
    assert caught.value.reason is reason


def test_flexible_versions_agree_with_kafka_python() -> None:
    """Every API up to 92 has an entry, and all that kafka-python knows agree with it."""
    assert sorted(frames.FLEXIBLE_FROM) == list(range(93))
    for cls in known_requests():
        for version in range(cls.max_version + 1):
            assert frames.is_flexible(cls.API_KEY, version) == cls.flexible_version_q(version)
    assert not frames.is_flexible(17, 1)
    assert not frames.is_flexible(500, frames.NEVER - 1)


def test_response_header_v0_v1_and_api_versions() -> None:
    """Responses have tags from the flexible version on, except those to ApiVersions."""
    assert frames.response_body_offset(3, 8, bytes(10)) == 4
    assert frames.response_body_offset(3, 9, bytes(10)) == 5
    assert frames.response_body_offset(18, 4, bytes(10)) == 4
    for short in (b"", b"\0\0\0"):
        with pytest.raises(frames.BadFrame):
            frames.response_body_offset(3, 1, short)
    with pytest.raises(frames.BadFrame):
        frames.response_body_offset(3, 9, bytes(4))


@each("version", range(3, 14))
@each("acks", [-1, 0, 1])
@each("transactional_id", [None, "", "tx" * 100])
def test_acks_of_a_produce_request(version: int, acks: int, transactional_id: str | None) -> None:
    """acks is found behind a transactional id of any length."""
    message = build(
        ProduceRequest, version, transactional_id=transactional_id, acks=acks, timeout_ms=1, topic_data=[]
    )
    frame, header = request(message)
    assert produce_acks(frame, header) == acks


def test_acks_is_the_first_field_before_transactions() -> None:
    """Produce 0-2 have no transactional id."""
    frame = struct.pack(">hhihh", 0, 2, 1, -1, 0)
    assert produce_acks(frame, frames.parse_header(frame)) == 0


@pytest.mark.parametrize("version", [0, 3, 9])
def test_acks_cut_off_is_a_bad_frame(version: int) -> None:
    """A Produce request that ends before acks raises the one documented error, wherever it ends."""
    frame, header = request(build(ProduceRequest, version or 3, transactional_id="t", topic_data=[]))
    header = header._replace(api_version=version)
    for end in range(header.body_offset, header.body_offset + (2 if version == 0 else 4)):
        with pytest.raises(frames.BadFrame):
            produce_acks(frame[:end], header)


def test_negative_transactional_id_length_is_a_bad_frame() -> None:
    """A length of -2 is neither null nor a string."""
    frame = struct.pack(">hhihhh", 0, 3, 1, -1, -2, 0)
    with pytest.raises(frames.BadFrame):
        produce_acks(frame, frames.parse_header(frame))


@given(st.binary(max_size=40))
def test_headers_survive_garbage(frame: bytes) -> None:
    """Garbage parses or raises BadFrame."""
    with suppress(frames.BadFrame):
        header = frames.parse_header(frame)
        assert header.body_offset <= len(frame)
        produce_acks(frame, header)


@given(st.binary(max_size=20), st.integers(0, 20))
def test_varints_and_tags_survive_garbage(data: bytes, offset: int) -> None:
    """Garbage parses or raises BadFrame, and never reads past the end."""
    for read in (lambda: frames.read_uvarint(data, offset)[1], lambda: frames.skip_tags(data, offset)):
        with suppress(frames.BadFrame):
            assert offset < read() <= len(data)


def test_a_long_client_id_is_known_by_its_beginning_and_a_digest() -> None:
    """Different ones stay different, and none is longer than what a table is to hold."""
    assert frames.client_name(b"x" * frames.CLIENT_ID_MAX) == "x" * frames.CLIENT_ID_MAX
    names = {frames.client_name(b"x" * 300 + bytes([end])) for end in range(100)}
    assert len(names) == 100 and {len(name) for name in names} == {64 + 1 + 32}
    assert frames.client_name(b"\xff" * 32_767).startswith("\ufffd" * 64 + "~")
    frame, header = request(build(metadata.MetadataRequest, 12, topics=[]), "y" * 32_767)
    assert header.client_id == frames.client_name(b"y" * 32_767) and frames.parse_header(frame) == header
