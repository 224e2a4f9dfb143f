"""What is kept of one entity."""

import orjson

from enforcer.control.entities.details import HOUR_MS, Asked, Detail

T = 1_795_166_700_000


def test_long_decisions_have_no_more_room_than_short_ones() -> None:
    """The newest are kept, as far as it goes: a client may have its requests refused by very many names."""
    detail = Detail()
    for number in range(20):
        detail.decided({"id": number, "rejected": ["t" * 100] * 50}, None)
    assert [orjson.loads(said)["id"] for said in detail.decisions] == [17, 18, 19]
    for number in range(20):
        detail.decided({"id": number}, None)
    assert [orjson.loads(said)["id"] for said in detail.decisions] == list(range(10, 20))


def test_candidates_have_no_more_room_than_that_together() -> None:
    """The newest are kept, also where many were tried one after the other while an entity stayed known."""
    detail = Detail()
    for number in range(20):
        detail.decided({"id": number, "rejected": ["t" * 100] * 50}, f"long{number}")
    assert list(detail.candidates) == ["long17", "long18", "long19"]
    for number in range(200):
        detail.decided({"id": number, "rejected": ["t" * 100]}, f"short{number}")
    assert list(detail.candidates)[-1] == "short199" and "short0" not in detail.candidates


def test_a_clock_that_is_ahead_forgets_nothing() -> None:
    """Whoever looks by it begins no slot: what comes by the brokers' clock would be too old until then."""
    asked = Asked()
    asked.add(T, 5.0)
    assert max(asked.slots(T + 2 * HOUR_MS)) == 0.0
    asked.add(T, 2.0)
    assert asked.slots(T)[-1] == 7.0
