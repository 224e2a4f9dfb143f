"""Fetch responses cut and completed, checked against kafka-python's own encoding."""

import struct
from collections.abc import Iterable
from time import process_time
from typing import Any

import pytest
from each_kit import each
from fetch_rig import World
from kafka.protocol.consumer import FetchResponse
from kafka_kit import CORRELATION_ID, decode
from traffic_kit import batch, fetch_response, key_of, old_fetch_response

from enforcer.kafka.dispatch.deliveries import Deliveries
from enforcer.kafka.dispatch.fetch_requests import FetchRequest
from enforcer.kafka.dispatch.fetch_responses import answer_of, changed, nothing_yet
from enforcer.wire.kafka.frames import BadFrame, Reason

VERSIONS = range(4, 19)
SIX, TEN = batch(6), batch(10)


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
    frame = bytearray(fetch_response(11, {"a": [b""]}))
    at = frame.index(b"\0\1a") + 3
    frame[at : at + 4] = (60_000).to_bytes(4, "big")
    with pytest.raises(BadFrame) as caught:
        answer_of(bytes(frame) + bytes(60_000), 11)
    assert caught.value.reason is Reason.TOO_MANY_ITEMS


def test_topics_by_turns_cost_what_others_cost() -> None:
    """A client that lists two so gets them so: what one had was copied for each of its places."""
    desk, asked = World().desk, FetchRequest(0, 0, 0, 0, 0, 0, 0, 0, 0, [], 0)

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
