"""What befalls which part follows from the seed (tests/soak)."""

from itertools import pairwise

import pytest
from soak_schedule import HELD, HELD_S, QUIET_S, TARGETS, schedule


def test_a_seed_says_all() -> None:
    """The same seed gives the same faults, another one others, and a longer run begins as a shorter one."""
    short, long = schedule(7, 600), schedule(7, 3_600)

    assert schedule(7, 600) == short == long[: len(short)]
    assert schedule(8, 600) != short


@pytest.mark.parametrize("seed", range(20))
def test_an_hour_has_its_hundred_kills(seed: int) -> None:
    """Of each part some, and each other fault; no two at a time, the last one well before the end."""
    faults = schedule(seed, 3_600)

    assert sum(fault.what == "kill" for fault in faults) >= 100
    assert {(fault.what, fault.target) for fault in faults} == {
        (what, target) for what, targets in TARGETS.items() for target in targets
    }
    assert all(one.at_s + one.for_s < next_one.at_s for one, next_one in pairwise(faults))
    assert faults[-1].at_s + faults[-1].for_s <= 3_600 - QUIET_S
    assert all((HELD_S[0] <= one.for_s <= HELD_S[1]) == (one.what in HELD) for one in faults)


def test_what_cannot_be_done_is_left_out_alone() -> None:
    """All else stays as it was."""
    assert schedule(3, 1_200, ("readonly",)) == [
        fault for fault in schedule(3, 1_200) if fault.what != "readonly"
    ]


def test_a_run_too_short_has_none() -> None:
    """Nothing happens where nothing could be back."""
    assert schedule(1, QUIET_S) == schedule(1, 0) == []
