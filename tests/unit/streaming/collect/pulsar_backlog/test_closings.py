"""Close times that nobody tells: never earlier than they were."""

import pytest

from streaming.collect.pulsar_backlog.cluster import Closings
from streaming.collect.pulsar_backlog.readings import Stretch, TopicLog


def log(*ledgers: int, created: int | None, is_open: bool = True) -> TopicLog:
    """A log of ledgers with ten entries each."""
    stretches = tuple(Stretch(one, 10, 1000) for one in ledgers)
    return TopicLog(stretches, len(ledgers) - is_open, created, {})


@pytest.fixture
def closings() -> Closings:
    """Nothing has been seen yet."""
    return Closings()


def test_a_new_ledger_closes_the_one_before(closings: Closings) -> None:
    """By the time at which it was created; what is known stays."""
    closings.take(log(1, created=500), 1_000)
    assert closings.time(1) is None
    closings.take(log(1, 2, created=1_400), 2_000)
    assert (closings.time(1), closings.time(2), closings.loose(1)) == (1_400, None, False)
    closings.take(log(1, 2, 3, created=2_500), 3_000)
    assert (closings.time(1), closings.time(2), closings.time(3)) == (1_400, 2_500, None)


def test_several_between_two_looks(closings: Closings) -> None:
    """Those that came and went in between were closed by when the open one was created."""
    closings.take(log(1, created=500), 1_000)
    closings.take(log(1, 2, 3, created=2_500), 3_000)
    assert [closings.time(one) for one in (1, 2, 3)] == [2_500, 2_500, None]


def test_a_clock_ahead_closes_nothing_in_the_future(closings: Closings) -> None:
    """The broker's time counts up to ours."""
    closings.take(log(1, 2, created=9_000), 1_000)
    assert closings.time(1) == 1_000


def test_the_time_of_the_ledger_before_is_not_taken(closings: Closings) -> None:
    """Pulsar reads it before it lists the new ledger; an older time would make the age too great."""
    closings.take(log(1, created=500), 1_000)
    closings.take(log(1, 2, created=500), 2_000)
    assert closings.time(1) == 2_000


def test_a_closed_last_ledger_is_closed_when_it_is_seen(closings: Closings) -> None:
    """And stays so: its age does not begin anew with each look."""
    closings.take(log(1, created=500), 1_000)
    closings.take(log(1, created=None, is_open=False), 2_000)
    closings.take(log(1, created=None, is_open=False), 3_000)
    assert closings.time(1) == 2_000


def test_what_was_there_before_may_be_much_older(closings: Closings) -> None:
    """All but the one before the open ledger, until a publish time says more; never later than known."""
    closings.take(log(1, 2, 3, created=900), 1_000)
    assert [closings.loose(one) for one in (1, 2, 3)] == [True, False, False]
    closings.refine(1, 400)
    assert (closings.time(1), closings.time(2), closings.loose(1)) == (400, 900, False)
    closings.refine(2, 5_000)
    closings.refine(7, 5)
    assert (closings.time(2), closings.time(7)) == (900, None)


def test_what_is_trimmed_is_forgotten(closings: Closings) -> None:
    """The table holds no more than the topic's ledgers."""
    closings.take(log(*range(1, 100), created=900), 1_000)
    closings.take(log(99, 100, created=1_900), 2_000)
    assert (closings.time(5), closings.loose(5), closings.time(99)) == (None, False, 1_900)
