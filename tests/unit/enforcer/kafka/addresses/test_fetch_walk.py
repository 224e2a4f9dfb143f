"""Fetch responses that pass while they come: what leaves, however they are cut, and what may be in them."""

import tracemalloc
from typing import Any

import pytest
from each_kit import each
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchResponse
from kafka_kit import build
from traffic_kit import fetch_response

from enforcer.kafka.addresses import fetch_walk
from enforcer.kafka.addresses.fetch_walk import END_MAX_BYTES, FetchWalk, fitted
from enforcer.wire.kafka.addresses import Rewriter
from enforcer.wire.kafka.frames import FETCH, BadFrame, skip_tags, tagged_fields, uvarint

PROXY = "proxy"
TOPICS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.lists(st.binary(max_size=900), max_size=4), max_size=3
)
HOST = st.sampled_from(["h", "p", "kafka", "broker-1.example"])
NODES = st.lists(st.tuples(st.integers(0, 9), HOST, st.sampled_from([None, "", "rack"])), max_size=3)


def endpoints(version: int, nodes: list[tuple[int, str, str | None]]) -> dict[str, Any]:
    """The tagged field, absent when empty."""
    rows = [
        build(FetchResponse.NodeEndpoint, version, node_id=node, host=host, port=9092, rack=rack)
        for node, host, rack in nodes
    ]
    return {"node_endpoints": rows} if rows else {}


def ours(version: int, frame: bytes) -> bytes:
    """As the proxy rewrites a whole response."""
    return Rewriter(lambda node, _host, _port: (PROXY, 19_000 + node), lambda: 0)(FETCH, version, frame)


def walked(version: int, frame: bytes, sizes: list[int]) -> bytes:
    """What leaves when it comes in pieces of such sizes."""
    walk, out, start, turn = FetchWalk(len(frame), lambda answer: ours(version, answer)), b"", 0, 0
    while start < len(frame):
        piece = frame[start : start + sizes[turn % len(sizes)]]
        stop, tail = walk.take(memoryview(piece))
        out += piece[:stop] + tail
        start, turn = start + len(piece), turn + 1
    return out


@given(
    st.integers(16, 18), TOPICS, NODES, st.integers(0, 40),
    st.lists(st.sampled_from([1, 2, 7, 60, 511, 512, 513, 4_000]), min_size=1, max_size=9),
)  # fmt: skip
def test_records_leave_as_they_came(
    version: int, topics: dict[str, list[bytes]], nodes: list[Any], aborted: int, sizes: list[int]
) -> None:
    """In the same number of bytes, and of new leaders no address but ours."""
    frame = fetch_response(version, topics, aborted, **endpoints(version, nodes))
    left = walked(version, frame, sizes)
    if not nodes:
        assert left == frame
        return
    assert len(left) == len(frame) and left.startswith(fetch_response(version, topics, aborted)[:-1])
    got = FetchResponse.decode(left, version=version, header=True)
    assert {(node.host, node.port) for node in got.node_endpoints} <= {
        (PROXY, 19_000 + node) for node, _, _ in nodes
    }


def test_addresses_that_fit_are_put_in() -> None:
    """A shorter one leaves room, which a receiver steps over; for a longer one there is none."""
    for host, shown in (("broker-1.example", True), ("kafka", True), ("kafka1", False), ("h", False)):
        frame = fetch_response(17, {"a": [b"x" * 2_000]}, **endpoints(17, [(4, host, None)]))
        got = FetchResponse.decode(walked(17, frame, [1_000]), version=17, header=True)
        assert [(node.host, node.port) for node in got.node_endpoints] == [(PROXY, 19_004)] * shown


def test_a_section_fits_any_size() -> None:
    """Even those that no single field has."""
    for size in (*range(3, 300), *range(16_300, 16_500)):
        for tags in (b"\1\0\1x", b"\2\0\0\1\0", b"\1\0\x80\1" + bytes(128)):
            found = fitted(tags, size)
            numbers = [tag for tag, *_ in tagged_fields(found, 0)]
            assert skip_tags(found, 0) == len(found) == size and numbers == sorted(set(numbers)), size


