"""Records and bytes are counted in every version of Produce and Fetch, without touching the records."""

from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from each_kit import each
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka_kit import build, decode, response, with_tag
from traffic_kit import (
    batch,
    fetch_request,
    fetch_response,
    key_of,
    old_fetch_response,
    old_produce,
    produce,
    topic_id,
)

from enforcer.wire.kafka.batches import count_records
from enforcer.wire.kafka.frames import BadFrame, RequestHeader, parse_header
from enforcer.wire.kafka.traffic import PARTS_MAX, Part, TopicUse, fetched_in_steps, fetching, produced

PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)
MANY, STEP = 300, 100
"""What stands in for FETCH_PARTS_MAX and STEP_PARTS: kafka-python takes seconds for as many as those."""
ONE = batch(1)
TWO = batch(2)
TOPICS = {"a.n.one": [TWO, b"", batch(3) + batch(4)], "b": [batch(1, size=300)]}
COUNTS = {"a.n.one": (9, len(TWO) + len(batch(3) + batch(4))), "b": (1, len(batch(1, size=300)))}


def expected(ids: bool) -> list[TopicUse]:
    """What TOPICS bring."""
    return [TopicUse(key_of(name, ids), *counts) for name, counts in COUNTS.items()]


def fetched(frame: bytes, version: int) -> list[TopicUse]:
    """What a Fetch response brings, in one go."""
    found: list[TopicUse] = []
    for _ in fetched_in_steps(frame, version, found):
        pass
    return found


@each("version", PRODUCE_VERSIONS)
@each("txn", [None, "t" * 200])
def test_produce(version: int, txn: str | None) -> None:
    """Every version, with and without a transactional id."""
    assert produced(*produce(version, TOPICS, txn=txn), []) == expected(version >= 13)


def test_produce_before_version_3() -> None:
    """Old requests have no transactional id."""
    assert produced(*old_produce(TOPICS), []) == expected(False)


@each("version", FETCH_VERSIONS)
@each("aborted", [0, 3])
def test_fetch_response(version: int, aborted: int) -> None:
    """Every version, with and without aborted transactions."""
    assert fetched(fetch_response(version, TOPICS, aborted), version) == expected(version >= 13)


@pytest.mark.parametrize("version", range(4))
def test_fetch_response_before_version_4(version: int) -> None:
    """Old responses."""
    assert fetched(old_fetch_response(version, TOPICS), version) == expected(False)


def test_fetch_response_with_tags_and_nulls() -> None:
    """Leaders in tags, null records and null lists count as nothing."""
    leader = {"current_leader": {"leader_id": 3, "leader_epoch": 5}}
    rows = [leader | {"records": None, "aborted_transactions": None}, leader | {"records": TWO}]
    node = {"node_id": 1, "host": "h", "port": 9092, "rack": None}
    data = {"topic_id": topic_id("t"), "partitions": rows}
    frame = response(build(FetchResponse, 16, responses=[data], node_endpoints=[node]))
    assert fetched(frame, 16) == [TopicUse(key_of("t", True), 2, len(TWO))]
    assert fetched(fetch_response(11, {"t": [b""]}), 11) == []


def test_unknown_tags_are_stepped_over() -> None:
    """A client may send tags that we do not know."""
    frame, _ = produce(9, {"t": [TWO]})
    tagged = with_tag(frame, len(frame) - 3)  # of the partition
    assert produced(tagged, parse_header(tagged), []) == [TopicUse(b"t", 2, len(TWO))]


@each("version", FETCH_VERSIONS)
def test_fetch_request(version: int) -> None:
    """Topics and the place of max_bytes, in every version."""
    frame, header = fetch_request(version, {"one": 3, "two": 1}, max_bytes=12345, epoch=4)
    asked = fetching(frame, header)
    assert asked.topics == [key_of("one", version >= 13), key_of("two", version >= 13)]
    assert asked.limit_bytes == 12345
    assert asked.epoch == (-1 if version < 7 else 4)
    place = asked.limit_offset
    assert place is not None
    patched = frame[:place] + (77).to_bytes(4, "big") + frame[place + 4 :]
    assert decode(FetchRequest, version, patched).max_bytes == 77


