"""Scenarios: what goes together, phases, and how long work takes."""

import pytest

from weir.simulate.scenario import NS, BadScenario, Scenario


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"slow_at": 80, "slow_for": 30}, "within the simulation"),
        ({"first_part": 0.5}, "--proxies of at least 2"),
        ({"arrival_rate": 1e6}, "2000000 at most"),
        ({"clients": 100_000, "retry_ms": 1}, "2000000 at most"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, float], told: str) -> None:
    """With what was expected."""
    with pytest.raises(BadScenario, match=told):
        Scenario(**given)


def test_phases_without_length_are_left_out() -> None:
    """Nothing is slow, it is slow from the start, or to the end."""
    assert Scenario().phases() == {"calm": (0, 30), "slow": (30, 60), "recovery": (60, 90)}
    assert Scenario(slow_for=0).phases() == Scenario(slow_factor=1).phases() == {"calm": (0, 90)}
    assert Scenario(slow_at=0, slow_for=90).phases() == {"slow": (0, 90)}


def test_work_across_all_of_the_slow_time() -> None:
    """A broker that all but stands still goes on afterwards where it was."""
    world = Scenario(slow_at=1, slow_for=2, slow_factor=1e6)
    assert world.done_at(0, 2 * NS) == 4 * NS - 2_000
