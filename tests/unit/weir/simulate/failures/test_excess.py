"""How far a limit was exceeded, by what passed."""

from streaming.laws.dispatch.law import rolled
from weir.simulate.failures.excess import Excess, Found, furthest_behind


def test_an_even_limit() -> None:
    """2 a second and 10 at once: 16 at once are 6 too many, and paid down to the largest item after 1 s."""
    found = Excess()
    for _ in range(4):
        found.even(1_000, 4, rate=2, burst=10)
    assert (found.over, found.allowed, found.largest, found.passed) == (6.0, 10.0, 4, 16)
    found.even(9_000, 1, rate=2, burst=10)
    # 6 too many, of which the law itself lets an item of 4 pass: 2 at 2 a second.
    assert (found.over, found.longest_ms) == (6.0, 1_000)
    found.end(60_000)
    assert found.curve == {1: 16, 9: 17}


def test_what_the_limit_allows_meanwhile() -> None:
    """The stretch begins when all that passed before was paid off."""
    found = Excess()
    found.even(0, 1, rate=1, burst=5)
    found.even(10_000, 8, rate=1, burst=5)
    found.even(12_000, 8, rate=1, burst=5)
    # 16 in two seconds, of which 5 + 2 are allowed.
    assert (found.over, found.allowed) == (9.0, 7.0)


def test_what_a_former_limit_let_pass_is_not_held_against_a_lower_one() -> None:
    found = Excess()
    found.even(1_000, 900, rate=50, burst=3_000)
    found.even(2_000, 5, rate=1, burst=5)
    # A second at 1 was paid off.
    assert found.over == 4.0
    dispatched = Excess()
    dispatched.by_period(1_000, 50, rate=50, period_ms=1_000)
    dispatched.by_period(1_100, 2, rate=5, period_ms=1_000)
    assert dispatched.over == 2


def test_a_limit_for_each_period_is_the_laws_own_counter() -> None:
    """Unused quota is not carried on, debts are."""
    found, acquired, worst = Excess(), 0, 0
    passed = [(0, 60), (900, 60), (1_000, 60), (1_500, 60), (7_000, 60), (7_001, 90)]
    at = 0
    for now, units in passed:
        acquired, at = rolled(acquired, 100, 1_000, at, now) + units, now
        worst = max(worst, acquired - 100)
        found.by_period(now, units, rate=100, period_ms=1_000)
    assert found.over == worst == 50
    assert found.by_period(7_002, 200, rate=100, period_ms=1_000) is None
    # 350 in one period: 200 may be the last item, 50 more are gone with the next period.
    found.end(60_000)
    assert (found.over, found.longest_ms) == (250, 998)


def test_what_is_in_use() -> None:
    """Beyond a limit from when more is in use than it says to when less is."""
    found = Excess()
    for now, used in ((1_000, 9), (2_000, 12), (3_000, 15), (5_000, 10)):
        found.stand(now, used, 10)
    assert (found.over, found.allowed, found.longest_ms) == (5, 10, 3_000)


def test_what_passed_before_does_not_count() -> None:
    """But is owed all the same."""
    found = Found(since=5_000).of("a")
    found.even(4_999, 30, rate=1, burst=10)
    assert found.over == 0
    found.even(5_000, 1, rate=1, burst=10)
    assert found.over == 20.999


def test_who_is_behind() -> None:
    """The most at any time, by what had passed until then."""
    assert furthest_behind({}, {}) == 0
    assert furthest_behind({5: 10.0}, {4: 10.0}) == 10
    assert furthest_behind({1: 20.0}, {4: 10.0}) == 0
