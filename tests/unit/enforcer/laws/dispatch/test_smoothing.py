"""Rates from the first delivery on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enforcer.laws.dispatch.left import UNLIMITED
from enforcer.laws.dispatch.smoothing import Smoothing
from streaming.policy.dispatch_limits import Limit

NAMES = ("b", "t", "s")
TEN = [(2, NAMES, Limit((10, 0), 1_000))]
LONG = [(2, NAMES, Limit((10, 0), 5_000))]


def test_one_periods_rate_is_borrowed_and_then_paid_back() -> None:
    """After that it comes as it comes free, one by one; after a rest there is a whole one again."""
    smoothing = Smoothing(10)
    assert smoothing.left(TEN, 700) == UNLIMITED
    smoothing.charge(TEN, 4, 0, 700)
    assert smoothing.left(TEN, 700).msgs == 6
    smoothing.charge(TEN, 6, 0, 700)
    left = smoothing.left(TEN, 1_000)
    assert (left.msgs, left.wait_ms, left.level, left.dimension) == (0, 700, "subscription", "msgs")
    assert smoothing.left(TEN, 1_700).msgs == 1
    smoothing.charge(TEN, 1, 0, 1_700)
    assert smoothing.left(TEN, 1_750).wait_ms == 50
    assert smoothing.left(TEN, 3_000).msgs == 10


def test_who_looks_a_moment_late_gets_what_came_free_and_no_more() -> None:
    """One each 10 ms, to the beat of the rate: not two each 20, which hold one too many at either end."""
    smoothing, limiting = Smoothing(10), [(2, NAMES, Limit((100, 0), 1_000))]
    smoothing.charge(limiting, 100, 0, 0)
    for number in range(1, 200):
        now = 990 + 10 * number + number % 3
        assert smoothing.left(limiting, now).msgs == 1
        smoothing.charge(limiting, 1, 0, now)
        assert smoothing.left(limiting, now).msgs == 0


def test_who_uses_less_than_the_rate_is_never_held_back() -> None:
    """Six at once each second of ten."""
    smoothing = Smoothing(10)
    for second in range(20):
        now = 700 + 1_000 * second
        assert smoothing.left(TEN, now).msgs >= 6
        smoothing.charge(TEN, 6, 0, now)


def test_a_longer_period_brings_its_rate_at_once() -> None:
    """From the first delivery on, also if each one's is taken a little late; a debt is paid as by the law."""
    smoothing = Smoothing(10)
    for number in range(5):
        smoothing.charge(LONG, 10, 0, 700 + 5_000 * number + 3 * number)
    assert smoothing.left(LONG, 20_750).wait_ms == 4_950
    smoothing.charge(LONG, 21, 0, 25_700)
    assert smoothing.left(LONG, 30_700).wait_ms == 5_000
    assert smoothing.left(LONG, 35_700).msgs == 9
    smoothing.charge(LONG, 10, 0, 99_000)
    assert smoothing.left(LONG, 100_000).wait_ms == 4_000


def test_only_so_many_are_kept() -> None:
    """The one that was used longest ago has rested: the law's own counters still hold."""
    smoothing = Smoothing(2)
    for number in range(5):
        smoothing.charge([(0, (str(number),), Limit((10, 5), 1_000))], 1, 1, 0)
    assert len(smoothing) == 2
    assert smoothing.left([(0, ("0",), Limit((10, 5), 1_000))], 0) == UNLIMITED
    assert smoothing.left([(0, ("4",), Limit((10, 5), 1_000))], 0).bytes == 4


@pytest.mark.parametrize("limiting", [TEN, LONG])
@given(st.lists(st.tuples(st.integers(0, 900), st.integers(1, 40)), min_size=1, max_size=60))
def test_no_stretch_from_the_first_on_holds_more_than_it_should(
    limiting: list[tuple[int, tuple[str, ...], Limit]], tries: list[tuple[int, int]]
) -> None:
    """One period's rate, what came free since, and the one entry that passed the limit."""
    smoothing, now, total, rate = Smoothing(10), 700, 0, 10
    for pause, size in tries:
        now += pause
        left = smoothing.left(limiting, now)
        if left.msgs > 0:
            smoothing.charge(limiting, size, 0, now)
            total += size
            periods = (now - 700) / limiting[0][2].period_ms
            assert total < rate * (periods + 1) + size
        else:
            later = smoothing.left(limiting, now + left.wait_ms)
            assert later.msgs > 0
            # Looking at a later time has let it pass.
            now += left.wait_ms
