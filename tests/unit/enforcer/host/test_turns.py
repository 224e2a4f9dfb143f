"""Turns in a round of the loop."""

from collections.abc import Callable

import pytest

from enforcer.host.turns import SAY_S, TURN_S, Turns


def test_a_round_is_used_up_and_the_next_begins_anew() -> None:
    """What is handled after the time is over waits; the next round has all of it again."""
    now, soon = [0.0], list[Callable[[], None]]()
    turns = Turns(soon.append, lambda: now[0])
    for _ in range(2):
        begun = turns.begin()
        assert begun is not None
        now[0] += TURN_S / 2
        turns.end(begun)
    assert turns.begin() is None and len(soon) == 1
    soon.pop()()
    assert turns.begin() is not None


def test_lines_in_the_log_are_seldom() -> None:
    """The first is said, then one in a while."""
    now = [100.0]
    turns = Turns(lambda _function: None, lambda: now[0])
    assert turns.may_say() and not turns.may_say()
    now[0] += SAY_S
    assert turns.may_say()


def test_who_waits_is_called_in_the_order_of_coming() -> None:
    """Those that use up a round leave the others to the next one, and stand behind them."""
    now, soon, called = [0.0], list[Callable[[], None]](), list[str]()
    turns = Turns(soon.append, lambda: now[0])

    def client(name: str) -> Callable[[], None]:
        def go() -> None:
            begun = turns.begin()
            if begun is not None:
                called.append(name)
                now[0] += 2 * TURN_S
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
    while soon:
        soon.pop(0)()
    assert "".join(called) == "aabcabcbc" and not any(map(turns.waits, clients))


def test_a_mistake_of_one_takes_nobodys_turn() -> None:
    """Those behind it are called in the next round, though nothing else comes."""
    soon, called = list[Callable[[], None]](), list[int]()
    turns = Turns(soon.append, lambda: TURN_S)

    def broken() -> None:
        raise ValueError("a mistake")

    turns.end(0.0)
    turns.wait(broken)
    turns.wait(lambda: called.append(1))
    with pytest.raises(ValueError, match="a mistake"):
        soon.pop()()
    assert called == [] and len(soon) == 1
    soon.pop()()
    assert called == [1] and not soon
