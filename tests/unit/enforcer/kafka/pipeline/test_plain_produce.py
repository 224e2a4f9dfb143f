"""Produce requests that are read by hand: what is found is what the codec finds."""

import pytest
from each_kit import each
from hypothesis import given
from hypothesis import strategies as st
from traffic_kit import batch, key_of, produce

from enforcer.kafka.pipeline.runs import plain_produced
from enforcer.wire.kafka.frames import BadFrame, parse_header
from enforcer.wire.kafka.traffic import Part, produce_acks, produced

FIRST, LAST = 3, 13
VERSIONS = range(FIRST, LAST + 1)
BATCHES = (b"", batch(1), batch(3), batch(2, compression=1), batch(40, size=100), batch(2) + batch(5))


def by_hand(frame: bytes, version: int, before: bytes = b"") -> Part | None:
    """What is found in a frame that stands behind other bytes, and before some."""
    name_bytes = max(0, int.from_bytes(frame[8:10], "big", signed=True))
    start = len(before)
    return plain_produced(before + frame + b"\0\1\2", start + 10 + name_bytes, start + len(frame), version)


def by_codec(frame: bytes) -> list[Part] | None:
    """What the codec finds; None: it cannot be read, or has no acks."""
    parts: list[Part] = []
    try:
        header = parse_header(frame)
        if produce_acks(frame, header) == 0:
            return None
        produced(frame, header, parts)
    except BadFrame:
        return None
    return parts


@each("version", VERSIONS)
@each("records", BATCHES[1:])
def test_a_plain_request_is_found(version: int, records: bytes) -> None:
    """Wherever it stands, with or without a client id."""
    for client_id in ("", "x" * 300):
        frame, _ = produce(version, {"orders": [records]}, client_id=client_id)
        (part,) = by_codec(frame) or ()
        assert part.topic == key_of("orders", version >= 13) and part.size == len(records)
        assert by_hand(frame, version) == by_hand(frame, version, b"before") == part


@each("version", VERSIONS)
def test_others_are_left(version: int) -> None:
    """Two topics, two partitions, a transaction, no acks, no name, and a part of one."""
    one = batch(1)
    assert by_hand(produce(version, {"a": [one], "b": [one]})[0], version) is None
    assert by_hand(produce(version, {"a": [one, one]})[0], version) is None
    assert by_hand(produce(version, {"a": [one]}, txn="t")[0], version) is None
    assert by_hand(produce(version, {"a": [one]}, acks=0)[0], version) is None
    whole = produce(version, {"a": [one]})[0]
    assert all(by_hand(whole[:end], version) is None for end in range(12, len(whole)))
    assert by_hand(whole + b"\0", version) is None


@pytest.mark.parametrize(("version", "counts"), [(8, b"\0\1a\0\0\0\1"), (9, b"\2a\2")])
def test_a_wrong_count_is_left(version: int, counts: bytes) -> None:
    """As of partitions of which only one is there, though its length fits."""
    frame = produce(version, {"a": [batch(1)]})[0]
    assert frame.count(counts) == 1 and by_hand(frame, version) is not None
    for count in (0, counts[-1] - 1, counts[-1] + 1):
        assert by_hand(frame.replace(counts, counts[:-1] + bytes((count,))), version) is None


@given(st.data())
def test_what_is_found_is_what_the_codec_finds(data: st.DataObject) -> None:
    """Whatever bytes are changed: it is read the same way, or left."""
    version = data.draw(st.sampled_from(VERSIONS))
    name = data.draw(st.sampled_from(("t", "orders", "x" * 125, "x" * 126, "x" * 127, "x" * 249)))
    acks = data.draw(st.sampled_from((-1, 0, 1)))
    frame = bytearray(produce(version, {name: [data.draw(st.sampled_from(BATCHES))]}, acks)[0])
    # The key, the version and the client id are read by others.
    for place in data.draw(st.lists(st.integers(15, min(len(frame), 240) - 1), max_size=3)):
        frame[place] = data.draw(st.sampled_from((0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFF)))
    found = by_hand(bytes(frame), version)
    if found is not None:
        assert by_codec(bytes(frame)) == [found]
