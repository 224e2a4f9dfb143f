"""Fetch requests read and written again, checked against kafka-python's own encoding."""

from typing import Any

import pytest
from each_kit import each
from kafka.protocol.consumer import FetchRequest
from kafka_kit import decode
from traffic_kit import fetch_request, key_of, topic_id

from enforcer.kafka.dispatch.fetch_requests import NO_SESSION, asked_of, forwarded
from enforcer.wire.kafka.frames import BadFrame, Reason, parse_header
from enforcer.wire.kafka.traffic import UNKNOWN_SESSION, session_of, with_session

VERSIONS = range(4, 19)
TOPICS = {"a": 2, "bc": 1, "d": 3}


def rewritten(frame: bytes, version: int, **changes: Any) -> Any:
    """The forwarded request as kafka-python reads it."""
    asked = asked_of(frame, parse_header(frame))
    values: dict[str, Any] = {
        "left_out": (), "limits": {}, "wait_ms": asked.wait_ms, "min_bytes": asked.min_bytes,
        "limit": asked.limit,
    }  # fmt: skip
    return decode(FetchRequest, version, forwarded(frame, asked, version, **values | changes))


@each("version", VERSIONS)
def test_reads_what_is_asked(version: int) -> None:
    """Topics, partitions, offsets, limits and the session."""
    frame, header = fetch_request(version, TOPICS, 7_777, 3, 99, offset=12)
    asked = asked_of(frame, header)
    ids = version >= 13
    assert [(topic.key, len(topic.parts)) for topic in asked.topics] == [
        (key_of(name, ids), count) for name, count in TOPICS.items()
    ]
    assert [part.number for part in asked.topics[2].parts] == [0, 1, 2]
    assert {(part.offset, part.limit) for topic in asked.topics for part in topic.parts} == {(12, 1 << 20)}
    assert (asked.wait_ms, asked.min_bytes, asked.limit) == (500, 1, 7_777)
    assert not asked.isolation
    at, session, epoch = session_of(frame, header)
    assert (session, epoch) == ((99, 3) if version >= 7 else (0, NO_SESSION))
    assert asked.session_at == at


@each("version", VERSIONS)
def test_writes_what_may_be_read(version: int) -> None:
    """Without a topic, in smaller parts, for a shorter time, outside of a session; the rest stays."""
    frame, _ = fetch_request(version, TOPICS, epoch=0, session=5, offset=12)
    found = rewritten(frame, version, left_out={0}, limits={2: 2_048}, wait_ms=9, min_bytes=0, limit=8_192)
    assert (found.max_wait_ms, found.min_bytes, found.max_bytes) == (9, 0, 8_192)
    ids = version >= 13
    named = [topic.topic_id.bytes if ids else topic.topic.encode() for topic in found.topics]
    assert named == [key_of(name, ids) for name in ("bc", "d")]
    sizes = [[part.partition_max_bytes for part in topic.partitions] for topic in found.topics]
    assert sizes == [[1 << 20], [2_048] * 3]
    assert {part.fetch_offset for topic in found.topics for part in topic.partitions} == {12}
    if version >= 7:
        assert (found.session_id, found.session_epoch) == (5, NO_SESSION)
    same = rewritten(frame, version)
    whole = decode(FetchRequest, version, frame)
    if version >= 7:
        whole.session_epoch = NO_SESSION
    assert same == whole


@pytest.mark.parametrize("version", [7, 12, 18])
def test_another_session(version: int) -> None:
    """Only the session changes."""
    frame, header = fetch_request(version, {}, epoch=3, session=99)
    at, _, epoch = session_of(frame, header)
    found = decode(FetchRequest, version, with_session(frame, at, UNKNOWN_SESSION, epoch))
    assert (found.session_id, found.session_epoch) == (UNKNOWN_SESSION, 3)


def test_too_many_parts_are_refused() -> None:
    """A claim of more partitions than are gone through ends one connection."""
    frame, header = fetch_request(12, {"a": 1})
    at = frame.index(b"\2a") + 2
    bomb = frame[:at] + b"\xff\xff\x7f" + frame[at + 1 :] + bytes(1 << 21)
    with pytest.raises(BadFrame) as caught:
        asked_of(bomb, header)
    assert caught.value.reason is Reason.TOO_MANY_ITEMS
    assert topic_id("a")
