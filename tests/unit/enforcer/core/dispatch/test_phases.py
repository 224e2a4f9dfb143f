"""Periods that begin with the first delivery."""

from enforcer.core.dispatch.left import UNLIMITED
from enforcer.core.dispatch.phases import Phases
from streaming.policy.dispatch_limits import Limit

NAMES = ("b", "t", "s")
TEN = [(2, NAMES, Limit((10, 0), 1_000))]


def test_each_stretch_of_a_period_brings_one_periods_rate() -> None:
    """Wherever in a period of the law it begins; a debt is paid as there."""
    phases = Phases(10)
    assert phases.left(TEN, 700) == UNLIMITED
    phases.charge(TEN, 10, 0, 700)
    left = phases.left(TEN, 1_000)
    assert (left.msgs, left.wait_ms, left.level, left.dimension) == (0, 700, "subscription", "msgs")
    assert phases.left(TEN, 1_700).msgs == 10
    phases.charge(TEN, 31, 0, 1_700)
    assert phases.left(TEN, 2_700).wait_ms == 2_000
    assert phases.left(TEN, 4_700).msgs == 9


def test_it_begins_anew_after_a_rest_and_does_not_drift() -> None:
    """Who takes its rate a little late each time still waits for the periods that have begun."""
    phases = Phases(10)
    for second in range(5):
        phases.charge(TEN, 10, 0, 700 + 1_000 * second + 3 * second)
    assert phases.left(TEN, 4_750).wait_ms == 950
    phases.charge(TEN, 10, 0, 9_000)
    assert phases.left(TEN, 9_700).wait_ms == 300


def test_only_so_many_are_kept() -> None:
    """The one that was used longest ago begins anew: the law's own counters still hold."""
    phases = Phases(2)
    for number in range(5):
        phases.charge([(0, (str(number),), Limit((10, 5), 1_000))], 1, 1, 0)
    assert len(phases) == 2
    assert phases.left([(0, ("0",), Limit((10, 5), 1_000))], 0) == UNLIMITED
    assert phases.left([(0, ("4",), Limit((10, 5), 1_000))], 0).bytes == 4
