"""Proxies that share a limit."""

import pytest

from weir.simulate.proxies import Proxy, divide, equal_parts
from weir.simulate.scenario import DEMAND, NS, Scenario


@pytest.mark.parametrize(
    ("limit", "proxies", "room"), [(20, 1, 20), (20, 3, 6), (3, 4, 1), (1, 8, 1), (98, 49, 2)]
)
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
    proxies = [Proxy(0.5, peak=9, full_ns=NS), Proxy(0.5)]
    divide(Scenario(proxies=2), 10, proxies)
    assert [proxy.part for proxy in proxies] == [0.5, 0.5]


def test_parts_by_demand_go_to_who_wants_more() -> None:
    """Half the way each round, all of the limit together, and nobody is left without."""
    scenario = Scenario(proxies=2, division=DEMAND)
    proxies = equal_parts(scenario)
    for _ in range(6):
        proxies[0].peak, proxies[0].full_ns = proxies[0].room(20), scenario.round_s * NS // 10
        divide(scenario, 20, proxies)
        assert sum(proxy.part for proxy in proxies) == pytest.approx(1)
    assert proxies[0].room(20) == 18 and proxies[1].room(20) == 1
    assert [(proxy.peak, proxy.full_ns) for proxy in proxies] == [(0, 0), (0, 0)]


def test_the_time_without_room_adds_up() -> None:
    """From the request that takes the last place to the answer that frees one, or until the limit rises."""
    proxy = Proxy(0.5)
    proxy.inflight = 2
    proxy.note(10, 4)
    proxy.inflight = 1
    proxy.note(13, 4)
    proxy.note(20, 2)
    proxy.note(24, 4)
    assert (proxy.peak, proxy.full_ns, proxy.full_since_ns) == (2, 7, -1)
