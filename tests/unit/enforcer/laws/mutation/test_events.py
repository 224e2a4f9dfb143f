"""Events: they fit a record and leave in order; of questions, who may ask, and who is called next."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from each_kit import each
from mutation_kit import Desk

from enforcer.laws.mutation.events import EVENT_BYTES_MAX, OpenQuestions, in_own_names, line_of, put_items


def fitted(counts: dict[str, int], *, may_sum: bool, key: str = "user=a", **more: Any) -> Any:
    """What becomes of items: aliases and the event, both None if there is no way."""
    event: dict[str, Any] = {"type": "request", "user": "a", "client_id": "c", "subject": key, **more}
    put = put_items(event, key, counts, may_sum=may_sum)
    if put is None:
        assert "items" not in event
        return None, None
    sent, aliases = put
    assert event["items"] == [{"name": name, "mutations": count} for name, count in sent.items()]
    assert len(orjson.dumps(event)) + len(key.encode()) <= EVENT_BYTES_MAX
    return aliases, event


def test_names_are_cut_only_where_they_must_be() -> None:
    """2,500 long names go as they are, 4,200 are cut, 15,000 keep their numbers alone; counts stay."""
    for many, first in ((2_500, "x" * 245), (4_200, "x" * 32 + "#0"), (15_000, "#0")):
        counts = {"x" * 245 + f"{number:05}": number for number in range(many)}
        aliases, event = fitted(counts, may_sum=False)
        assert event["items"][0]["name"].startswith(first)
        assert [item["mutations"] for item in event["items"]] == list(range(many))
        names = [item["name"] for item in event["items"]]
        if aliases:
            assert in_own_names(aliases, frozenset(names[5:7])) == frozenset(list(counts)[5:7])
            assert in_own_names(aliases, frozenset({"forged"})) == frozenset()
        else:
            assert names == list(counts)


def test_there_is_room_for_what_is_rejected() -> None:
    """1,650 long names fit twice, 2,500 only once: then they are cut, and all of them may be rejected."""
    for many, cut in ((1_650, False), (2_500, True), (15_000, True)):
        counts = {"x" * 245 + f"{number:05}": 1 for number in range(many)}
        event: dict[str, Any] = {"type": "request", "user": "a", "client_id": "c", "subject": "user=a"}
        put = put_items(event, "user=a", counts, may_sum=False, twice=True)
        assert put is not None and bool(put[1]) is cut
        event["decided"] = {"outcome": "reject", "rejected": [item["name"] for item in event["items"]]}
        assert len(orjson.dumps(event)) <= EVENT_BYTES_MAX + 100


def test_what_is_decided_together_may_be_one_sum() -> None:
    """30,000 items fit no event; where all of them pass or none does, their sum does."""
    counts = {f"t{number}": 2 for number in range(30_000)}
    assert fitted(counts, may_sum=False) == (None, None)
    aliases, event = fitted(counts, may_sum=True)
    assert event["items"] == [{"name": "30000 items", "mutations": 60_000}]
    assert in_own_names(aliases, frozenset({"30000 items"})) == frozenset(counts)


@each("letter", ["x", "\x01", "%", '"', "\u00e9", "\U0001f9a6"])
def test_the_largest_client_leaves_room_for_a_sum(letter: str) -> None:
    """User and client-id as long as a header can hold them, in what takes most room in JSON or a subject."""
    longest = letter * (32_767 // len(letter.encode()))
    key = f"user={longest},client-id={longest}".replace("%", "%25")
    counts = {letter * 1_000 + str(number): 1 for number in range(500)}
    _, event = fitted(counts, may_sum=True, key=key, user=longest, client_id=longest)
    assert event is not None and sum(item["mutations"] for item in event["items"]) == 500


class Crowd:
    """Requests that stand in line and ask as soon as they may."""

    def __init__(self, turns: OpenQuestions, subject: str = "s", asks: bool = True) -> None:
        self.turns, self.subject, self.asks = turns, subject, asks
        self.asked: list[int] = []

    def come(self, number: int) -> None:
        """One more; it asks or stands in line."""

        def wake() -> None:
            self.turns.stop_waiting(line_of(self.subject), wake)
            self.come(number)

        if not self.turns.full(self.subject):
            self.asked.append(number)
            if self.asks:
                self.turns.begin(self.subject)
        else:
            self.turns.wait_for(line_of(self.subject), wake)


def test_a_line_is_served_in_order() -> None:
    """Two at a time; each that ends lets one in; other subjects are not held."""
    turns = OpenQuestions(2, 100)
    crowd, other = Crowd(turns), Crowd(turns, "other")
    for number in range(5):
        crowd.come(number)
    other.come(9)
    assert (crowd.asked, other.asked) == ([0, 1], [9])
    for asked in ([0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4]):
        turns.end("s")
        assert crowd.asked == asked
    turns.end("s")
    turns.end("s")
    turns.end("other")
    assert not turns._open and not turns._waiting and turns._open_in_all == 0


def test_all_together_have_a_bound_too() -> None:
    """Subjects are cheap to make up."""
    turns = OpenQuestions(2, 3)
    for subject in "abc":
        turns.begin(subject)
    assert turns.full("d") and turns.full("a")
    turns.end("a")
    assert not turns.full("d")


def test_a_place_of_all_is_for_whoever_waits() -> None:
    """At the bound in all, one that ends lets in another subject, which has none open that could end."""
    turns = OpenQuestions(5, 2)
    crowd, other = Crowd(turns), Crowd(turns, "other")
    for number in range(4):
        crowd.come(number)
    for number in (8, 9):
        other.come(number)
    assert (crowd.asked, other.asked) == ([0, 1], [])
    turns.end("s")
    assert (crowd.asked, other.asked) == ([0, 1], [8])
    turns.end("other")
    assert (crowd.asked, other.asked) == ([0, 1, 2], [8])
    turns.end("s")
    assert (crowd.asked, other.asked) == ([0, 1, 2], [8, 9])


def test_a_place_of_all_is_for_a_subject_that_may_take_it() -> None:
    """One that has all its own open waits on, and its line came first."""
    turns = OpenQuestions(1, 2)
    crowd, other = Crowd(turns), Crowd(turns, "other")
    turns.begin("third")
    for number in range(2):
        crowd.come(number)
    other.come(9)
    assert (crowd.asked, other.asked) == ([0], [])
    turns.end("third")
    assert (crowd.asked, other.asked) == ([0], [9])


def test_only_some_are_called_at_a_time() -> None:
    """Those who do not ask after all leave room, and the loop has other things to do."""
    turns = OpenQuestions(1, 100)
    turns.begin("s")
    crowd = Crowd(turns, asks=False)
    for number in range(20):
        crowd.come(number)
    assert crowd.asked == []
    turns.end("s")
    assert crowd.asked == list(range(8))


def test_waits_for_a_time_end_all_at_once() -> None:
    """And one that does not wait any more is not called."""
    turns, woken = OpenQuestions(1, 1), list[str]()

    def waiter(name: str) -> Callable[[], None]:
        return lambda: woken.append(name)

    first, second = waiter("first"), waiter("second")
    turns.wait_for("s", first)
    turns.wait_for("s", second)
    turns.wait_for("other", waiter("other"))
    turns.stop_waiting("s", first)
    turns.stop_waiting("nobody", first)
    turns.wake("s")
    assert woken == ["second"]
    turns.wake_all()
    assert woken == ["second", "second", "other"]


@pytest.fixture
def desk() -> Desk:
    """Its loop's turns are taken by the test."""
    desk = Desk()
    desk.prompt = False
    return desk