@pytest.mark.parametrize("cut", [1, 40, 2_030])
def test_what_ends_too_early_is_refused(cut: int) -> None:
    """A response whose parts do not add up to its length, and one whose section is larger than may be."""
    frame = fetch_response(16, {"a": [b"x" * 2_000]})[:-cut]
    with pytest.raises(BadFrame):
        walked(16, frame, [500])
    lie = FetchWalk(END_MAX_BYTES * 3, lambda answer: answer)
    with pytest.raises(BadFrame):
        lie.take(bytes(64))


def test_what_is_kept_is_bounded() -> None:
    """Of records nothing; of a field that never ends no more than its bound."""
    frame = fetch_response(16, {"a": [b"x" * 4_000_000]})
    tracemalloc.start()
    walk = FetchWalk(len(frame), lambda answer: answer)
    for start in range(0, len(frame) - 100_000, 100_000):
        assert walk.take(memoryview(frame)[start : start + 100_000]) == (100_000, b"")
    assert tracemalloc.get_traced_memory()[0] < 20_000
    tracemalloc.stop()
    endless = FetchWalk(1 << 30, lambda answer: answer)
    with pytest.raises(BadFrame):
        endless.take(bytes(4) + b"\1\0" + b"\xff\xff\xff\xff\7")  # one tagged field of 32 GiB
        for _ in range(END_MAX_BYTES // 1_000 + 1):
            endless.take(bytes(1_000))


@pytest.mark.parametrize("sizes", [[262_144], [1_000, 7, 12_500], [1]])
def test_many_aborted_transactions_pass(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the list of a partition is, and however it is cut."""
    monkeypatch.setattr(fetch_walk, "END_MAX_BYTES", END_MAX_BYTES // 8)
    frame = fetch_response(17, {"a": [b"x" * 300], "b": [b"y"]}, 1_250)
    assert len(frame) > 2 * fetch_walk.END_MAX_BYTES and walked(17, frame, sizes) == frame


@pytest.mark.parametrize("sizes", [[262_144], [1_000, 7, 50_000], [3]])
def test_a_long_field_passes(sizes: list[int]) -> None:
    """Wherever it stands between records: a later version of Kafka may say more than ours knows."""
    field = bytes((9,)) + uvarint(100_000) + bytes(100_000)
    frame = fetch_response(17, {"a": [b"records of a", b"more of a"], "b": [b"records of b"]}, 2)
    for after in (b"", b"records of a", b"more of a", b"more of a\0", b"records of b"):
        # The first empty tagged section behind it; the header's stands behind the correlation id.
        place = frame.index(after or frame[:4]) + len(after or frame[:4])
        assert not frame[place]
        longer = frame[:place] + b"\1" + field + frame[place + 1 :]
        assert walked(17, longer, sizes) == longer, after


@each("sizes", [[262_144], [1_000, 7, 50_000], [64]])
@each("count", [3_000, 3_001, 3_002, 3_003])
def test_more_new_leaders_than_are_kept_are_left_out(sizes: list[int], count: int) -> None:
    """The records pass, and no address of a broker: the client asks for Metadata instead."""
    nodes = [(node, f"broker-{node}.example", None) for node in range(count)]
    frame = fetch_response(17, {"a": [b"x" * 2_000]}, **endpoints(17, nodes))
    assert len(frame) > END_MAX_BYTES + 2_000
    left = walked(17, frame, sizes)
    assert len(left) == len(frame) and b".example" not in left
    got = FetchResponse.decode(left, version=17, header=True)
    assert bytes(got.responses[0].partitions[0].records) == b"x" * 2_000 and not got.node_endpoints


def test_a_long_end_that_does_not_add_up_is_refused() -> None:
    """One that ends too early, has more behind it, or is longer than the response."""
    nodes = [(node, f"broker-{node}.example", None) for node in range(3_000)]
    frame = fetch_response(17, {"a": [b"x"]}, **endpoints(17, nodes))
    for lie in (frame[:-1], frame + b"\0"):
        with pytest.raises(BadFrame):
            walked(17, lie, [1_000])
