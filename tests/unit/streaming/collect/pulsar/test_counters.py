"""Differences of counters that begin anew, vanish and come back."""

import pytest

from streaming.collect.pulsar.counters import Differences, Place

T1, T2 = Place("b1", "persistent://a/b/t1"), Place("b1", "persistent://a/b/t2")
ELSEWHERE = Place("b2", "persistent://a/b/t1")
PAST = (10**9, 10**11, 0, 0)


@pytest.fixture
def room_for_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for more places."""
    monkeypatch.setattr("streaming.collect.pulsar.counters.PLACES_MAX", 2)


def whole(_topic: str) -> bool:
    """A reading that shows all there is."""
    return True


def test_the_first_reading_counts_nothing() -> None:
    """Its counters hold the past, which belongs to no period."""
    passed = Differences().take(1_000, ["b1"], {T1: (5, 50, 0, 0)})
    assert (passed.counts, passed.period_ms) == ({}, {})


@pytest.fixture
def differences() -> Differences:
    """Nothing was read yet."""
    return Differences()


def test_a_counter_that_went_back_counts_from_nothing(differences: Differences) -> None:
    """A topic was unloaded, or the broker restarted."""
    differences.take(0, ["b1"], {T1: (100, 1_000, 7, 70)})
    passed = differences.take(2_000, ["b1"], {T1: (30, 300, 0, 0)})
    assert (passed.counts[T1], passed.restarted) == ((30, 300, 0, 0), 1)
    assert differences.take(3_000, ["b1"], {T1: (31, 310, 0, 0)}).counts[T1] == (1, 10, 0, 0)


def test_a_new_topic_counts_from_nothing_and_one_that_is_gone_not_at_all(differences: Differences) -> None:
    """It was created, or deleted, or moved: what it did where it was since the last reading is not seen."""
    differences.take(0, ["b1", "b2"], {T1: (100, 100, 0, 0)}, whole)
    passed = differences.take(1_000, ["b1", "b2"], {T2: (5, 5, 0, 0), ELSEWHERE: (9, 9, 0, 0)}, whole)
    assert passed.counts == {T2: (5, 5, 0, 0), ELSEWHERE: (9, 9, 0, 0)}
    assert passed.restarted == 0


def test_a_broker_that_does_not_answer_for_a_while_counts_when_it_does(differences: Differences) -> None:
    """Its period is as long as it was silent, and nobody else's."""
    differences.take(0, ["b1", "b2"], {T1: (10, 10, 0, 0), ELSEWHERE: (10, 10, 0, 0)})
    passed = differences.take(1_000, ["b2"], {ELSEWHERE: (11, 11, 0, 0)})
    assert (passed.counts, passed.period_ms) == ({ELSEWHERE: (1, 1, 0, 0)}, {"b2": 1_000})
    passed = differences.take(2_000, ["b1", "b2"], {T1: (40, 40, 0, 0), ELSEWHERE: (12, 12, 0, 0)})
    assert passed.counts[T1] == (30, 30, 0, 0)
    assert passed.period_ms == {"b1": 2_000, "b2": 1_000}


def test_what_a_silent_broker_has_is_unheard(differences: Differences) -> None:
    """But for what another one has by now; what a whole reading lacks has gone."""
    differences.take(0, ["b1", "b2"], {T1: (1, 1, 0, 0), T2: (1, 1, 0, 0)}, whole)
    assert differences.take(1_000, ["b2"], {ELSEWHERE: (1, 1, 0, 0)}, whole).unheard == {(T2.topic, "")}
    assert not differences.take(2_000, ["b1", "b2"], {T1: (1, 1, 0, 0)}, whole).unheard


