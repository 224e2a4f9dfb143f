"""Turns in a round of the loop; a broker's bytes keep their order in them, and nobody's hold the loop."""

from collections.abc import Callable

import pytest
from clock_kit import Rounds

from enforcer.host.turns import SAY_S, TURN_S, Inbox


def test_a_round_is_used_up_and_the_next_begins_anew() -> None:
    """What is handled after the time is over waits; the next round has all of it again."""
    loop = Rounds()
    for _ in range(2):
        begun = loop.turns.begin()
        assert begun is not None
        loop.now_s += TURN_S / 2
        loop.turns.end(begun)
    assert loop.turns.begin() is None and len(loop.soon) == 1
    loop.round()
    assert loop.turns.begin() is not None


def test_lines_in_the_log_are_seldom() -> None:
    """The first is said, then one in a while."""
    loop = Rounds()
    loop.now_s = 100.0
    assert loop.turns.may_say() and not loop.turns.may_say()
    loop.now_s += SAY_S
    assert loop.turns.may_say()


def test_who_waits_is_called_in_the_order_of_coming() -> None:
    """Those that use up a round leave the others to the next one, and stand behind them."""
    loop, called = Rounds(), list[str]()
    turns = loop.turns

    def client(name: str) -> Callable[[], None]:
        def go() -> None:
            begun = turns.begin()
            if begun is not None:
                called.append(name)
                loop.now_s += 2 * TURN_S
                turns.end(begun)
            if called.count(name) < 3:
                turns.wait(go)

        return go

    clients = [client(name) for name in "abc"]
    for go in clients:
        go()
    # Whoever asks again keeps its place.
    clients[0]()
    assert called == ["a"] and all(map(turns.waits, clients))
    while loop.soon:
        loop.round()
    assert "".join(called) == "aabcabcbc" and not any(map(turns.waits, clients))


def test_a_mistake_of_one_takes_nobodys_turn() -> None:
    """Those behind it are called in the next round, though nothing else comes."""
    loop, called = Rounds(), list[int]()
    loop.now_s = TURN_S

    def broken() -> None:
        raise ValueError("a mistake")

    loop.turns.end(0.0)
    loop.turns.wait(broken)
    loop.turns.wait(lambda: called.append(1))
    with pytest.raises(ValueError, match="a mistake"):
        loop.round()
    assert called == [] and len(loop.soon) == 1
    loop.round()
    assert called == [1] and not loop.soon


def incoming(loop: Rounds, said: list[str], name: str) -> Inbox:
    """One connection's: each piece that it takes needs more than a turn, and is said."""

    def take(data: bytes) -> None:
        loop.now_s += 2 * TURN_S
        said.append(f"{name} {data.decode()}")

    def say(word: str) -> Callable[[], None]:
        return lambda: said.append(f"{name} {word}")

    return Inbox(loop.turns, take, say("pauses"), say("goes on"))


def test_taken_in_turns_and_in_order() -> None:
    """What finds the turn used waits with all that follows it, and its broker is not read meanwhile."""
    loop, said = Rounds(), list[str]()
    first, second = (incoming(loop, said, name) for name in "ab")
    first.add(b"1")
    first.add(b"2")
    first.add(b"3")
    second.add(b"1")
    assert said == ["a 1", "a pauses", "a pauses", "b pauses"]
    assert (len(first), len(second)) == (2, 1)
    said.clear()
    loop.round()
    assert said == ["a 23", "a goes on"]
    loop.round()
    assert said[2:] == ["b 1", "b goes on"]
    assert not first and not second


def test_all_is_taken_when_nothing_more_will_come() -> None:
    """A broker that has closed leaves its answers; what was dropped is not taken."""
    loop, said = Rounds(), list[str]()
    inbox = incoming(loop, said, "a")
    inbox.add(b"1")
    inbox.add(b"2")
    inbox.take_all()
    assert said == ["a 1", "a pauses", "a 2", "a goes on"]
    inbox.add(b"3")
    inbox.drop()
    loop.round()
    assert "a 3" not in said
