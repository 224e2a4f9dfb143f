"""Proxies that share a limit."""

import pytest

from weir.simulate.proxies import Proxy, divide, equal_parts
from weir.simulate.scenario import DEMAND, Scenario


@pytest.mark.parametrize(("limit", "proxies", "room"), [(20, 1, 20), (20, 3, 6), (3, 4, 1), (1, 8, 1)])
def test_a_part_is_rounded_down_and_at_least_one(limit: int, proxies: int, room: int) -> None:
    """With a limit below the number of proxies each still has one, or it could never want more."""
    each = equal_parts(Scenario(proxies=proxies))
    assert [proxy.room(limit) for proxy in each] == [room] * proxies
    assert sum(proxy.room(limit) for proxy in each) <= limit + proxies - 1


def test_a_sample_says_what_all_would_have_in_flight() -> None:
    """Three of a quarter are twelve of the whole."""
    assert Proxy(0.25, inflight=3).sample_inflight() == 12
    assert Proxy(1.0, inflight=3).sample_inflight() == 3


def test_equal_parts_stay() -> None:
    """Whatever is wanted."""
    proxies = [Proxy(0.5, wanted=9), Proxy(0.5)]
    divide(Scenario(proxies=2), 10, proxies)
    assert [proxy.part for proxy in proxies] == [0.5, 0.5]


def test_parts_by_demand_go_to_who_wants_more() -> None:
    """Half the way each round, all of the limit together, and nobody is left without."""
    scenario = Scenario(proxies=2, division=DEMAND)
    proxies = equal_parts(scenario)
    for _ in range(6):
        proxies[0].wanted, proxies[1].wanted = 40, 0
        divide(scenario, 20, proxies)
        assert sum(proxy.part for proxy in proxies) == pytest.approx(1)
    assert proxies[0].room(20) == 18 and proxies[1].room(20) == 1
    assert [proxy.wanted for proxy in proxies] == [0, 0]


def test_what_is_wanted_counts_those_that_were_not_let_in() -> None:
    """In flight, waiting, and the one that asks now."""
    proxy = Proxy(1.0, inflight=4, waits=2)
    proxy.want()
    proxy.inflight = 0
    proxy.want()
    assert proxy.wanted == 7