def test_a_broker_that_is_gone_is_forgotten_after_an_hour(differences: Differences) -> None:
    """Where brokers are called by their addresses names are not used again, and each held a whole reading."""
    differences.take(0, ["b1", "b2"], {T1: (5, 5, 0, 0), ELSEWHERE: (5, 5, 0, 0)}, whole)
    differences.take(3_600_000, ["b2"], {ELSEWHERE: (6, 6, 0, 0)}, whole)
    assert differences.take(3_600_000, ["b1"], {T1: (9, 9, 0, 0)}, whole).counts == {T1: (4, 4, 0, 0)}
    differences.take(7_200_001, ["b2"], {ELSEWHERE: (7, 7, 0, 0)}, whole)
    kept = differences._read_ms, differences._shown, differences._last
    assert [list(one) for one in kept] == [["b2"], ["b2"], [ELSEWHERE]]
    assert differences.take(7_200_002, ["b1"], {T1: (10, 10, 0, 0)}, whole).counts == {}


@pytest.mark.usefixtures("room_for_two")
def test_places_have_a_bound(differences: Differences) -> None:
    """Beyond it they are counted, not kept."""
    many = {Place("b1", f"persistent://a/b/t{n}"): (n, n, 0, 0) for n in range(5)}
    differences.take(0, ["b1"], many)
    passed = differences.take(1_000, ["b1"], many)
    assert (len(passed.counts), passed.unknown) == (2, 3)
    # Those of a broker that is silent count too.
    assert len(differences.take(2_000, ["b2"], {ELSEWHERE: (0, 0, 0, 0)}).counts) == 0
    assert len(differences._last) == 2


def test_a_topic_that_one_reading_lacks_does_not_count_from_nothing(differences: Differences) -> None:
    """It goes on from what it had; what passed counts by its mean rate, as all else of that reading."""
    differences.take(0, ["b1"], {T1: PAST}, whole)
    missing = differences.take(1_000, ["b1"], {}, lambda topic: topic != T1.topic)
    assert missing.counts == {}
    passed = differences.take(2_000, ["b1"], {T1: (10**9 + 40, 10**11 + 80, 0, 0)}, whole)
    assert (passed.counts, passed.restarted) == ({T1: (20, 40, 0, 0)}, 0)


def test_a_topic_that_was_never_read_begins_with_its_first_reading(differences: Differences) -> None:
    """Only the one behind a reading that would have shown it is new."""
    differences.take(0, ["b1", "b2"], {}, lambda topic: topic != T1.topic)
    assert differences.take(1_000, ["b1", "b2"], {T1: PAST, T2: (3, 3, 0, 0)}, whole).counts == {
        T2: (3, 3, 0, 0)
    }
    passed = differences.take(2_000, ["b1", "b2"], {T1: (10**9 + 1, 10**11, 0, 0)}, whole)
    assert passed.counts == {T1: (1, 0, 0, 0)}


@pytest.mark.usefixtures("room_for_two")
def test_who_gets_the_room_of_another_begins_with_its_first_reading(differences: Differences) -> None:
    """Known ones keep theirs, also when new ones come before them in order."""
    places = [Place("b1", f"persistent://a/b/t{n}") for n in range(4)]
    differences.take(0, ["b1"], dict.fromkeys(places[1:], PAST), whole)
    passed = differences.take(1_000, ["b1"], dict.fromkeys(places, PAST), whole)
    assert (list(passed.counts), passed.unknown) == (places[1:3], 2)
    passed = differences.take(2_000, ["b1"], dict.fromkeys(places[2:], PAST), whole)
    assert passed.counts == {places[2]: (0, 0, 0, 0)}
    passed = differences.take(3_000, ["b1"], dict.fromkeys(places[2:], PAST), whole)
    assert passed.counts == dict.fromkeys(places[2:], (0, 0, 0, 0))


@pytest.mark.usefixtures("room_for_two")
def test_a_silent_broker_without_room_begins_anew(differences: Differences) -> None:
    """Its places left for those of others: when it answers again their past is nobody's traffic."""
    differences.take(0, ["b1"], {T1: PAST}, whole)
    differences.take(1_000, ["b2"], {ELSEWHERE: PAST, Place("b2", T2.topic): PAST}, whole)
    assert differences.take(2_000, ["b1"], {T1: PAST}, whole).counts == {}
