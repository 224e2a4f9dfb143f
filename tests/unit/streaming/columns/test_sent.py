"""Copies of records: what a producer sends again is found, however the log is cut into batches."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.columns.sent import KEPT_MS, PRODUCERS_MAX, SentBefore, stamps
from streaming.state.body import Body, encode, note_in
from streaming.state.spilled import BLOB_BYTES

T0 = 1_795_166_700_000
Log = list[tuple[int, bytes | None]]
"""Partition and header of each record, in the order of the log."""


def copies(before: SentBefore, log: Log, first: int = 0, ts: int = T0) -> list[bool]:
    """Which of these are copies; the first one has the offset `first`."""
    partition = np.array([partition for partition, _ in log], dtype=np.int64)
    headers = pa.array([header for _, header in log], pa.binary())
    offset = np.arange(first, first + len(log))
    return before.copies(partition, offset, np.full(len(log), ts), headers).tolist()


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Three producers write to two partitions; now and then one sends again from some record on."""
    names = [bytes([number]) * 8 for number in range(3)]
    stamp = {name: stamps(name) for name in names}
    written: dict[tuple[int, bytes], list[bytes]] = {}
    log: Log = []
    for name, partition, again in draw(
        st.lists(st.tuples(st.sampled_from(names), st.integers(0, 1), st.integers(0, 9)), max_size=40)
    ):
        own = written.setdefault((partition, name), [])
        if again > 6 and own:
            begin = draw(st.integers(0, len(own) - 1))
            log += [(partition, one) for one in own[begin:]]
        elif again == 0:
            log.append((partition, draw(st.sampled_from([None, b"", b"x" * 15, b"x" * 17]))))
        else:
            own.append(stamp[name]())
            log.append((partition, own[-1]))
    return log


@given(log=logs(), cuts=st.sets(st.integers(0, 80)), order=st.randoms())
def test_copies_are_what_stood_before(log: Log, cuts: set[int], order: object) -> None:
    """In one batch, in many with the note between them, and with rows of a batch in any order."""
    seen: set[tuple[int, bytes]] = set()
    expected = []
    for partition, header in log:
        is_stamp = header is not None and len(header) == 16
        expected.append(is_stamp and (partition, header) in seen)
        if is_stamp:
            seen.add((partition, header))
    assert copies(SentBefore(), log) == expected
    found: list[bool] = []
    note = b""
    ends = sorted({0, len(log), *(cut for cut in cuts if cut < len(log))})
    for begin, end in pairwise(ends):
        before = SentBefore(note)
        rows = list(range(begin, end))
        order.shuffle(rows)  # type: ignore[attr-defined]
        partition = np.array([log[row][0] for row in rows], dtype=np.int64)
        headers = pa.array([log[row][1] for row in rows], pa.binary())
        flags = before.copies(partition, np.array(rows), np.full(len(rows), T0), headers)
        found += [flag for _, flag in sorted(zip(rows, flags.tolist(), strict=True))]
        note = before.to_bytes()
    assert found == expected


def test_parts_of_one_record_are_no_copies() -> None:
    """A report of several groups is cut up; the copy's parts are copies, all of them."""
    one = stamps(b"producer")()
    place, offset = np.zeros(4, dtype=np.int64), np.array([7, 7, 9, 9])
    found = SentBefore().copies(place, offset, np.full(4, T0), pa.array([one] * 4))
    assert found.tolist() == [False, False, True, True]


def test_who_sends_no_more_is_forgotten() -> None:
    """Long after anything that it sent may be sent again."""
    quiet, busy = stamps(b"quiet..."), stamps(b"busy....")
    before, old = SentBefore(), quiet()
    copies(before, [(0, old)])
    copies(before, [(0, busy())], 1, T0 + KEPT_MS - 1)
    assert copies(before, [(0, old)], 2, T0 + KEPT_MS - 1) == [True]
    copies(before, [(0, busy())], 3, T0 + 2 * KEPT_MS)
    assert len(before.to_bytes()) == 32
    assert copies(before, [(0, old)], 4, T0 + 2 * KEPT_MS) == [False]


def test_what_comes_later_elsewhere_makes_nobody_forgotten() -> None:
    """A job that catches up reads one partition, or topic, further than another."""
    stamp = stamps(b"producer")
    first, second = stamp(), stamp()
    before = SentBefore()
    copies(before, [(0, first), (0, second)])
    copies(before, [(1, stamps(b"other...")())], 0, T0 + 2 * KEPT_MS)
    assert copies(before, [(0, second)], 2) == [True]


def test_no_more_are_known_than_are_heard_of_last() -> None:
    names = [number.to_bytes(8) for number in range(PRODUCERS_MAX + 1)]
    first = {name: stamps(name)() for name in names}
    before = SentBefore()
    copies(before, [(0, first[names[0]])])
    copies(before, [(0, first[name]) for name in names[1:]], 1, T0 + 1)
    assert len(before.to_bytes()) == 32 * PRODUCERS_MAX < BLOB_BYTES
    again = [(0, first[name]) for name in (names[0], names[1], names[-1])]
    assert copies(SentBefore(before.to_bytes()), again, 9_999, T0 + 9_999) == [False, True, True]


def test_a_note_is_read_without_its_body() -> None:
    body = encode(Body(columns={"a": pa.array([1])}, notes={"sent": b"\0\1", "other": b"x"}))
    assert (note_in(body, "sent"), note_in(body, "none"), note_in(None, "sent")) == (b"\0\1", b"", b"")


@pytest.mark.parametrize("records", [[], [(0, None)]])
def test_where_nothing_is_stamped_nothing_is_known(records: Log) -> None:
    before = SentBefore()
    assert not any(copies(before, records)) and before.to_bytes() == b""
