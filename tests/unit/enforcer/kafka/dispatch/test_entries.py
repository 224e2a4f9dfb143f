"""Record batches as consumers see them: markers, aborted transactions, offsets before the one asked for."""

import struct
from typing import NamedTuple

import pytest
from each_kit import each
from traffic_kit import batch

from enforcer.kafka.dispatch.entries import AbortedTxn, Entry, entries, run

TRANSACTIONAL, CONTROL = 0x10, 0x20


def placed(records: bytes, first: int, attributes: int = 0, producer: int = -1) -> bytes:
    """A batch of version 2 at an offset, of a producer."""
    out = bytearray(records)
    struct.pack_into(">q", out, 0, first)
    struct.pack_into(">h", out, 21, attributes | out[22])
    struct.pack_into(">q", out, 43, producer)
    return bytes(out)


class Read(NamedTuple):
    """An entry."""

    msgs: int
    size: int
    stop: int
    after: int
    count: int


def read(records: bytes, offset: int = 0, aborted: tuple[AbortedTxn, ...] = ()) -> list[Read]:
    """The entries of a partition, with something before and behind it in the frame."""
    frame = b"before" + records + b"behind"
    return [Read(*each) for each in entries(frame, 6, 6 + len(records), offset, aborted)]


@pytest.mark.parametrize("compression", [0, 1])
def test_batches(compression: int) -> None:
    """Messages, bytes and the next offset of each batch, compressed or not."""
    first, second = batch(6, compression=compression), batch(30, compression=compression)
    found = read(placed(first, 0) + placed(second, 6))
    assert [(entry.msgs, entry.size, entry.after) for entry in found] == [
        (6, len(first), 6), (30, len(second), 36),
    ]  # fmt: skip
    assert [entry.stop for entry in found] == [6 + len(first), 6 + len(first) + len(second)]


@pytest.mark.parametrize("magic", [0, 1])
def test_message_sets(magic: int) -> None:
    """Each message of an old set is an entry."""
    found = read(batch(3, magic=magic))
    assert [(entry.msgs, entry.after) for entry in found] == [(1, 1), (1, 2), (1, 3)]


def test_a_batch_that_is_cut_off_does_not_count() -> None:
    """Nobody can read it; nor what is no batch."""
    whole = batch(6)
    assert [entry.msgs for entry in read(whole + whole[:-1])] == [6]
    assert read(whole[:-1]) == read(whole[:30]) == read(b"") == []
    assert read(bytes(200)) == []


def test_markers_are_no_messages() -> None:
    """A control batch passes, and counts nothing."""
    marker = placed(batch(1), 6, TRANSACTIONAL | CONTROL, 5)
    found = read(placed(batch(6), 0) + marker)
    assert [(entry.msgs, entry.size, entry.after) for entry in found][1] == (0, 0, 7)


def test_aborted_transactions() -> None:
    """What a consumer of committed records never sees: from its first offset to its marker."""
    parts = [
        placed(batch(2), 0, TRANSACTIONAL, 5),  # committed before
        placed(batch(1), 2, TRANSACTIONAL | CONTROL, 5),
        placed(batch(3), 3, TRANSACTIONAL, 5),  # aborted
        placed(batch(4), 6, TRANSACTIONAL, 6),  # another producer's
        placed(batch(5), 10, 0, 5),  # outside of transactions
        placed(batch(1), 15, TRANSACTIONAL | CONTROL, 5),
        placed(batch(6), 16, TRANSACTIONAL, 5),
    ]
    aborted = (AbortedTxn(5, 3),)
    assert [entry.msgs for entry in read(b"".join(parts), 0, aborted)] == [2, 0, 0, 4, 5, 0, 6]
    assert [entry.msgs for entry in read(b"".join(parts))] == [2, 0, 3, 4, 5, 0, 6]


@each(("offset", "msgs"), [(100, 6), (101, 5), (105, 1), (106, 0), (200, 0)])
def test_a_first_batch_that_begins_before(offset: int, msgs: int) -> None:
    """Only what lies from the offset on counts."""
    assert [entry.msgs for entry in read(placed(batch(6), 100), offset)] == [msgs]


def test_a_compacted_first_batch() -> None:
    """It has fewer messages than offsets: no more than it has count."""
    records = bytearray(placed(batch(2), 100))
    struct.pack_into(">i", records, 23, 9)
    assert [entry.msgs for entry in read(bytes(records), 103)] == [2]
    assert [entry.msgs for entry in read(bytes(records), 109)] == [1]


def test_no_more_than_are_needed() -> None:
    """One beyond the most tells that there is more."""
    records = batch(1) * 5
    found = entries(records, 0, len(records), 0, [], 2)
    assert found == entries(records, 0, len(records), 0, [])[:3]


PLAIN = placed(batch(6), 10) + placed(batch(3), 16, TRANSACTIONAL, 5)


@pytest.mark.parametrize(
    ("records", "offset"),
    [(PLAIN, 10), (PLAIN + placed(batch(30), 30)[:70], 0), (PLAIN + b"not even a head", 10)],
)
def test_a_run_is_all_entries_at_once(records: bytes, offset: int) -> None:
    """What is cut off at its end does not count."""
    first, second = read(records, offset)
    whole = Read(first.msgs + second.msgs, first.size + second.size, second.stop, second.after, 2)
    assert run_of(records, offset) == whole


@pytest.mark.parametrize(
    ("records", "offset"),
    [
        (b"", 0), (PLAIN[:70], 0), (PLAIN, 11), (PLAIN + batch(1, magic=1)[:40], 10),
        (PLAIN + placed(batch(6, compression=1), 19), 10),
        (PLAIN + placed(batch(1), 19, TRANSACTIONAL | CONTROL, 5), 10), (PLAIN + batch(3, magic=1), 10),
        (PLAIN + struct.pack(">qi", 19, -12) + bytes(80), 10),
        (PLAIN + placed(batch(1), 19)[:57] + struct.pack(">i", 1 << 30) + batch(1)[61:], 10),
    ],
    # A batch holds the time at which it was made: no name that all workers agree on.
    ids=["empty", "cut", "passed", "cut_v1", "compressed", "control", "v1", "negative", "too_many"],
)
def test_no_run(records: bytes, offset: int) -> None:
    """Where there is nothing, or something that has to be looked at by itself."""
    assert run_of(records, offset) is None


def run_of(records: bytes, offset: int) -> Entry | None:
    """The entries of a partition as one, with something before and behind it in the frame."""
    return run(b"before" + records + b"behind", 6, 6 + len(records), offset)
