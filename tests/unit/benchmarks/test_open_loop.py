"""What the open loop makes of the delays of a window."""

import pytest

from benchmarks.open_loop import Windows, by_chance, in_turn, is_borne


def test_a_window_begins_after_its_first_third() -> None:
    """What came while connections were new is not counted."""
    windows = Windows()
    windows.add([900.0, 900.0, 1.0, 2.0, 3.0, 6.0])
    assert (windows.means, windows.p99s, windows.delays) == ([3.0], [6.0], [1.0, 2.0, 3.0, 6.0])


@pytest.mark.parametrize(
    ("some", "others", "chance"),
    [
        ([6, 7, 8, 9, 10], [1, 2, 3, 4, 5], 2 / 252),  # the furthest apart of all ways to draw five of ten
        ([1, 2], [1, 2], 1.0),
        ([3, 3], [3, 3], 1.0),
        ([1, 4], [2, 3], 1.0),
    ],
)
def test_how_often_chance_has_windows_as_far_apart(
    some: list[float], others: list[float], chance: float
) -> None:
    """Mann and Whitney's exact test."""
    assert by_chance(some, others) == pytest.approx(chance)
    assert by_chance(others, some) == pytest.approx(chance)


def test_the_order_of_sides_is_drawn() -> None:
    """Each has its turn once a round; the same at every call, not the same in every round."""
    rounds = [in_turn("abcd", number) for number in range(5)]
    assert rounds == [in_turn("abcd", number) for number in range(5)]
    assert all(sorted(one) == list("abcd") for one in rounds) and len({one[0] for one in rounds}) > 1


@pytest.mark.parametrize(
    ("delays", "borne"),
    [
        ([5.0] * 30, True),
        ([300.0] * 30, True),
        ([501.0] * 30, False),
        ([10.0 * at for at in range(30)], False),  # a seventh beyond what is done: later and later
    ],
)
def test_a_rate_is_borne_that_does_not_fall_behind(delays: list[float], borne: bool) -> None:
    """Within the bound, and not on the way out of it."""
    assert is_borne(delays) is borne