def ignore(_record_ms: int | None) -> None:
    """Nobody waits for the acknowledgement."""


def test_events_leave_in_the_order_in_which_they_were_given(desk: Desk) -> None:
    """One that is sent at once takes those before it along; the loop is asked for one turn."""
    outgoing, sent = desk.coordinator.outgoing, desk.events
    outgoing.send_soon({"id": 1}, "a", ignore)
    outgoing.send_soon({"id": 2}, "b", ignore)
    assert sent == [] and len(desk.later) == 1
    assert outgoing.send({"id": 3}, "a")
    assert sent == [("a", {"id": 1}), ("b", {"id": 2}), ("a", {"id": 3})]
    desk.later.pop()()
    assert len(sent) == 3 and desk.later == []
    outgoing.send_soon({"id": 4}, "a", ignore)
    desk.later.pop()()
    assert sent[3:] == [("a", {"id": 4})]


def test_who_waits_for_an_event_that_is_dropped_is_told(desk: Desk) -> None:
    """As if Kafka would never have it."""
    told: list[int | None] = []
    desk.full = True
    desk.coordinator.outgoing.send_soon({"id": 1}, "a", told.append)
    assert not desk.coordinator.outgoing.send({"id": 2}, "a")
    assert told == [None]


def test_a_mistake_in_one_stops_no_other(desk: Desk) -> None:
    """The others have their turn, and the loop gets it."""

    def broken() -> None:
        raise ZeroDivisionError

    desk.coordinator.outgoing.later(broken)
    desk.coordinator.outgoing.send_soon({"id": 1}, "a", ignore)
    desk.later.pop()()
    assert desk.events == [("a", {"id": 1})]
    with pytest.raises(ZeroDivisionError):
        desk.later.pop()()
