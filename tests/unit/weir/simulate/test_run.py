"""Runs and their parts: the broker, the law as it is run, counts by second, and what must hold of all."""

from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries

from streaming.laws.concurrency.algorithms import STATE
from streaming.laws.concurrency.law import start, take
from streaming.laws.concurrency.settings import LimitSettings
from weir.simulate.draws import Draws
from weir.simulate.figures import Contender, contenders
from weir.simulate.run import Broker, Limiter, Tally, simulate
from weir.simulate.scenario import DEMAND, EQUAL, NS, Scenario

SHORT: dict[str, Any] = {
    "seconds": 12, "slow_at": 4, "slow_for": 4, "service_rate": 200.0, "arrival_rate": 160.0,
}  # fmt: skip
each_contender = pytest.mark.parametrize(
    "tried", list(contenders()), ids=lambda tried: f"{tried.settings.algorithm}-{tried.windowed}"
)
TEN_AT_ONCE = LimitSettings.of({"algorithm": "fixed", "fixed": {"limit": 10}})


worlds = st.builds(
    lambda **given: Scenario(**SHORT | given), seed=st.integers(0, 2**63 - 1), servers=st.integers(1, 20),
    arrival_rate=st.floats(1, 600), clients=st.none() | st.integers(1, 60),
    slow_factor=st.sampled_from([1, 10, 1e6]), proxies=st.integers(1, 5),
    division=st.sampled_from([EQUAL, DEMAND]), decision_ms=st.sampled_from([0, 300]),
    round_s=st.integers(1, 3), waiting=st.sampled_from([0, 1, 30]), wait_ms=st.sampled_from([1, 500]),
)  # fmt: skip


@tries(40)
@given(worlds, st.sampled_from(list(contenders())))
def test_nothing_is_lost(world: Scenario, tried: Contender) -> None:
    """Arrivals are completed, rejected, in flight or waiting, in whatever world."""
    outcome = simulate(world, tried.settings)
    ended = sum(second.completed + second.rejected for second in outcome.seconds)
    arrived = sum(second.arrived for second in outcome.seconds)
    assert arrived == ended + outcome.inflight + outcome.waiting
    assert 0 <= outcome.waiting <= world.waiting * world.proxies


@each_contender
def test_a_lone_proxy_is_never_above_its_limit(tried: Contender) -> None:
    """No request is sent on that would make more than the limit, slow or not."""
    outcome = simulate(Scenario(**SHORT), tried.settings)
    assert outcome.most_above <= 0
    assert sum(second.rejected for second in outcome.seconds) > 0


@pytest.mark.parametrize(("proxies", "above"), [(2, 0), (4, 0), (10, 0), (16, 6)])
def test_several_proxies_keep_the_limit_together(proxies: int, above: int) -> None:
    """In equal parts: but for those whose part is less than one request."""
    world = Scenario(**SHORT | {"proxies": proxies, "arrival_rate": 600.0})
    assert simulate(world, TEN_AT_ONCE).most_above <= above


def test_parts_by_demand_exceed_the_limit_by_what_a_round_moves_at_most() -> None:
    """Who loses a part has requests of it in flight still, while the other has it already."""
    world = Scenario(**SHORT | {"proxies": 2, "division": DEMAND, "first_part": 0.95, "round_s": 1})
    equal = Scenario(**SHORT | {"proxies": 2, "first_part": 0.95})
    outcome = simulate(world, TEN_AT_ONCE)
    assert outcome.most_above <= 5
    rejected = [
        sum(second.rejected for second in run.seconds[:4]) for run in (outcome, simulate(equal, TEN_AT_ONCE))
    ]
    assert rejected[0] < rejected[1]


@pytest.mark.parametrize("given", [{}, {"clients": 30}, {"waiting": 20}, {"proxies": 3}], ids=str)
def test_littles_law(given: dict[str, Any]) -> None:
    """In flight on average is throughput x time at the broker, but for those under way at the end."""
    outcome = simulate(Scenario(**SHORT | given | {"slow_for": 0, "seconds": 30}), TEN_AT_ONCE)
    inflight = sum(second.inflight_ns for second in outcome.seconds) / NS / 30
    rtts = [rtt for second in outcome.seconds for rtt in second.rtts_ns]
    assert inflight == pytest.approx(len(rtts) / 30 * fmean(rtts) / NS, rel=0.01)


