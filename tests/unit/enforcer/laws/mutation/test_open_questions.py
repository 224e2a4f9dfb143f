"""Who may ask, and who is called next."""

from collections.abc import Callable

from enforcer.laws.mutation.events import OpenQuestions, line_of


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
