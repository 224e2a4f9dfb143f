"""Fetches that a broker must answer at once."""

from connection_kit import framed, opaque
from each_kit import each
from kafka.protocol.consumer import FetchRequest
from kafka_kit import build, request

from enforcer.kafka.slots.counted_answers import prompt_fetches


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