def test_every_algorithm_meets_the_same_requests() -> None:
    """An open system's arrivals do not hang on what is answered."""
    runs = [simulate(Scenario(**SHORT), tried.settings) for tried in contenders()]
    assert len({tuple(second.arrived for second in run.seconds) for run in runs}) == 1


def test_a_limit_that_is_heard_of_late_lets_more_in() -> None:
    """The broker has what the old limit allowed for as long."""
    falling = LimitSettings.of({"algorithm": "aimd", "useWindowed": False})
    at_once, late = (simulate(Scenario(**SHORT | {"decision_ms": age}), falling) for age in (0, 1_000))
    worst = [max(second.inflight_ns for second in run.seconds) for run in (at_once, late)]
    assert worst[0] < worst[1]


def test_those_that_wait_are_rejected_when_their_time_is_up() -> None:
    """None is answered later than its wait and its time at the broker; room to wait rejects fewer."""
    world = Scenario(**SHORT | {"waiting": 1_000, "wait_ms": 200})
    for second in simulate(world, TEN_AT_ONCE).seconds:
        for latency_ns, rtt_ns in zip(second.latencies_ns, second.rtts_ns, strict=True):
            assert latency_ns - rtt_ns <= 200 * 10**6
    calm = [
        sum(
            second.rejected
            for second in simulate(Scenario(**SHORT | {"waiting": places}), TEN_AT_ONCE).seconds[:4]
        )
        for places in (0, 50)
    ]
    assert calm[1] < calm[0]


def test_clients_of_a_closed_system_are_never_more_than_they_are() -> None:
    """Each has one request at a time, rejected ones come back after the time that was set."""
    world = Scenario(**SHORT | {"clients": 5, "slow_for": 0})
    outcome = simulate(world, TEN_AT_ONCE)
    assert outcome.inflight <= 5 and all(second.inflight_ns <= 5 * NS for second in outcome.seconds)
    crowd = simulate(Scenario(**SHORT | {"clients": 50, "retry_ms": 500, "slow_for": 0}), TEN_AT_ONCE)
    assert max(second.rejected for second in crowd.seconds[1:]) <= 2 * 50


def test_requests_are_served_in_order_by_as_many_servers_as_there_are() -> None:
    """One server has one request at a time, so what comes at once is answered one after the other."""
    broker = Broker(Scenario(servers=1, service_rate=100))
    done = [broker.send(0, number) for number in range(200)]
    assert done == sorted(done) and len(set(done)) == 200
    assert abs(done[-1] / 200 / (NS / 100) - 1) < 0.1


def test_alone_a_request_takes_its_own_work() -> None:
    """Half of the mean at least, and the mean on average; the same for each algorithm."""
    first, second = Broker(Scenario()), Broker(Scenario())
    alone = [first.send(number * NS // 100, number) - number * NS // 100 for number in range(2_000)]
    mean_ns = 8 / 500 * NS
    assert min(alone) >= mean_ns / 2 and abs(fmean(alone) / mean_ns - 1) < 0.05
    assert [second.send(number * NS // 100, number) - number * NS // 100 for number in range(50)] == alone[
        :50
    ]


@each_contender
def test_mappings_and_records_are_the_same_to_the_law(tried: Contender) -> None:
    """After each of 600 samples, fast and slow ones, the limit is the one of the law's own records."""
    settings, state, draws = tried.settings, np.zeros(1, dtype=STATE), Draws(3, 0)
    start(state[0], settings.row[0])
    limiter = Limiter(settings)
    assert limiter.limit == int(state[0]["estimate"])
    for number in range(600):
        rtt_ns = 1 + round(draws.exponential(number) * (10**7 if number < 300 else 3 * 10**8))
        inflight = 1 + int(draws.uniform(10_000 + number) * 40)
        began_ns = 10**12 + number * 50_000_000
        before = limiter.limit
        changed = limiter.take(began_ns, rtt_ns, inflight)
        take(state[0], settings.row[0], began_ns, rtt_ns, inflight, False)
        assert limiter.limit == int(state[0]["estimate"])
        assert changed == (limiter.limit != before)


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
