"""Fetch requests and responses read and written again, checked against kafka-python's own encoding."""

import struct
from collections.abc import Iterable
from time import process_time
from typing import Any

import pytest
from each_kit import each
from fetch_rig import World
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka_kit import CORRELATION_ID, decode
from traffic_kit import batch, fetch_request, fetch_response, key_of, old_fetch_response

from enforcer.kafka.dispatch import fetch_requests
from enforcer.kafka.dispatch.deliveries import Deliveries
from enforcer.kafka.dispatch.fetch_requests import NO_SESSION, asked_of, forwarded
from enforcer.kafka.dispatch.fetch_responses import answer_of, changed, nothing_yet
from enforcer.wire.kafka.frames import BadFrame, Reason, parse_header
from enforcer.wire.kafka.traffic import UNKNOWN_SESSION, session_of, with_session

VERSIONS = range(4, 19)
TOPICS = {"a": 2, "bc": 1, "d": 3}
SIX, TEN = batch(6), batch(10)


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


def rows(response: Any) -> list[list[bytes]]:
    """The records of each partition of each topic."""
    return [[bytes(part.records or b"") for part in topic.partitions] for topic in response.responses]


@each("version", VERSIONS)
def test_reads_what_came(version: int) -> None:
    """Topics, partitions, offsets, aborted transactions, and where the records are."""
    frame = fetch_response(version, {"a": [SIX, b""], "bc": [TEN]}, aborted=2)
    answer = answer_of(frame, version)
    assert [topic.key for topic in answer.topics] == [key_of(name, version >= 13) for name in ("a", "bc")]
    first, second = answer.topics[0].parts
    assert frame[first.start : first.end] == SIX and second.start == second.end
    assert [tuple(transaction) for transaction in first.aborted] == [(1, 2), (1, 2)]
    assert (answer.error, first.error) == (0, 0)


@each("version", VERSIONS)
def test_cuts_and_completes(version: int) -> None:
    """Some records less, a topic more; all else stays, what stands in tagged fields too."""
    fields: dict[str, Any] = {"throttle_time_ms": 70}
    if version >= 16:
        node = FetchResponse.NodeEndpoint(version=version, node_id=4, host="kafka", port=9092, rack=None)
        fields["node_endpoints"] = [node]
    frame = fetch_response(version, {"a": [SIX + SIX, TEN], "bc": [TEN]}, aborted=1, **fields)
    answer = answer_of(frame, version)
    first, last = answer.topics[0].parts[0], answer.topics[1].parts[0]
    stops = {first.start: first.start + len(SIX), last.start: last.start}
    missing = [(key_of("d", version >= 13), [(3, 50, 40, 30), (4, -1, -1, -1)])]
    found = decode(FetchResponse, version, changed(frame, answer, version, stops, missing))
    assert rows(found) == [[SIX, TEN], [b""], [b"", b""]]
    assert found.throttle_time_ms == 70
    parts = found.responses[2].partitions
    assert [(part.partition_index, part.error_code, part.high_watermark) for part in parts] == [
        (3, 0, 50), (4, 0, -1),
    ]  # fmt: skip
    assert [part.last_stable_offset for part in parts] == [40, -1]
    if version >= 5:
        assert [part.log_start_offset for part in parts] == [30, -1]
    if version >= 11:
        assert [part.preferred_read_replica for part in parts] == [-1, -1]
    if version >= 16:
        assert [(node.node_id, node.host) for node in found.node_endpoints] == [(4, "kafka")]
    assert changed(frame, answer, version, {}, []) == frame


@each("version", VERSIONS)
def test_an_answer_without_the_broker(version: int) -> None:
    """Every partition without records, in no session, and when to ask again."""
    keys = [key_of(name, version >= 13) for name in ("a", "bc")]
    missing = [(keys[0], [(0, 9, 8, 7)]), (keys[1], [(1, -1, -1, -1), (2, -1, -1, -1)])]
    frame = nothing_yet(CORRELATION_ID, version, missing, 400)
    found = decode(FetchResponse, version, frame)
    assert rows(found) == [[b""], [b"", b""]]
    assert found.throttle_time_ms == 400
    if version >= 7:
        assert (found.error_code, found.session_id) == (0, 0)


@pytest.mark.parametrize("version", range(4))
def test_old_versions(version: int) -> None:
    """Those without transactions."""
    frame = old_fetch_response(version, {"a": [SIX + SIX]})
    answer = answer_of(frame, version)
    (part,) = answer.topics[0].parts
    assert (part.high, part.stable, part.first) == (9, -1, -1)
    cut = changed(frame, answer, version, {part.start: part.start + len(SIX)}, [])
    assert cut == old_fetch_response(version, {"a": [SIX]})


def test_too_many_parts_are_refused() -> None:
    """A claim of more than is gone through ends one connection."""
    frame, header = fetch_request(12, {"a": 1})
    at = frame.index(b"\2a") + 2
    bomb = frame[:at] + b"\xff\xff\x7f" + frame[at + 1 :] + bytes(1 << 21)
    answer = bytearray(fetch_response(11, {"a": [b""]}))
    at = answer.index(b"\0\1a") + 3
    answer[at : at + 4] = (60_000).to_bytes(4, "big")
    for read in (lambda: asked_of(bomb, header), lambda: answer_of(bytes(answer) + bytes(60_000), 11)):
        with pytest.raises(BadFrame) as caught:
            read()
        assert caught.value.reason is Reason.TOO_MANY_ITEMS


def test_topics_by_turns_cost_what_others_cost() -> None:
    """A client that lists two so gets them so: what one had was copied for each of its places."""
    desk, asked = World().desk, fetch_requests.FetchRequest(0, 0, 0, 0, 0, 0, 0, 0, 0, [], 0)

    def cost_s(names: Iterable[bytes]) -> float:
        part = struct.pack(">iihqqii", 1, 0, 0, 9, 9, 0, 0)
        topics = [struct.pack(">h", len(name)) + name + part for name in names]
        frame = bytes(8) + struct.pack(">i", len(topics)) + b"".join(topics)
        deliveries, begun = Deliveries(desk, desk.new_trail()), process_time()
        assert deliveries.taken(frame, 4, asked, "broker-1", [], {}) == frame
        return process_time() - begun

    cost_s([b"reader"])  # is compiled
    places = range(24_000)
    # The least of three: a machine that stands still for a moment is not what is meant.
    turns = min(cost_s(b"%05d" % (place % 2) for place in places) for _ in range(3))
    assert turns < 3 * min(cost_s(b"%05d" % place for place in places) for _ in range(3))
