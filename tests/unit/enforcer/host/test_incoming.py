"""Metered answers in turns: a broker's bytes keep their order, and nobody's hold the loop."""

from collections.abc import Callable

from enforcer.host.turns import TURN_S, Inbox, Turns


class Rig:
    """A loop whose rounds a test begins, and a taker that needs more than a turn for each piece."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.soon: list[Callable[[], None]] = []
        self.turns = Turns(self.soon.append, lambda: self.now_s)
        self.said: list[str] = []

    def incoming(self, name: str) -> Inbox:
        """One connection's."""

        def take(data: bytes) -> None:
            self.now_s += 2 * TURN_S
            self.said.append(f"{name} {data.decode()}")

        def say(word: str) -> Callable[[], None]:
            return lambda: self.said.append(f"{name} {word}")

        return Inbox(self.turns, take, say("pauses"), say("goes on"))

    def round(self) -> None:
        """One round of the loop."""
        due, self.soon[:] = list(self.soon), []
        for function in due:
            function()


def test_taken_in_turns_and_in_order() -> None:
    """What finds the turn used waits with all that follows it, and its broker is not read meanwhile."""
    rig = Rig()
    first, second = rig.incoming("a"), rig.incoming("b")
    first.add(b"1")
    first.add(b"2")
    first.add(b"3")
    second.add(b"1")
    assert rig.said == ["a 1", "a pauses", "a pauses", "b pauses"]
    assert (len(first), len(second)) == (2, 1)
    rig.said.clear()
    rig.round()
    assert rig.said == ["a 23", "a goes on"]
    rig.round()
    assert rig.said[2:] == ["b 1", "b goes on"]
    assert not first and not second


def test_all_is_taken_when_nothing_more_will_come() -> None:
    """A broker that has closed leaves its answers; what was dropped is not taken."""
    rig = Rig()
    incoming = rig.incoming("a")
    incoming.add(b"1")
    incoming.add(b"2")
    incoming.take_all()
    assert rig.said == ["a 1", "a pauses", "a 2", "a goes on"]
    incoming.add(b"3")
    incoming.drop()
    rig.round()
    assert "a 3" not in rig.said
