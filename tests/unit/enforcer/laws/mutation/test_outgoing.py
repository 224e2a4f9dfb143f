"""What is put off until a request has left: in order, and never lost."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from enforcer.core.reports import Acknowledged
from enforcer.laws.mutation.events import EventSender


class Kafka:
    """Takes events, unless it is full."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.full = False

    def send(self, event: Mapping[str, Any], key: str, *, acked: Acknowledged | None = None) -> bool:
        """Keep it."""
        if not self.full:
            self.sent.append(f"{key}/{event['id']}")
        return not self.full

    def room(self) -> bool:
        """Whether it would take one."""
        return not self.full


@pytest.fixture
def kafka() -> Kafka:
    """Where events go."""
    return Kafka()


@pytest.fixture
def turns() -> list[Callable[[], None]]:
    """Calls of the loop's next turn."""
    return []


@pytest.fixture
def outgoing(kafka: Kafka, turns: list[Callable[[], None]]) -> EventSender:
    """In a loop whose turns the test takes."""
    return EventSender(kafka, turns.append)


def ignore(_record_ms: int | None) -> None:
    """Nobody waits for the acknowledgement."""


def test_events_leave_in_the_order_in_which_they_were_given(
    outgoing: EventSender, kafka: Kafka, turns: list[Callable[[], None]]
) -> None:
    """One that is sent at once takes those before it along; the loop is asked for one turn."""
    outgoing.send_soon({"id": 1}, "a", ignore)
    outgoing.send_soon({"id": 2}, "b", ignore)
    assert kafka.sent == [] and len(turns) == 1
    assert outgoing.send({"id": 3}, "a")
    assert kafka.sent == ["a/1", "b/2", "a/3"]
    turns.pop()()
    assert kafka.sent == ["a/1", "b/2", "a/3"] and turns == []
    outgoing.send_soon({"id": 4}, "a", ignore)
    turns.pop()()
    assert kafka.sent[3:] == ["a/4"]


def test_who_waits_for_an_event_that_is_dropped_is_told(outgoing: EventSender, kafka: Kafka) -> None:
    """As if Kafka would never have it."""
    told: list[int | None] = []
    kafka.full = True
    outgoing.send_soon({"id": 1}, "a", told.append)
    assert not outgoing.send({"id": 2}, "a")
    assert told == [None]


def test_a_mistake_in_one_stops_no_other(
    outgoing: EventSender, kafka: Kafka, turns: list[Callable[[], None]]
) -> None:
    """The others have their turn, and the loop gets it."""

    def broken() -> None:
        raise ZeroDivisionError

    outgoing.later(broken)
    outgoing.send_soon({"id": 1}, "a", ignore)
    turns.pop()()
    assert kafka.sent == ["a/1"]
    with pytest.raises(ZeroDivisionError):
        turns.pop()()
