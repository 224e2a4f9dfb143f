"""Stretches of a log between checks, and what the law makes of them."""

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.collect.kafka.ledgers import Stretches, offset_of
from streaming.contract.broker_events import Ledger, Subscription
from streaming.laws.backlog.law import Log

CHECK_MS = 60_000


def first_unread(stretches: Stretches, committed: int, slowest: int | None = None) -> int:
    """The offset of the entry that the law takes for the first unacknowledged one; the end: none."""
    ledgers = stretches.ledgers(slowest)
    log = Log(ledgers, precise=True)
    ledger, entry = stretches.position(committed, slowest)
    group = Subscription(name="g", ledger=ledger, entry=entry, durable=True, oldest_publish_time=None)
    number, acknowledged = log.place(group)
    return stretches.end if number == log.end else ledgers[number].id + acknowledged


def grown(*ends: int, entry_bytes: int = 10) -> Stretches:
    """A log that began empty and had these ends, a check each."""
    own = Stretches.begun(0, 0, 0, [], now=0)
    for number, end in enumerate(ends, 1):
        own.grow(0, end, end * entry_bytes, now=number * CHECK_MS)
    return own


def test_a_check_closes_what_was_written_since_the_one_before() -> None:
    """Exact sizes, and an empty open ledger at the end; a check without anything new closes nothing."""
    own = grown(5, 5, 12)
    assert [(one.id, one.entries, one.size, one.close_time) for one in own.ledgers()] == [
        (0, 5, 50, CHECK_MS),
        (5, 7, 70, 3 * CHECK_MS),
        (12, 0, 0, None),
    ]


@pytest.mark.parametrize("slowest", [None, 0, 3, 5, 8, 12])
@pytest.mark.parametrize("committed", [0, 3, 4, 5, 6, 11, 12, 13, 500])
def test_the_law_understands_every_position(committed: int, slowest: int | None) -> None:
    """At the beginning, inside, at a boundary, at the end and beyond it."""
    committed = max(committed, slowest or 0)
    assert first_unread(grown(5, 12), committed, slowest) == min(committed, 12)


@pytest.fixture
def own() -> Stretches:
    """A partition that has grown twice."""
    return grown(10, 20)


def test_the_law_understands_positions_before_the_log(own: Stretches) -> None:
    """What a group has not read and nobody has any more is no backlog; the rest of a trimmed stretch is."""
    own.grow(4, 20, 160, now=3 * CHECK_MS)
    for committed in (0, 3, 4):
        assert own.position(committed) == (4, -1)
        assert first_unread(own, committed) == 4
    assert first_unread(own, 5) == 5
    # All of it is gone.
    own.grow(20, 20, 0, now=4 * CHECK_MS)
    assert own.position(7) == (20, -1) and first_unread(own, 7) == 20


def test_positions_order_groups_as_their_offsets_do() -> None:
    """The law compares them as they are written; only those that have read nothing of it are equal."""
    own = grown(3, 6, 9)
    for slowest in (0, 2, 3, 7):
        positions = [own.position(offset, slowest) for offset in range(slowest, 14)]
        assert positions == sorted(positions)
        assert len(set(positions)) == len(positions)


def test_an_offset_survives_its_position() -> None:
    """Whatever ledgers there are, a position names an offset."""
    own = grown(3, 6, 9)
    own.grow(4, 9, 50, now=4 * CHECK_MS)
    assert [offset_of(own.position(offset)) for offset in range(4, 12)] == list(range(4, 12))


def test_first_sight_divides_by_time() -> None:
    """What was written before a time was closed by then; sizes go by offsets."""
    now = 1_000_000_000
    marks = [(70, now - CHECK_MS), (40, now - 2 * CHECK_MS), (40, now - 4 * CHECK_MS)]
    own = Stretches.begun(10, 110, 1_000, marks, now=now)
    assert [(one.id, one.entries, one.size, one.close_time) for one in own.ledgers()] == [
        (10, 30, 300, now - 4 * CHECK_MS),
        (40, 30, 300, now - CHECK_MS),
        (70, 40, 400, now),
        (110, 0, 0, None),
    ]


def test_first_sight_with_times_that_make_no_sense() -> None:
    """Records' times are their producers': offsets that go back, or beyond the end, divide nothing twice."""
    own = Stretches.begun(0, 10, 100, [(8, 1), (3, 2), (99, 3)], now=50)
    assert [(one.id, one.entries, one.close_time) for one in own.ledgers()] == [
        (0, 8, 1), (8, 2, 3), (10, 0, None),
    ]  # fmt: skip


def test_bytes_beyond_the_end_that_was_read_count_next_time() -> None:
    """Sizes are read after ends: what came between belongs to the next stretch."""
    own = Stretches.begun(0, 0, 0, [], now=0)
    own.grow(0, 10, 120, now=1)
    own.grow(0, 10, 150, now=2)
    own.grow(0, 15, 170, now=3)
    assert [one.size for one in own.ledgers()] == [120, 50, 0]


