"""Several proxies before one broker, simulated over the real code: what they exceed, and what they reach."""

import heapq
from collections import defaultdict
from itertools import count
from math import inf
from random import Random

import pytest
from dispatch_kit import T0, Job, Proxy, ten_a_second
from each_kit import each
from event_kit import Event
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries

from enforcer.laws.dispatch.decisions import CounterStatement
from enforcer.laws.dispatch.parts import WHOLE, Parts
from streaming.policy.timeline import PolicyTimeline

RATE = 100
LAG_MS = 300
PERIODS = 6
STEP_MS = 20


class Several:
    """Proxies that deliver whenever they may, and a job whose decisions take a while.

    Args:
        proxies: P.
        hungry: so many of them have something to deliver, as much as they may.
        entry: messages of each entry.
        lag_ms: from a delivery to when its decision is read.
        skewed: different at each proxy.
    """

    def __init__(self, proxies: int, hungry: int, entry: int, lag_ms: int, *, skewed: bool = True) -> None:
        timeline = PolicyTimeline(ten_a_second(dispatchThrottlingRatePerSubscriptionInMsg=RATE))
        self.proxies = [Proxy(f"p{number}", timeline) for number in range(proxies)]
        for proxy in self.proxies:
            proxy.table.set_proxies(proxies)
        self.job, self.entry, self.lag_ms, self.skewed = Job(timeline), entry, lag_ms, skewed
        self.wants = defaultdict(int, {number: RATE for number in range(hungry)})
        """What each has to deliver in a period."""
        self.delivered: list[list[int]] = []
        """In each period, of each proxy."""
        self.on_their_way: list[tuple[int, int, Proxy, CounterStatement]] = []
        self.order = count()

    def run(self, periods: int = PERIODS, *, away: bool = False) -> list[list[int]]:
        """Some periods of a second, and what was delivered in them; `away`: nothing is decided meanwhile."""
        for _ in range(periods):
            self.delivered.append([0] * len(self.proxies))
            since = T0 + 1000 * (len(self.delivered) - 1)
            for now in range(since, since + 1000, STEP_MS):
                self.step(now, away)
        return self.delivered[-periods:]

    def step(self, now: int, away: bool) -> None:
        """What is read at a time, and delivered; decided together: none is read before the next step."""
        while self.on_their_way and self.on_their_way[0][0] <= now:
            _, _, proxy, said = heapq.heappop(self.on_their_way)
            proxy.read(said)
        done, events = self.delivered[-1], list[Event]()
        for number, proxy in enumerate(self.proxies):
            while done[number] < self.wants[number] and proxy.left(now).wait_ms == 0:
                event = proxy.deliver(now, self.entry)
                assert event is not None
                done[number] += self.entry
                events.append(event)
        for said in self.job.decide_all(events):
            for place, reader in enumerate(() if away else self.proxies):
                arrives = now + (self.lag_ms * (place + 2) // 2 if self.skewed else self.lag_ms)
                heapq.heappush(self.on_their_way, (arrives, next(self.order), reader, said))

    @property
    def totals(self) -> list[int]:
        """What all delivered in each period."""
        return [sum(each) for each in self.delivered]

    def worst(self) -> int:
        """The most that any number of periods in a row had above their rates."""
        worst = carried = 0
        for total in self.totals:
            carried = max(0, carried) + total - RATE
            worst = max(worst, carried)
        return worst


@each("entry", [7, 30])
@each("lag_ms", [0, 130, 700])
@each("proxies", [1, 2, 3, 8])
def test_together_they_exceed_by_an_entry_each_and_an_unspent_part(
    proxies: int, lag_ms: int, entry: int
) -> None:
    """And what all want is delivered in full: nothing of the rate is lost."""
    world = Several(proxies, proxies, entry, lag_ms)
    world.run()
    parts = RATE * (proxies - 1) // proxies if lag_ms and proxies > 1 else 0
    assert world.worst() <= proxies * entry + parts
    assert sum(world.totals) >= 0.98 * RATE * PERIODS


@pytest.mark.parametrize("proxies", [2, 3, 8])
def test_one_that_is_hungry_among_several(proxies: int) -> None:
    """At first it has an equal part; once decisions tell that nobody else delivers, nearly all."""
    world = Several(proxies, 1, 1, LAG_MS, skewed=False)
    first, *_, last = world.run()
    assert RATE / proxies < first[0] < RATE
    assert last[0] >= 0.95 * RATE and sum(world.totals[2:]) >= 0.98 * RATE * (PERIODS - 2)
    assert world.worst() <= 1
    slow = Several(proxies, 1, 1, 10_000)
    assert {RATE // proxies, -(-RATE // proxies)} >= {each[0] for each in slow.run()}


def test_parts_follow_who_delivers() -> None:
    """Eight proxies: one reads, another joins it, and leaves again; never together above the rate."""
    world = Several(8, 1, 1, LAG_MS, skewed=False)
    world.run(4)
    world.wants[5] = RATE
    joined = world.run(6)
    assert joined[0][5] >= 1 and all(RATE * 0.45 <= each[5] <= RATE * 0.55 for each in joined[3:])
    world.wants[0] = 0
    alone = world.run(4)
    assert all(each[5] >= 0.95 * RATE for each in alone[2:])
    assert sum(world.totals) >= 0.95 * RATE * len(world.delivered)
    assert world.worst() <= 0.05 * RATE


def test_who_reads_little_keeps_little() -> None:
    """Seven need one message each, or three now and then; the hungry one has the rest of the rate."""
    world = Several(8, 8, 1, LAG_MS, skewed=False)
    for number in range(1, 8):
        world.wants[number] = 1
    world.run(3)
    assert all(each[0] >= 0.93 * RATE - 7 and each[1:] == [1] * 7 for each in world.run(4))
    for period in range(6):
        for number in range(1, 8):
            world.wants[number] = 3 if period % 2 else 0
        world.run(1)
    assert sum(each[0] + sum(each[1:]) for each in world.delivered[-6:]) >= 0.9 * RATE * 6
    assert world.worst() <= 0.05 * RATE


@pytest.mark.parametrize("entry", [pytest.param(1, marks=pytest.mark.soak), 30])
def test_parts_that_move_stay_within_the_rate(entry: int) -> None:
    """Whoever is hungry, for however long, and decisions late by up to 1.35 s at some and less at others."""
    world, seeded = Several(8, 0, entry, LAG_MS), Random(25)
    for _ in range(30):
        for number in range(8):
            world.wants[number] = seeded.choice([0, 0, 1, RATE])
        world.run(seeded.randint(1, 4))
    # Over time: what was too much is paid by the next periods.
    assert sum(world.totals) <= 1.05 * RATE * len(world.delivered)
    assert world.worst() <= 8 * entry + RATE


@pytest.mark.parametrize("proxies", [1, 2, 3, 8])
def test_the_job_is_away(proxies: int) -> None:
    """Parts add up to the rate: together they exceed it by an entry each at most, and use all of it."""
    world = Several(proxies, proxies, 6, 0)
    world.run(away=True)
    assert world.worst() <= proxies * 6
    assert sum(world.totals) >= 0.98 * RATE * PERIODS


def test_parts_stay_while_the_job_is_away() -> None:
    """Who had nearly all of the rate keeps it; who comes meanwhile has what is kept for newcomers."""
    world = Several(8, 1, 1, LAG_MS, skewed=False)
    world.run(4)
    world.wants[3] = RATE
    away = world.run(5, away=True)
    assert all(0.95 * RATE <= sum(each) <= RATE + 1 for each in away[1:])
    assert 1 <= sum(each[3] for each in away) <= 2 and all(each[0] >= 0.95 * RATE for each in away)
    back = world.run(4)
    assert 0.45 * RATE <= back[-1][3] <= 0.55 * RATE


def test_who_starts_knows_the_parts_of_the_others() -> None:
    """It has read back who delivered, before it knew of them: until they know of it it has what is kept."""
    world = Several(2, 2, 1, LAG_MS, skewed=False)
    comes = Proxy("p9", world.proxies[0].timeline)
    world.proxies.append(comes)
    world.run(4)
    for proxy in world.proxies:
        proxy.table.set_proxies(3)
    world.wants[2] = RATE
    world.run(4)
    assert world.delivered[4][2] <= 0.05 * RATE and world.delivered[-1][2] >= 0.3 * RATE
    assert world.worst() <= 0.05 * RATE


def test_a_proxy_that_comes_makes_the_parts_smaller() -> None:
    """Its own deliveries since the statement count in full against the smaller part."""
    world = Several(1, 1, 1, 0)
    (proxy,) = world.proxies
    for _ in range(60):
        proxy.deliver(T0, 1)
    assert proxy.left(T0).msgs == 40
    proxy.table.set_proxies(2)
    assert proxy.left(T0) == (0, inf, 1_000, "subscription", "msgs")
    # Two of its parts are 100, and 60 twice over are 120.
    assert proxy.left(T0 + 1_000).msgs == 40
    proxy.table.set_proxies(1)
    assert proxy.left(T0 + 1_000).msgs == 100


NAMES = [f"p{number}" for number in range(8)]
DELIVERIES = st.tuples(
    st.sampled_from(NAMES), st.integers(0, 3), st.tuples(*[st.sampled_from([0, 1, 7, 90, 10**12])] * 2)
)


@tries(200)
@given(st.lists(DELIVERIES, max_size=40), st.integers(8, 12))
def test_they_add_up_to_the_whole_at_most(
    deliveries: list[tuple[str, int, tuple[int, int]]], proxies: int
) -> None:
    """Those of all who are alive; and each has some, so nobody waits for ever."""
    parts, period = Parts(), 5
    for name, later, units in deliveries:
        period += later
        parts.add(name, period, units, (100, 10_000))
        for dimension in (0, 1):
            found = [parts.of(name, dimension, proxies) for name in [*NAMES, *"abcd"][:proxies]]
            assert min(found) >= 1 and WHOLE * 0.97 <= sum(found) <= WHOLE


def test_deliverers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Further ones count as if they had delivered nothing."""
    monkeypatch.setattr("enforcer.laws.dispatch.parts.DELIVERERS_MAX", 2)
    parts = Parts()
    for period in (1, 2):
        for name in "abc":
            parts.add(name, period, (30, 0), (100, 0))
    assert [parts.of(name, 0, 4) for name in "abcd"] == [490_000, 490_000, 10_000, 10_000]
