"""What a broker has to answer, counted on its way in and out."""

import pytest
from concurrency_kit import Times, limiter_at

from enforcer.kafka.part import Slot
from enforcer.kafka.slots.counted_answers import CountedAnswers
from enforcer.laws.concurrency.limiter import Limiter

PRODUCE, FETCH, JOIN_GROUP, HEARTBEAT = 0, 1, 11, 12


def slots(*keys: int) -> list[Slot]:
    """One of each API, numbered."""
    return [Slot(key, 0, number) for number, key in enumerate(keys)]


@pytest.fixture
def limiter() -> Limiter:
    """There is room for ten."""
    return limiter_at(Times(), 10)


@pytest.fixture
def due(limiter: Limiter) -> CountedAnswers:
    """A connection's answers."""
    return CountedAnswers(limiter)


def test_requests_count_from_their_sending_to_their_answer(limiter: Limiter, due: CountedAnswers) -> None:
    """Whichever way they are put in."""
    first, second, third = slots(PRODUCE, PRODUCE, HEARTBEAT)
    due.append(first)
    due.extend([second, third])
    assert (list(due), limiter.in_flight) == ([first, second, third], 3)
    assert [due.popleft(), due.popleft()] == [first, second]
    assert limiter.in_flight == 1
    assert [sample.inflight for sample in limiter.samples.take()] == [1, 2]


def test_what_was_sent_before_does_not_count() -> None:
    """Nobody knows when."""
    limiter = limiter_at(Times(), 10)
    due = CountedAnswers(limiter, slots(PRODUCE, PRODUCE))
    assert (len(due), limiter.in_flight) == (2, 0)
    due.popleft()
    due.pop()
    assert limiter.in_flight == 0
    assert limiter.samples.take() == []


def test_a_request_that_never_became_whole_is_no_drop(limiter: Limiter, due: CountedAnswers) -> None:
    """Its client went in the middle of it."""
    due.extend(slots(PRODUCE, PRODUCE))
    due.pop()
    assert limiter.in_flight == 1
    assert limiter.samples.take() == []


def test_an_end_is_no_drop(limiter: Limiter, due: CountedAnswers) -> None:
    """Whoever sends nonsense can bring a broker to it. All slots are given back, and once."""
    due.extend(slots(PRODUCE, PRODUCE))
    due.forget()
    due.clear()
    assert (limiter.in_flight, len(due)) == (0, 0)
    assert limiter.samples.take() == []


def test_what_is_exempt_has_one_slot_a_connection() -> None:
    """A thousand heartbeats at once keep nobody from his turn; each gives a sample."""
    limiter = limiter_at(Times(), 10)
    limiter.exempt = frozenset({"heartbeat"})
    due = CountedAnswers(limiter)
    due.extend(slots(*[HEARTBEAT] * 1_000, PRODUCE))
    assert limiter.in_flight == 2
    for _ in range(1_000):
        due.popleft()
    assert (limiter.in_flight, len(limiter.exempted)) == (1, 1)
    due.extend(slots(HEARTBEAT))
    assert limiter.in_flight == 2


def test_requests_that_wait_on_purpose_take_no_slot() -> None:
    """A Fetch that may not wait gives a sample all the same."""
    limiter = limiter_at(Times(), 10)
    limiter.exempt = frozenset({"fetch", "group"})
    due = CountedAnswers(limiter)
    due.prompt = {2}
    due.extend(slots(FETCH, JOIN_GROUP, FETCH))
    assert limiter.in_flight == 0
    assert limiter.exempted == {"fetch": 2, "group": 1}
    for _ in range(3):
        due.popleft()
    assert len(limiter.samples.take()) == 1
    assert due.prompt == set()


def test_a_policy_may_want_fetches_to_take_slots(limiter: Limiter, due: CountedAnswers) -> None:
    """They give no sample by that."""
    due.extend(slots(FETCH))
    assert limiter.in_flight == 1
    due.popleft()
    assert limiter.in_flight == 0
    assert limiter.samples.take() == []
