"""Frames and headers: whole, in pieces, with trailing bytes, and garbage."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import topics
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import api_versions, find_coordinator, metadata
from kafka.protocol.producer import ProduceRequest
from kafka_kit import CORRELATION_ID, build, request, response

from enforcer.wire import (
    FLEXIBLE_FROM,
    NEVER,
    BadFrame,
    FrameSplitter,
    Reason,
    is_flexible,
    parse_header,
    produce_acks,
    read_uvarint,
    response_body_offset,
    response_correlation_id,
    skip_tags,
)

LIMIT_BYTES = 1000
PAYLOADS = [b"", b"a", b"two", bytes(LIMIT_BYTES)]
STREAM = b"".join(len(payload).to_bytes(4, "big") + payload for payload in PAYLOADS)


def test_whole_stream_is_cut_at_once() -> None:
    """Frames that arrive together come out together, in order, without their lengths."""
    splitter = FrameSplitter(LIMIT_BYTES)
    assert splitter.feed(STREAM) == PAYLOADS
    assert splitter.pending_bytes == 0


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 4, 5, 7, 100])
def test_stream_in_pieces_is_cut_the_same(piece_bytes: int) -> None:
    """Where the network cuts the stream does not matter."""
    splitter = FrameSplitter(LIMIT_BYTES)
    frames = []
    for start in range(0, len(STREAM), piece_bytes):
        frames += splitter.feed(STREAM[start : start + piece_bytes])
    assert frames == PAYLOADS


def test_trailing_bytes_wait_for_the_rest() -> None:
    """The beginning of a next frame is held, counted, and completed later."""
    splitter = FrameSplitter(LIMIT_BYTES)
    assert splitter.feed(STREAM + b"\0\0\0\3ab") == PAYLOADS
    assert splitter.pending_bytes == 6
    assert splitter.feed(b"c") == [b"abc"]
    assert splitter.pending_bytes == 0


@pytest.mark.parametrize(
    ("length", "reason"),
    [(-1, Reason.NEGATIVE_LENGTH), (-(1 << 31), Reason.NEGATIVE_LENGTH), (LIMIT_BYTES + 1, Reason.TOO_LARGE)],
)
def test_absurd_length_is_refused_before_its_payload(length: int, reason: Reason) -> None:
    """Four bytes are enough to refuse a frame; nothing is buffered for it."""
    splitter = FrameSplitter(LIMIT_BYTES)
    splitter.feed(struct.pack(">i", length)[:3])
    with pytest.raises(BadFrame) as caught:
        splitter.feed(struct.pack(">i", length)[3:])
    assert caught.value.reason is reason


@given(st.lists(st.binary(max_size=60), max_size=20), st.lists(st.integers(1, 40), min_size=1, max_size=40))
def test_any_cutting_gives_the_same_frames(payloads: list[bytes], sizes: list[int]) -> None:
    """For all payloads and all cuttings, what goes in comes out."""
    stream = b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads)
    splitter = FrameSplitter(LIMIT_BYTES)
    frames, start, turn = [], 0, 0
    while start < len(stream):
        size = sizes[turn % len(sizes)]
        frames += splitter.feed(stream[start : start + size])
        start, turn = start + size, turn + 1
    assert frames == payloads


@given(st.lists(st.binary(max_size=50), max_size=10))
def test_splitter_survives_garbage(pieces: list[bytes]) -> None:
    """Garbage parses or raises BadFrame."""
    splitter = FrameSplitter(LIMIT_BYTES)
    for piece in pieces:
        try:
            splitter.feed(piece)
        except BadFrame:
            break
        assert splitter.pending_bytes <= LIMIT_BYTES + 4


def known_requests() -> list[type[ApiMessage]]:
    """One request class per file that the proxy reads, and a few that it does not."""
    return [
        topics.CreateTopicsRequest,
        topics.DeleteTopicsRequest,
        topics.CreatePartitionsRequest,
        metadata.MetadataRequest,
        api_versions.ApiVersionsRequest,
        find_coordinator.FindCoordinatorRequest,
        ProduceRequest,
    ]


@pytest.mark.parametrize("cls", known_requests())
@pytest.mark.parametrize("client_id", ["tests", "", None, "fünf"])
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
    header = parse_header(frame)
    assert header.client_id == "�a"
    assert frame[header.body_offset :] == b"body"


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", Reason.TRUNCATED_HEADER),
        (struct.pack(">hhi", 3, 1, 1), Reason.TRUNCATED_HEADER),
        (struct.pack(">hhih", 3, 1, 1, 5) + b"four", Reason.TRUNCATED_HEADER),
        (struct.pack(">hhih", 3, 1, 1, -2), Reason.NEGATIVE_LENGTH),
        (struct.pack(">hhih", 3, 9, 1, -1), Reason.TRUNCATED_HEADER),
        (struct.pack(">hhih", 3, 9, 1, -1) + b"\1\5\x30", Reason.TRUNCATED_BODY),
        (struct.pack(">hhih", 3, 9, 1, -1) + b"\xff" * 6, Reason.BAD_VARINT),
    ],
)
def test_malformed_header_names_its_reason(frame: bytes, reason: Reason) -> None:
    """Each way a header can be wrong has its own label."""
    with pytest.raises(BadFrame) as caught:
        parse_header(frame)
    assert caught.value.reason is reason


def test_flexible_versions_agree_with_kafka_python() -> None:
    """Every API up to 92 has an entry, and all that kafka-python knows agree with it."""
    assert sorted(FLEXIBLE_FROM) == list(range(93))
    for cls in known_requests():
        for version in range(cls.max_version + 1):
            assert is_flexible(cls.API_KEY, version) == cls.flexible_version_q(version)
    assert not is_flexible(17, 1)
    assert not is_flexible(500, NEVER - 1)


def test_response_header_v0_v1_and_api_versions() -> None:
    """Responses have tags from the flexible version on, except those to ApiVersions."""
    assert response_body_offset(3, 8, bytes(10)) == 4
    assert response_body_offset(3, 9, bytes(10)) == 5
    assert response_body_offset(18, 4, bytes(10)) == 4
    frame = response(build(metadata.MetadataResponse, 13))
    assert response_correlation_id(frame) == CORRELATION_ID
    for short in (b"", b"\0\0\0"):
        with pytest.raises(BadFrame):
            response_body_offset(3, 1, short)
        with pytest.raises(BadFrame):
            response_correlation_id(short)
    with pytest.raises(BadFrame):
        response_body_offset(3, 9, bytes(4))


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [-1, 0, 1])
@pytest.mark.parametrize("transactional_id", [None, "", "tx" * 100])
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
    assert produce_acks(frame, parse_header(frame)) == 0


@pytest.mark.parametrize("version", [0, 3, 9])
def test_acks_cut_off_is_a_bad_frame(version: int) -> None:
    """A Produce request that ends before acks raises the one documented error, wherever it ends."""
    frame, header = request(build(ProduceRequest, version or 3, transactional_id="t", topic_data=[]))
    header = header._replace(api_version=version)
    for end in range(header.body_offset, header.body_offset + (2 if version == 0 else 4)):
        with pytest.raises(BadFrame):
            produce_acks(frame[:end], header)


def test_negative_transactional_id_length_is_a_bad_frame() -> None:
    """A length of -2 is neither null nor a string."""
    frame = struct.pack(">hhihhh", 0, 3, 1, -1, -2, 0)
    with pytest.raises(BadFrame):
        produce_acks(frame, parse_header(frame))


@given(st.binary(max_size=40))
def test_headers_survive_garbage(frame: bytes) -> None:
    """Garbage parses or raises BadFrame."""
    with suppress(BadFrame):
        header = parse_header(frame)
        assert header.body_offset <= len(frame)
        produce_acks(frame, header)


@given(st.binary(max_size=20), st.integers(0, 20))
def test_varints_and_tags_survive_garbage(data: bytes, offset: int) -> None:
    """Garbage parses or raises BadFrame, and never reads past the end."""
    for read in (lambda: read_uvarint(data, offset)[1], lambda: skip_tags(data, offset)):
        with suppress(BadFrame):
            assert offset < read() <= len(data)
