"""Differences of counters that begin anew, vanish and come back."""

from streaming.collect.pulsar.counters import Differences, Place

T1, T2 = Place("b1", "persistent://a/b/t1"), Place("b1", "persistent://a/b/t2")
ELSEWHERE = Place("b2", "persistent://a/b/t1")


def test_the_first_reading_counts_nothing() -> None:
    """Its counters hold the past, which belongs to no period."""
    passed = Differences(9).take(1_000, ["b1"], {T1: (5, 50, 0, 0)})
    assert (passed.counts, passed.period_ms) == ({}, {})


def test_a_counter_that_went_back_counts_from_nothing() -> None:
    """A topic was unloaded, or the broker restarted."""
    differences = Differences(9)
    differences.take(0, ["b1"], {T1: (100, 1_000, 7, 70)})
    passed = differences.take(2_000, ["b1"], {T1: (30, 300, 0, 0)})
    assert (passed.counts[T1], passed.restarted) == ((30, 300, 0, 0), 1)
    assert differences.take(3_000, ["b1"], {T1: (31, 310, 0, 0)}).counts[T1] == (1, 10, 0, 0)


def test_a_topic_that_is_new_counts_from_nothing_and_one_that_is_gone_not_at_all() -> None:
    """It was created, or deleted, or moved: what it did where it was since the last reading is not seen."""
    differences = Differences(9)
    differences.take(0, ["b1", "b2"], {T1: (100, 100, 0, 0)})
    passed = differences.take(1_000, ["b1", "b2"], {T2: (5, 5, 0, 0), ELSEWHERE: (9, 9, 0, 0)})
    assert passed.counts == {T2: (5, 5, 0, 0), ELSEWHERE: (9, 9, 0, 0)}
    assert passed.restarted == 0


def test_a_broker_that_does_not_answer_for_a_while_counts_when_it_does() -> None:
    """Its period is as long as it was silent, and nobody else's."""
    differences = Differences(9)
    differences.take(0, ["b1", "b2"], {T1: (10, 10, 0, 0), ELSEWHERE: (10, 10, 0, 0)})
    passed = differences.take(1_000, ["b2"], {ELSEWHERE: (11, 11, 0, 0)})
    assert (passed.counts, passed.period_ms) == ({ELSEWHERE: (1, 1, 0, 0)}, {"b2": 1_000})
    passed = differences.take(2_000, ["b1", "b2"], {T1: (40, 40, 0, 0), ELSEWHERE: (12, 12, 0, 0)})
    assert passed.counts[T1] == (30, 30, 0, 0)
    assert passed.period_ms == {"b1": 2_000, "b2": 1_000}


def test_places_have_a_bound() -> None:
    """Beyond it they are counted, not kept."""
    differences = Differences(2)
    many = {Place("b1", f"persistent://a/b/t{n}"): (n, n, 0, 0) for n in range(5)}
    differences.take(0, ["b1"], many)
    passed = differences.take(1_000, ["b1"], many)
    assert (len(passed.counts), passed.unknown) == (2, 3)
    # Those of a broker that is silent count too.
    assert len(differences.take(2_000, ["b2"], {ELSEWHERE: (0, 0, 0, 0)}).counts) == 0
    assert len(differences._last) == 2
