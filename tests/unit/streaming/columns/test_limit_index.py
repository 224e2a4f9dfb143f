"""What is said of names: by number, once a name, and never another name's."""

from collections.abc import Callable
from string import ascii_lowercase
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries

from streaming.columns import limit_index
from streaming.columns.byte_strings import SEED, index_of
from streaming.columns.limit_index import NOTHING, LearntLimits

ASKED = st.lists(st.lists(st.sampled_from(["", "a", "b", "ab", "é", "ba"]) | st.text(max_size=3), max_size=9))


def said_of(name: str) -> complex | None:
    """Many names say the same, those with a b in them nothing."""
    return None if "b" in name else complex(len(name), 1)


def learning(said: Callable[[str], object], *kind: Any) -> tuple[LearntLimits[Any], list[str]]:
    """Limits that learn what is said of names, and for which they asked."""
    asked: list[str] = []

    def find(name: str) -> object:
        asked.append(name)
        return said(name)

    return LearntLimits(find, *kind), asked


def found(limits: LearntLimits[Any], names: list[str]) -> list[object]:
    """What they say of each name."""
    numbers = limits.of(pa.array(names)).tolist()
    return [None if number == NOTHING else limits.kinds[number] for number in numbers]


@given(ASKED, st.integers(0, 4))
@tries(200)
def test_every_name_finds_what_is_said_of_it(asked: list[list[str]], most: int) -> None:
    """Whatever was asked for before, in the index or not, remembered or not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limit_index, "MAX_NAMES", most)
        limits = LearntLimits(said_of)
        for names in asked:
            numbers = limits.of(pa.array(names, pa.string()))
            found = [None if number == NOTHING else limits.kinds[number] for number in numbers]
            assert found == [said_of(name) for name in names]
            real = limits.field("real", numbers, -7.0).tolist()
            assert real == [-7.0 if said is None else said.real for said in found]


def test_a_name_is_worked_out_once_as_long_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those beyond MAX_NAMES are worked out each time."""
    monkeypatch.setattr(limit_index, "MAX_NAMES", 2)
    limits, asked = learning(lambda name: name if name != "b" else None)
    for names in (["a", "b", "a"], ["b", "c", "a"], ["c"]):
        assert found(limits, names) == [name if name != "b" else None for name in names]
    assert asked == ["a", "b", "c", "c"]


def test_names_that_are_remembered_are_bounded_by_their_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three names of 4 where there is room for 10: two stay, and all are found."""
    monkeypatch.setattr(limit_index, "MAX_NAME_CHARS", 10)
    limits, asked = learning(str)
    for _ in range(2):
        assert limits.of(pa.array(["aaaa", "bbbb", "cccc"])).tolist() == [0, 1, 2]
    assert asked == ["aaaa", "bbbb", "cccc", "cccc"]


def test_of_names_that_are_alike_one_is_asked_for() -> None:
    """By their first letter here; each finds what is said of its kind, whatever came before."""
    limits, asked = learning(
        lambda name: None if name[0] == "b" else name[0],
        lambda names: np.array([ord(name[0]) for name in names.to_pylist()]),
    )
    for names in (["ab", "b", "ac"], ["ad", "c", "ab", "bx"]):
        assert found(limits, names) == [None if name[0] == "b" else name[0] for name in names]
    assert asked == ["ab", "b", "c"]


def test_equal_sayings_have_one_number() -> None:
    """Equal, not only the same object."""
    limits = LearntLimits(lambda name: (name[0], 1.0))
    assert limits.of(pa.array(["ab", "ac", "b"])).tolist() == [0, 0, 1]
    assert limits.kinds == [("a", 1.0), ("b", 1.0)]


def test_a_column_has_what_was_learnt_since() -> None:
    """A field that was asked for before a kind was known."""
    limits = LearntLimits(said_of)
    assert limits.column("real", 0.0).tolist() == [0.0]
    limits.of(pa.array(["aa"]))
    assert limits.column("real", 0.0).tolist() == [2.0, 0.0]


def colliding(doublings: int) -> list[str]:
    """Names of one hash, begun as the world knows: of two words each that lead from one state to another."""
    letters = np.frombuffer(ascii_lowercase.encode(), np.uint8).astype(np.uint64)
    words = np.random.default_rng(7).choice(letters, (400_000, 8))
    names, state = [""], SEED
    for _ in range(doublings):
        states = np.full(len(words), state, np.uint64)
        for place in range(8):
            states = ((states ^ words[:, place]) * np.uint64(16777619)) & np.uint64(0xFFFFFFFF)
        order = np.argsort(states, kind="stable")
        at = int(np.flatnonzero(np.diff(states[order]) == 0)[0])
        state = int(states[order[at]])
        pair = [bytes(words[order[at + k]].astype(np.uint8)).decode() for k in (0, 1)]
        names = [name + word for name in names for word in pair]
    return names


def test_names_that_are_chosen_to_collide_do_not() -> None:
    """Clients choose their names; each of 1,000 was looked for among all of them."""
    names = colliding(10)
    assert len(set(names)) == 1024
    free = np.flatnonzero(index_of(pa.array(names)).slots < 0)
    assert np.diff(free).max() < 100
