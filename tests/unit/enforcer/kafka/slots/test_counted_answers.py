"""What a broker has to answer, counted on its way in and out; of which class it is, and what may not wait."""

import pytest
from concurrency_kit import Times, limiter_at
from connection_kit import framed, opaque
from each_kit import each
from kafka.protocol.consumer import FetchRequest
from kafka_kit import build, request

from enforcer.kafka.part import Slot
from enforcer.kafka.slots.counted_answers import (
    DELAYED_KEYS,
    PRODUCE_CLASS,
    CountedAnswers,
    class_of,
    prompt_fetches,
)
from enforcer.laws.concurrency.limiter import Limiter
from enforcer.wire.kafka.frames import FLEXIBLE_FROM
from enforcer.wire.kafka.mutations import MUTATION_KEYS
from streaming.policy.concurrency_schema import EXEMPT, RequestClass

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


def test_an_end_is_no_drop(limiter: Limiter, due: CountedAnswers) -> None:
    """Nor a request that never became whole, whose client went in the middle of it.

    Whoever sends nonsense can bring a broker to it. All slots are given back, and once.
    """
    due.extend(slots(PRODUCE, PRODUCE, PRODUCE))
    due.pop()
    assert limiter.in_flight == 2
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


def test_classes_are_those_that_a_policy_may_name() -> None:
    """And produce, which is none of them: it is never exempt."""
    found = {class_of(key) for key in FLEXIBLE_FROM}
    assert found == {each.value for each in RequestClass} | {PRODUCE_CLASS}


def test_mutations_are_admin_requests_and_do_not_pass_by_themselves() -> None:
    """They are refused with an error that they have."""
    assert {class_of(key) for key in MUTATION_KEYS} == {"admin"}
    assert "admin" not in EXEMPT


def test_what_waits_on_purpose_passes_by_itself() -> None:
    """Else idle clients would use up a limit."""
    assert {class_of(key) for key in DELAYED_KEYS} <= set(EXEMPT)


def fetch(version: int, max_wait_ms: int, min_bytes: int) -> bytes:
    """A Fetch of nothing, with its length; its correlation id is 7."""
    values = {"max_wait_ms": max_wait_ms, "min_bytes": min_bytes, "max_bytes": 1_000, "topics": []}
    return framed(request(build(FetchRequest, version, **values))[0])


@each("version", range(4, 18))
def test_those_that_may_not_wait_are_found(version: int) -> None:
    """By their own numbers, wherever they stand in a run."""
    assert prompt_fetches(fetch(version, 0, 1)) == {7}
    assert prompt_fetches(opaque(3) + fetch(version, 500, 0) + opaque(4)) == {7}
    assert prompt_fetches(memoryview(opaque(3) + fetch(version, 500, 1))) == set()


def test_what_is_cut_off_or_damaged_is_none() -> None:
    """Only the last request of a run may be a part; nobody vouches for a client's bytes."""
    whole = fetch(12, 0, 0)
    for size in range(len(whole)):
        assert prompt_fetches(whole[:size]) in (set(), {7})
    for place in range(8, 30):
        damaged = bytearray(whole)
        damaged[place] = 0xFF
        prompt_fetches(damaged)