def test_fetch_request_before_version_3_has_no_limit() -> None:
    """Nothing to patch, but the topics are known."""
    body = (-1).to_bytes(4, "big", signed=True) + bytes(8) + b"\0\0\0\1\0\1t\0\0\0\1" + bytes(16)
    asked = fetching(body, RequestHeader(1, 2, 7, None, 0))
    assert (asked.topics, asked.limit_offset, asked.epoch) == ([b"t"], None, -1)


@each("version", [7, 12, 15])
@each("epoch", [-1, 0, 1])
def test_fetch_session(version: int, epoch: int) -> None:
    """Epoch 0 begins a session, -1 ends one; both list all topics."""
    assert fetching(*fetch_request(version, {}, epoch=epoch)).epoch == epoch


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages(magic: int) -> None:
    """Before version 2 each message counts; a compressed set counts as one."""
    plain, packed = batch(5, magic), batch(5, magic, compression=1)
    assert count_records(plain, 0, len(plain)) == 5
    assert count_records(packed, 0, len(packed)) == 1


@pytest.mark.parametrize("compression", [0, 1])
def test_batches(compression: int) -> None:
    """The header of a batch says how many records it has, compressed or not."""
    data = b"...." + batch(5, compression=compression) + batch(7, compression=compression)
    assert count_records(data, 4, len(data)) == 12


def test_a_batch_that_is_cut_off_does_not_count() -> None:
    """Brokers cut the last batch of a Fetch response; no client can read it."""
    data = batch(5) + batch(7)
    for end in range(len(batch(5)), len(data)):
        assert count_records(data, 0, end) == 5


@pytest.mark.parametrize("compression", [0, 1])
def test_the_smallest_records_all_count(compression: int) -> None:
    """Empty values, no keys: nothing honest is above what a batch is taken to hold."""
    for count in (1, 60, 5_000):
        data = batch(count, compression=compression, size=0)
        assert count_records(data, 0, len(data)) == count


