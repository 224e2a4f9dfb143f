"""Turns at the same counters: in order, with what is on its way, and without those that do not come."""

from meter_kit import Waiting

from enforcer.core.lines import NOTHING, RESERVED_MS, Lines, OtherClaims

COUNTER = ("broker-1", "t")


class Table(Lines):
    """Lines with a clock."""

    def __init__(self, places_max: int = 10) -> None:
        self.now_ms = 0.0
        super().__init__(lambda: self.now_ms, places_max)


def test_who_came_first_goes_first() -> None:
    """The next is woken when the first has gone."""
    lines, first, second = Table(), Waiting(), Waiting()
    assert lines.is_next(COUNTER, second.claim)
    lines.join([COUNTER], first.claim, within_ms=1_000)
    lines.join([COUNTER], second.claim, within_ms=1_000)
    lines.join([COUNTER], first.claim, within_ms=2_000, cost=4.0)
    lines.join([COUNTER], first.claim, within_ms=2_000, cost=3.0)
    assert lines.is_next(COUNTER, first.claim) and not lines.is_next(COUNTER, second.claim)
    assert lines.cost(COUNTER) == 3.0
    lines.leave(first.claim)
    assert second.woken == 1 and lines.cost(COUNTER) == 0.0 and lines.is_next(COUNTER, second.claim)
    lines.leave(second.claim)
    lines.leave(second.claim)
    assert len(lines) == 0 and not lines._lines


def test_who_does_not_come_loses_its_place() -> None:
    """Nobody waits for it any longer than it said."""
    lines, first, second = Table(), Waiting(), Waiting()
    lines.join([COUNTER], first.claim, within_ms=1_000)
    lines.join([COUNTER], second.claim, within_ms=5_000)
    lines.now_ms = 1_000
    assert lines.is_next(COUNTER, second.claim)
    lines.join([COUNTER], first.claim, within_ms=1_000)
    assert not lines.is_next(COUNTER, first.claim)


def test_what_is_on_its_way() -> None:
    """It is kept free until it has come, or for a moment; never from oneself."""
    lines, first, second = Table(), Waiting(), Waiting()
    lines.reserve([COUNTER], first.claim, 10, 1_000)
    lines.reserve([COUNTER], first.claim, 8, 800)
    assert lines.others(COUNTER, second.claim) == (8, 800)
    assert lines.others(COUNTER, first.claim) == (0, 0) and lines.others(COUNTER, None) == (8, 800)
    lines.join([COUNTER], second.claim, within_ms=1_000)
    lines.settle(first.claim)
    assert second.woken == 1 and lines.others(COUNTER, second.claim) == (0, 0)
    lines.reserve([COUNTER], first.claim, 10, 1_000)
    lines.now_ms = RESERVED_MS
    assert lines.others(COUNTER, second.claim) == (0, 0)
    lines.leave(second.claim)
    lines.settle(first.claim)
    assert len(lines) == 0 and not lines._lines


def test_another_counter() -> None:
    """Whoever waits for another one now leaves the first."""
    lines, first = Table(), Waiting()
    lines.join([COUNTER], first.claim, within_ms=1_000)
    lines.join([("broker-1",)], first.claim, within_ms=1_000)
    assert len(lines) == 1 and lines.is_next(COUNTER, Waiting().claim)


def test_a_claim_stands_in_the_line_of_each_counter() -> None:
    """What one leaves is divided among those who may come now; who leaves one line leaves all."""
    lines, small, hungry, third = Table(), Waiting(), Waiting(), Waiting()
    own = ("broker-1", "t", "g")
    assert lines.taken(COUNTER, hungry.claim) is NOTHING
    lines.join([own, COUNTER], small.claim, wait_ms=300)
    lines.join([COUNTER], hungry.claim)
    # Until its own limit is free nobody waits for it.
    assert lines.taken(COUNTER, hungry.claim) == NOTHING and lines.is_next(COUNTER, hungry.claim)
    lines.now_ms = 300
    assert lines.taken(COUNTER, hungry.claim) == OtherClaims(2, 0.0, 0.0) == lines.taken(COUNTER, small.claim)
    assert not lines.is_next(COUNTER, hungry.claim) and lines.taken(COUNTER, third.claim).claims == 3
    lines.reserve([own, COUNTER], small.claim, 10, 1_000)
    lines.leave(small.claim)
    assert hungry.woken == 1 and lines.waiting(own) == 0
    assert lines.taken(COUNTER, hungry.claim) == OtherClaims(1, 10.0, 1_000.0)
    lines.settle(small.claim)
    lines.leave(hungry.claim)
    assert len(lines) == 0 and not lines._lines


def test_many_rivals_are_guessed_from_the_first() -> None:
    """A step costs the same whatever their number."""
    lines, hungry = Table(places_max=1_000), Waiting()
    for number in range(100):
        lines.join([COUNTER], (Waiting(), "t", str(number)), wait_ms=500 if number < 4 else 0)
    assert lines.taken(COUNTER, hungry.claim).claims == 1 + 4
    lines.now_ms = 500
    assert lines.taken(COUNTER, hungry.claim).claims == 1 + 100


def test_old_reservations_are_looked_at_a_few_at_a_time() -> None:
    """A step stays short; in the end all are gone."""
    lines = Table(places_max=1_000)
    for _ in range(100):
        lines.reserve([COUNTER], Waiting().claim, 1)
    lines.now_ms = RESERVED_MS
    left = [lines.others(COUNTER, None)[0] for _ in range(13)]
    assert left[0] == 92.0 and left[-1] == 0.0 and not lines.busy(COUNTER)


def test_the_bound() -> None:
    """Who finds no place does not wait for a turn."""
    lines, connections = Table(places_max=2), [Waiting() for _ in range(3)]
    for connection in connections:
        lines.join([COUNTER], connection.claim, within_ms=1_000)
    assert len(lines) == 2
    lines.reserve([COUNTER], connections[2].claim, 1, 1)
    assert len(lines) == 2
    for connection in connections:
        lines.settle(connection.claim)
        lines.leave(connection.claim)
    assert len(lines) == 0


def test_the_first_can_be_woken_when_something_has_changed() -> None:
    """By whoever knows of it; and it is known who waits, and how many."""
    lines, first, second = Table(), Waiting(), Waiting()
    lines.wake(COUNTER)
    assert lines.waiting(COUNTER) == 0 and not lines.has(first.claim)
    lines.join([COUNTER], first.claim, within_ms=1_000)
    lines.join([COUNTER], second.claim, within_ms=1_000)
    lines.wake(COUNTER)
    assert (first.woken, second.woken) == (1, 0)
    lines.wake_all(COUNTER)
    assert (first.woken, second.woken) == (2, 1)
    assert lines.waiting(COUNTER) == 2 and lines.has(second.claim)


def test_a_counter_named_twice_is_reserved_for_once() -> None:
    """Nothing of it is left behind."""
    lines, waiting = Lines(lambda: 0.0), Waiting()
    lines.reserve([("a",), ("a",), ("b",)], waiting.claim, 3.0)
    assert lines.others(("a",), None) == lines.others(("b",), None) == (3.0, 0.0)
    lines.settle(waiting.claim)
    assert not len(lines) and not lines.busy(("a",)) and not lines.busy(("b",))
