"""Shares at work: proxies, clients and the law in simulated time (docs/contract.md 3.2)."""

from typing import Any

import pytest
from meter_kit import POLICIES, World

from enforcer.core.account import State

DEMANDS = {"small": 50.0, "one": 500.0, "two": 500.0}


def world(dimension: str = "publishRateInMsgs", limit: float = 300.0, **client: Any) -> World:
    """Three proxies, 50 : 500 : 500."""
    made = World({**POLICIES, "resourcegroups.rg1": {dimension: limit}})
    for name, demand in DEMANDS.items():
        made.start(name, demand, **client)
    return made


@pytest.mark.parametrize(
    ("dimension", "limit", "client"),
    [
        pytest.param("publishRateInMsgs", 300.0, {"lump": 1}, marks=pytest.mark.soak),
        ("publishRateInMsgs", 300.0, {"lump": 10}),
        pytest.param("publishRateInMsgs", 300.0, {"lump": 50}, marks=pytest.mark.soak),
        pytest.param("publishRateInBytes", 30_000.0, {"lump": 10, "in_bytes": True}, marks=pytest.mark.soak),
        pytest.param("dispatchRateInMsgs", 300.0, {"lump": 10, "dispatch": True}, marks=pytest.mark.soak),
        ("dispatchRateInBytes", 30_000.0, {"lump": 10, "dispatch": True, "in_bytes": True}),
    ],
)
def test_the_limit_is_used_and_shared_fairly(dimension: str, limit: float, client: dict[str, Any]) -> None:
    """After three rounds: the total within 5 %, the hungry two within 10 %, the small one unhindered."""
    made = world(dimension, limit, **client)
    made.run(33)
    assert made.rate(3_000, 33_000) == pytest.approx(limit, rel=0.05)
    one, two = (made.clients[name].rate(3_000, 33_000) for name in ("one", "two"))
    assert one == pytest.approx(two, rel=0.1)
    alone = World({})
    # It would have nothing to say.
    alone.job_up = False
    alone.start("small", DEMANDS["small"], **client)
    alone.run(33)
    # Later, since in the beginning it works off what the first rounds kept back.
    assert made.clients["small"].rate(13_000, 33_000) == pytest.approx(alone.rate(13_000, 33_000), rel=0.02)
    assert made.peak(1_000, 33_000) <= 1.1 * limit


@pytest.fixture
def made() -> World:
    """Proxies that have run for 15 s."""
    made = world()
    made.run(15)
    return made


def test_a_dead_proxy_leaves_its_share(made: World) -> None:
    """Within the five rounds of the expiry and those that the step takes."""
    made.kill("one")
    made.run(13)
    assert made.rate(15_500, 20_000) < 200
    assert made.rate(24_000, 28_000) == pytest.approx(300, rel=0.05)


def test_a_new_proxy_gets_its_share(made: World) -> None:
    """A share after three rounds, the fair one soon after; the total stays within the limit and 10 %."""
    made.start("new", 500)
    made.run(3)
    account = made.desks["new"].meter.accounts["rg1"]
    assert account.state is State.ACTIVE
    made.run(9)
    assert made.clients["new"].rate(22_000, 27_000) == pytest.approx(250 / 3, rel=0.15)
    assert made.peak(2_000, 27_000) <= 330


@pytest.mark.parametrize("limit", [150, pytest.param(600, marks=pytest.mark.soak)])
def test_a_changed_limit_is_met(made: World, limit: int) -> None:
    """Within two rounds nobody may use more than the new one allows, or all of it may be used."""
    made.set("resourcegroups.rg1", {"publishRateInMsgs": limit})
    made.run(2.5)
    shares = [desk.meter.accounts["rg1"].share[0] or 0.0 for desk in made.desks.values()]
    assert sum(shares) == pytest.approx(limit, rel=0.001)
    made.run(8)
    assert made.rate(20_000, 25_000) == pytest.approx(limit, rel=0.07)


def test_without_the_job_half_of_the_shares_is_used(made: World) -> None:
    """After their life time, as expired_share says by default; they come back with the job."""
    made.job_up = False
    made.run(20)
    states = {desk.meter.accounts["rg1"].state for desk in made.desks.values()}
    assert states == {State.EXPIRED}
    assert made.rate(25_000, 35_000) == pytest.approx(150, rel=0.05)
    made.job_up = True
    made.run(10)
    assert made.rate(40_000, 45_000) == pytest.approx(300, rel=0.1)


def test_idle_proxies_are_told_and_come_back() -> None:
    """A proxy without traffic loses its share to the others, and gets one again when it has some."""
    made = world()
    made.run(12)
    made.clients["two"].demand = 0.0
    made.clients["two"]._backlog = 0.0
    made.run(6)
    assert made.desks["two"].meter.accounts["rg1"].state is State.JOINING
    assert made.rate(16_000, 18_000) == pytest.approx(300, rel=0.05)
    made.clients["two"].demand = 500.0
    made.run(8)
    assert made.clients["two"].rate(23_000, 26_000) == pytest.approx(125, rel=0.2)