@each(
    ("attributes", "most"), [(0, 17 // 7), (1, 17 * 150), (2, 17 * 4), (3, 17 * 40), (4, 17 * 5_000), (7, 17)]
)
def test_a_batch_counts_for_no_more_than_it_can_hold(attributes: int, most: int) -> None:
    """Whatever it claims, by its own length."""
    lie = bytearray(batch(1))
    assert len(lie) == 61 + 17
    lie[22] |= attributes
    lie[57:61] = (2**31 - 1).to_bytes(4, "big")
    assert count_records(bytes(lie), 0, len(lie)) == most


def test_equal_records_compress_without_end() -> None:
    """A broker that compresses anew takes 100,000 equal records in 143 bytes of zstd: they all count."""
    packed = bytearray(batch(1) + bytes(143))
    packed[8:12] = (len(packed) - 12).to_bytes(4, "big")
    packed[22] = 4
    packed[57:61] = (100_000).to_bytes(4, "big")
    assert count_records(bytes(packed), 0, len(packed)) == 100_000


@each("version", PRODUCE_VERSIONS)
def test_what_each_partition_gets(version: int) -> None:
    """As many as are told apart."""
    parts: list[Part] = []
    produced(*produce(version, {"t": [batch(2), batch(3)]}), parts)
    key = key_of("t", version >= 13)
    assert parts == [Part(key, 0, 2, len(batch(2))), Part(key, 1, 3, len(batch(3)))]
    parts = []
    found = produced(*produce(version, {"t": [batch(1)] * (PARTS_MAX + 7)}), parts)
    assert len(parts) == PARTS_MAX and found[0].records == PARTS_MAX + 7


def test_transaction_markers_do_not_count() -> None:
    """Consumers do not get to see them."""
    marker = bytearray(batch(1))
    marker[22] |= 0x20
    assert count_records(bytes(marker), 0, len(marker)) == 0


@given(st.data())
def test_random_messages(data: Any) -> None:
    """Whatever topics and batches there are, they are counted exactly."""
    names = data.draw(st.lists(st.text("abc.", min_size=1, max_size=8), unique=True, max_size=4))
    counts = {name: data.draw(st.lists(st.integers(1, 40), max_size=3)) for name in names}
    topics = {name: [batch(count) for count in counts[name]] for name in names}
    version = data.draw(st.sampled_from(PRODUCE_VERSIONS))
    found = produced(*produce(version, topics), [])
    assert [item.records for item in found] == [sum(counts[name]) for name in names]
    assert [item.size for item in found] == [sum(map(len, topics[name])) for name in names]
    version = data.draw(st.sampled_from(FETCH_VERSIONS))
    found = fetched(fetch_response(version, topics), version)
    assert [item.records for item in found] == [sum(counts[name]) for name in names if counts[name]]


@given(st.data())
def test_damage_is_a_bad_frame_or_some_count(data: Any) -> None:
    """Changed and cut messages raise BadFrame or give numbers; they neither hang nor raise anything else."""
    version = data.draw(st.sampled_from(PRODUCE_VERSIONS))
    frame, header = produce(version, TOPICS)
    with suppress(BadFrame):
        assert all(item.records >= 0 for item in produced(_damaged(data, frame), header, []))
    version = data.draw(st.sampled_from(FETCH_VERSIONS))
    with suppress(BadFrame):
        found = fetched(_damaged(data, fetch_response(version, TOPICS)), version)
        assert all(item.records >= 0 for item in found)
    frame, header = fetch_request(version, {"one": 3, "two": 1})
    with suppress(BadFrame):
        fetching(_damaged(data, frame), header)


def _damaged(data: Any, frame: bytes) -> bytes:
    changed = bytearray(frame)
    for _ in range(data.draw(st.integers(0, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    return bytes(changed[: data.draw(st.integers(0, len(changed)))])


@each("version", [4, 11, 12, 16])
def test_of_very_many_topics_the_first_are_read(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Honest clients may have as many; partitions cost nothing, as long as they have no tags."""
    monkeypatch.setattr("enforcer.wire.kafka.traffic.FETCH_PARTS_MAX", MANY)
    few, _ = fetch_request(version, {"t": 1})
    many, header = fetch_request(version, {f"t{number}": 1 for number in range(MANY + 1)}, max_bytes=77)
    asked = fetching(many, header)
    assert (len(asked.topics), asked.more) == (MANY, True)
    assert (asked.limit_bytes, asked.epoch <= 0) == (77, True)
    assert not fetching(few, header).more
    for parts in (0, 1, MANY + 1):
        frame, header = fetch_request(version, {"t": parts, "u": 1})
        asked = fetching(frame, header)
        assert (asked.topics, asked.more) == ([key_of(name, version >= 13) for name in "tu"], False)


@each("version", [4, 11, 12, 16])
@each("shape", [(2 * STEP, 1), (1, 3 * STEP), (3, STEP // 2)])
def test_a_response_is_read_in_steps(
    version: int, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However its partitions are divided among topics, and nothing of it is lost or read twice."""
    monkeypatch.setattr("enforcer.wire.kafka.traffic.STEP_PARTS", STEP)
    topics = {f"t{number}": [ONE] + [b""] * (shape[1] - 1) for number in range(shape[0])}
    frame, found = fetch_response(version, topics), list[TopicUse]()
    seen = [0] + [len(found) * shape[1] for _ in fetched_in_steps(frame, version, found)]
    assert found == [TopicUse(key_of(name, version >= 13), 1, len(ONE)) for name in topics]
    assert len(seen) > shape[0] * shape[1] / (2 * STEP)
    assert all(later - before <= 2 * STEP for before, later in pairwise(seen)) or shape[0] == 1
