"""Scenarios: phases, and how long work takes; what goes together: tests/unit/weir/test_usage.py."""

from weir.simulate.scenario import NS, Scenario


def test_phases_without_length_are_left_out() -> None:
    """Nothing is slow, it is slow from the start, or to the end."""
    assert Scenario().phases() == {"calm": (0, 30), "slow": (30, 60), "recovery": (60, 90)}
    assert Scenario(slow_for=0).phases() == Scenario(slow_factor=1).phases() == {"calm": (0, 90)}
    assert Scenario(slow_at=0, slow_for=90).phases() == {"slow": (0, 90)}


def test_work_across_all_of_the_slow_time() -> None:
    """A broker that all but stands still goes on afterwards where it was."""
    world = Scenario(slow_at=1, slow_for=2, slow_factor=1e6)
    assert world.done_at(0, 2 * NS) == 4 * NS - 2_000
