"""The admin API's table of backlogs: what is newest, what is counted once, and its bounds."""

import pytest
from admin_backlog_kit import T, block, decision, eviction, report, take

from enforcer.control.backlog.table import REMEMBERED_MAX, BacklogTable


def table(rows_max: int = 100) -> BacklogTable:
    """An empty one."""
    return BacklogTable(rows_max)


@pytest.fixture
def made() -> BacklogTable:
    """It is empty."""
    return table()


def test_the_newest_counts(made: BacklogTable) -> None:
    """Older ones and repeated ones say nothing new."""
    take(made, [report(T, ("s", 3), ts=2_000), report(T, ("s", -1), ts=1_000), decision(T, ts=2_000)])
    take(made, [decision(T, ts=1_000, backlogSize=5.0), decision(T, ts=2_000, repeat=True)])
    row = made.row(T, 0)
    assert row is not None and row.report is not None and row.decision is not None
    assert (row.report.subscriptions[0].msgs, row.decision.size, row.checked_ts) == (8, 1050.0, 2_000)


def test_who_was_not_looked_at_for_long_is_not_there(made: BacklogTable) -> None:
    """Neither shown nor kept, though repeated decisions and actions may speak of it."""
    take(made, [decision(T, ts=1_000), decision(T + "-partition-0", ts=1_500), eviction("s", ts=1_900)])
    assert made.row(T, 1_001) is None and made.row(T, 1_000) is not None
    assert [name for name, _ in made.partitions(T, 1_500)] == [T + "-partition-0"]
    assert list(made.partitions(T, 1_501)) == []
    made.forget(1_600)
    assert made.row(T, 0) is not None  # its eviction was heard of
    assert (len(made.rows), list(made.partitions(T, 0))) == (1, [])
    made.forget(1_901)
    assert (len(made.rows), made.row(T, 0), made.rows.dropped) == (0, None, 0)
    take(made, [eviction("s")])
    assert made.row(T, 0) is None


def test_partitions_are_in_order_of_their_numbers(made: BacklogTable) -> None:
    """Ten comes after nine; a name with leading zeros is a topic of its own."""
    take(made, [decision(f"{T}-partition-{number}") for number in (10, 9, 0, "01")])
    assert [name.rpartition("-")[2] for name, _ in made.partitions(T, 0)] == ["0", "9", "10"]


def test_the_silent_go_first_and_are_counted() -> None:
    """With all their subscriptions, that are rows too; one that has too many goes itself."""
    made = table(6)
    for number in range(3):
        take(made, [report(f"{T}{number}", ("s", 1), ts=1_000 + number)])
    take(made, [report(f"{T}0", ("s", 1), ts=2_000)])
    assert (len(made.rows), made.rows.dropped) == (6, 0)
    take(made, [report(f"{T}-partition-7", ts=2_000)])
    assert (len(made.rows), made.rows.dropped, made.row(f"{T}1", 0)) == (5, 2, None)
    take(made, [report(f"{T}0", ("s", 1), ("u", 1), ts=2_001)])
    assert (len(made.rows), made.rows.dropped) == (6, 2)
    take(made, [report(T, *((f"s{number}", 1) for number in range(6)), ts=3_000)])
    assert (len(made.rows), made.row(T, 0)) == (0, None)
    assert made.rows.dropped == 2 + 6 + 7


def test_an_eviction_counts_once_a_check(made: BacklogTable) -> None:
    """Several subscriptions at one check are one time; what is said again is not counted again."""
    steps = [eviction(name, step) for name in ("slow", "mid") for step in ("begun", "done")]
    take(made, [decision(), *steps, *steps, eviction("slow", "failed", check="k2")])
    take(made, [eviction("slow", check="k3", ts=1_300), eviction("a/b", quota_type="time")])
    row = made.row(T, 0)
    assert row is not None and row.done is not None
    size, age = row.done.evicted["size"], row.done.evicted["time"]
    assert (size.times, size.failures, size.msgs, size.bytes, size.lastTime) == (2, 1, 12, 1_200, 1_300)
    assert (age.times, age.msgs) == (1, 4)


def test_what_is_remembered_is_bounded(made: BacklogTable) -> None:
    """A check with more subscriptions than are remembered is one time all the same."""
    take(made, [decision(), *(eviction(f"s{number}") for number in range(3 * REMEMBERED_MAX))])
    take(made, [block(f"p{number}") for number in range(2 * REMEMBERED_MAX)])
    row = made.row(T, 0)
    assert row is not None and (done := row.done) is not None
    assert (done.evicted["size"].times, done.evicted["size"].msgs) == (1, 12 * REMEMBERED_MAX)
    assert len(done.remembered) == len(done.blocks) == REMEMBERED_MAX
    assert done.times_blocked == 2 * REMEMBERED_MAX


def test_blocks_begin_and_end(made: BacklogTable) -> None:
    """By actor; said again they neither begin nor count again."""
    take(made, [decision(), block("p1"), block("p2"), block("p1"), block("p1", "ended"), block("p1")])
    row = made.row(T, 0)
    assert row is not None and (done := row.done) is not None
    assert [each.actor for each in done.blocks.values()] == ["p2"] and done.times_blocked == 2