def test_retention_takes_stretches_and_the_next_one_is_estimated(own: Stretches) -> None:
    """The log shrank while it grew: what is new counts by the mean."""
    own.grow(10, 25, 150, now=3 * CHECK_MS)
    assert [(one.id, one.entries, one.size) for one in own.ledgers()] == [
        (10, 10, 100),
        (20, 5, 50),
        (25, 0, 0),
    ]


def test_compaction_never_leaves_more_than_the_log_takes(own: Stretches) -> None:
    """The bytes went, nobody says where: all stretches in proportion."""
    own.grow(0, 20, 60, now=3 * CHECK_MS)
    assert [one.size for one in own.ledgers()] == [30, 30, 0]


def test_deleted_records_leave_their_segment_behind(own: Stretches) -> None:
    """DeleteRecords moves the beginning at once and frees bytes later: those are nobody's backlog."""
    own.grow(15, 20, 200, now=3 * CHECK_MS)
    assert own.size == pytest.approx(50)
    own.grow(15, 30, 300, now=4 * CHECK_MS)
    assert own.size == pytest.approx(150)


def test_an_end_that_went_back(own: Stretches) -> None:
    """An unclean election: what was beyond it is gone, and what follows begins there."""
    own.grow(0, 14, 140, now=3 * CHECK_MS)
    own.grow(0, 16, 160, now=4 * CHECK_MS)
    assert [(one.id, one.entries, one.size) for one in own.ledgers()] == [
        (0, 10, 100), (10, 4, 40), (14, 2, 20), (16, 0, 0),
    ]  # fmt: skip


def test_bytes_between_go_by_the_mean_of_each_stretch() -> None:
    """And what lies outside of all counts nothing."""
    own = grown(10, entry_bytes=10)
    own.grow(0, 20, 1_100, now=2 * CHECK_MS)
    assert own.bytes_between(5, 15) == 5 * 10 + 5 * 100
    assert own.bytes_between(0, 99) == 1_100


def test_the_slowest_stands_in_a_stretch_of_its_own() -> None:
    """Its age is the topic's: it is not merged while others can be."""
    own = grown(*range(1, 200))
    own.bound(7, 20, now=200 * CHECK_MS)
    assert len(own.stretches) == 7
    slow = next(one for one in own.ledgers() if one.id <= 20 < one.id + one.entries)
    assert (slow.id, slow.entries, slow.close_time) == (20, 1, 21 * CHECK_MS)


@dataclass(frozen=True)
class Step:
    """A check: records written and trimmed since the one before, bytes of each, time since."""

    written: int
    trimmed: int
    entry_bytes: int
    ms: int


STEPS = st.lists(
    st.builds(Step, st.integers(0, 50), st.integers(0, 20), st.integers(1, 1_000), st.integers(1, 10**6)),
    max_size=60,
)


@given(steps=STEPS, most=st.integers(7, 20), reads=st.floats(0, 1))
def test_whatever_happens(steps: list[Step], most: int, reads: float) -> None:
    """Stretches cover the log without gaps, within their bound and its bytes; none looks older than it is."""
    own = Stretches.begun(0, 0, 0, [], now=0)
    start, sizes, closed, now = 0, list[int](), list[int](), 0
    for step in steps:
        now += step.ms
        sizes += [step.entry_bytes] * step.written
        closed += [now] * step.written
        end = len(sizes)
        start = min(end, start + step.trimmed)
        own.grow(start, end, sum(sizes[start:]), now=now)
        slowest = start + round((end - start) * reads)
        own.bound(most, slowest, now=now)
        ledgers = own.ledgers()
        assert len(ledgers) <= most + 1
        assert ledgers[0].id == start and ledgers[-1].id == end and ledgers[-1].close_time is None
        assert all(one.id + one.entries == other.id and one.entries for one, other in pairwise(ledgers))
        assert sum(one.size for one in ledgers) <= sum(sizes[start:]) + 1
        for one in ledgers[:-1]:
            assert one.close_time is not None and one.close_time >= closed[one.id + one.entries - 1]
        assert first_unread(own, slowest) == slowest
        assert first_unread(own, slowest, slowest) == slowest


@given(steps=STEPS)
def test_sizes_are_exact_while_the_log_only_grows(steps: list[Step]) -> None:
    """Of every stretch, to the byte."""
    own, total, expected, now, end = Stretches.begun(0, 0, 0, [], now=0), 0, list[int](), 0, 0
    for step in steps:
        now, end = now + step.ms, end + step.written
        total += step.written * step.entry_bytes
        own.grow(0, end, total, now=now)
        expected += [step.written * step.entry_bytes] if step.written else []
    assert [one.size for one in own.ledgers()] == [*expected, 0]


def test_a_log_that_ends_before_it_began_begins_anew() -> None:
    """After an unclean election; later checks find whatever is written at the same offsets again."""
    own = Stretches.begun(10, 20, 1_000, [], now=1_000)
    own.grow(3, 5, 200, now=2_000)
    assert own.ledgers() == (Ledger(id=5, entries=0, size=0, close_time=None),)
    own.grow(3, 10, 700, now=3_000)
    assert [(one.id, one.entries) for one in own.ledgers()] == [(5, 5), (10, 0)]
    assert own.position(7) == (5, 1) and own.size <= 700
