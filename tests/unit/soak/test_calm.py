"""When something was disturbed (tests/soak)."""

from soak_calm import disturbed, joined, slowed, within
from soak_histories import found_ended, killed
from soak_history import History

BACK = {"kind": "back", "what": "kill", "target": "one", "at": 4_000, "took_s": 3.0}


def test_a_fault_disturbs_until_its_part_is_back_and_a_while_longer() -> None:
    """Others do not."""
    history = History.of([killed(1_000), BACK, killed(20_000, "admin"), killed(30_000)])

    assert disturbed(history, ["one"], 500) == [(1_000, 4_500), (30_000, 30_500)]
    assert disturbed(history, ["two"], 500) == []


def test_who_ends_by_himself_is_disturbed_too() -> None:
    """Any of the brokers."""
    assert disturbed(History.of([found_ended("kafka-2", 5)]), ["kafka"], 10) == [(9_000, 9_010)]


def test_times_that_overlap_are_one() -> None:
    """Each part of a time counts once."""
    spans = list(joined([(5, 9), (0, 2), (1, 3), (6, 7)]))

    assert spans == [(0, 3), (5, 9)]
    assert list(joined([])) == []
    assert within(spans, 2, 6) == 2
    assert within(spans, 3, 5) == within(spans, 10, 20) == 0


def test_a_clock_goes_faster_where_something_is_disturbed() -> None:
    """In each such time by as much as that lasts."""
    assert slowed([0, 10, 15, 20, 35], [(10.0, 20.0), (30.0, 40.0)]) == [0, 10, 20, 30, 50]
    assert slowed([3], []) == [3]
    assert slowed([], [(0.0, 1.0)]) == []
