"""What befalls which part follows from the seed (tests/soak)."""

from itertools import pairwise

import pytest
from soak_schedule import (
    BEGIN_S,
    HELD,
    HELD_S,
    KILLS,
    LONG,
    LONG_FROM_S,
    QUIET_S,
    TARGETS,
    Fault,
    schedule,
    smaller,
)

EVERY = {(what, target) for what, targets in TARGETS.items() for target in targets} | set(LONG)


def long(faults: list[Fault]) -> list[Fault]:
    """Those that last as long as an alert needs."""
    return [one for one in faults if one.for_s == LONG.get((one.what, one.target))]


def test_a_seed_says_all() -> None:
    """The same seed gives the same faults, another one others, and a longer run begins as a shorter one."""
    short, longer = schedule(7, LONG_FROM_S), schedule(7, 3_600)

    assert schedule(7, LONG_FROM_S) == short == longer[: len(short)]
    assert schedule(8, LONG_FROM_S) != short


@pytest.mark.parametrize("seed", range(20))
def test_an_hour_has_its_hundred_kills(seed: int) -> None:
    """Of each part some, and each other fault; no two at a time, the last one well before the end."""
    faults = schedule(seed, 3_600)
    alone = [one for one in faults if not one.beside]

    assert sum(fault.what in KILLS for fault in faults) >= 100
    assert {(fault.what, fault.target) for fault in faults} == EVERY
    assert all(one.at_s + one.for_s < next_one.at_s for one, next_one in pairwise(alone))
    assert faults[0].at_s > BEGIN_S
    assert max(one.at_s + one.for_s for one in faults) <= 3_600 - QUIET_S
    short = [one for one in faults if one not in long(faults)]
    assert all((HELD_S[0] <= one.for_s <= HELD_S[1]) == (one.what in HELD) for one in short)


@pytest.mark.parametrize("seed", range(20))
def test_twenty_minutes_have_all_that_is_long(seed: int) -> None:
    """Once each, as long as its alert needs; a shorter run has what comes to a third of it."""
    for seconds in (LONG_FROM_S, 3_600):
        assert sorted((one.what, one.target) for one in long(schedule(seed, seconds))) == sorted(LONG)
    assert len(long(schedule(seed, 600))) in (1, 2)


def test_a_failing_run_is_made_smaller() -> None:
    """To those that it takes, if there is time; without it, or where all are needed, it stays as it is."""
    faults = schedule(3, 600)
    needed = [faults[3], faults[20]]

    def fails(some: list[Fault]) -> bool:
        return all(one in some for one in needed)

    assert smaller(faults, fails, lambda: False) == needed
    assert smaller(faults, fails, lambda: True) == faults
    assert smaller(needed, fails, lambda: False) == needed
    assert smaller([], fails, lambda: False) == []


def test_a_run_too_short_has_none() -> None:
    """Nothing happens where nothing could be back."""
    assert schedule(1, QUIET_S) == schedule(1, 0) == []
