"""Counts by second."""

from weir.simulate.run import Tally
from weir.simulate.scenario import NS


def test_time_in_flight_is_spread_over_the_seconds() -> None:
    """Two requests from 0.5 s on: one second's worth in the first, two in each further one."""
    tally = Tally(3, 20)
    tally.advance(NS // 2)
    tally.inflight = 2
    tally.advance(3 * NS)
    assert [second.inflight_ns for second in tally.seconds] == [NS, 2 * NS, 2 * NS]


def test_the_limit_of_a_second_is_that_at_its_end() -> None:
    """A change counts from the second in which it happened."""
    tally = Tally(3, 20)
    assert tally.advance(NS + 1) is tally.seconds[1]
    tally.limit = 10
    tally.advance(3 * NS)
    assert [second.limit for second in tally.seconds] == [20, 10, 10]
