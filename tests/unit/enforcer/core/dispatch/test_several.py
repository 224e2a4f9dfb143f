"""Several proxies before one broker, simulated over the real code: what they exceed, and what they reach."""

import heapq
from itertools import count

import pytest
from dispatch_kit import T0, Job, Proxy, ten_a_second

from enforcer.core.feeds.dispatches import Dispatched
from streaming.policy.timeline import PolicyTimeline

RATE = 100
PERIODS = 6
STEP_MS = 20


class Several:
    """Proxies that deliver whenever they may, and a job whose decisions take a while.

    Args:
        proxies: P.
        hungry: so many of them have something to deliver.
        entry: messages of each entry.
        lag_ms: from a delivery to when its decision is read, different at each proxy.
    """

    def __init__(self, proxies: int, hungry: int, entry: int, lag_ms: int) -> None:
        timeline = PolicyTimeline(ten_a_second(dispatchThrottlingRatePerSubscriptionInMsg=RATE))
        self.proxies = [Proxy(f"p{number}", timeline) for number in range(proxies)]
        for proxy in self.proxies:
            proxy.book.set_proxies(proxies)
        self.job, self.hungry, self.entry, self.lag_ms = Job(timeline), hungry, entry, lag_ms
        self.delivered: dict[int, int] = {}
        self.on_their_way: list[tuple[int, int, Proxy, Dispatched]] = []

    def run(self, *, away: bool = False) -> None:
        """Some periods of a second; `away`: nothing is decided meanwhile."""
        order = count()
        for now in range(T0, T0 + PERIODS * 1000, STEP_MS):
            while self.on_their_way and self.on_their_way[0][0] <= now:
                _, _, proxy, said = heapq.heappop(self.on_their_way)
                proxy.read(said)
            for proxy in self.proxies[: self.hungry]:
                while proxy.book.left("b1", *_PLACE, now).wait_ms == 0:
                    event = proxy.deliver(now, self.entry)
                    assert event is not None
                    period = (now - T0) // 1000
                    self.delivered[period] = self.delivered.get(period, 0) + self.entry
                    said = self.job.decide(event)
                    for number, reader in enumerate(() if away else self.proxies):
                        arrives = now + self.lag_ms * (number + 2) // 2
                        heapq.heappush(self.on_their_way, (arrives, next(order), reader, said))

    def worst(self) -> int:
        """The most that any number of periods in a row had above their rates."""
        worst = carried = 0
        for period in range(PERIODS):
            carried = max(0, carried) + self.delivered.get(period, 0) - RATE
            worst = max(worst, carried)
        return worst


_PLACE = ("persistent://acme/orders/t1", "sub1")


@pytest.mark.parametrize("entry", [7, 30])
@pytest.mark.parametrize("lag_ms", [0, 130, 700])
@pytest.mark.parametrize("proxies", [1, 2, 3, 8])
def test_together_they_exceed_by_an_entry_each_and_an_unspent_part(
    proxies: int, lag_ms: int, entry: int
) -> None:
    """And what all want is delivered in full: nothing of the rate is lost."""
    world = Several(proxies, proxies, entry, lag_ms)
    world.run()
    parts = RATE * (proxies - 1) // proxies if lag_ms and proxies > 1 else 0
    assert world.worst() <= proxies * entry + parts
    assert sum(world.delivered.values()) >= 0.98 * RATE * PERIODS


@pytest.mark.parametrize("proxies", [2, 3, 8])
def test_one_that_is_hungry_among_several_has_what_decisions_give_it(proxies: int) -> None:
    """At once a part, with each decision a part of the rest; with quick decisions nearly all of it."""
    slow, quick = Several(proxies, 1, 5, 10_000), Several(proxies, 1, 5, 20)
    slow.run()
    quick.run()
    assert RATE // proxies <= slow.delivered[0] < RATE / proxies + 5
    assert sum(quick.delivered.values()) >= 0.9 * RATE * PERIODS
    assert quick.worst() <= 5


@pytest.mark.parametrize("proxies", [1, 2, 3, 8])
def test_the_job_is_away(proxies: int) -> None:
    """Parts add up to the rate: together they exceed it by an entry each at most, and use all of it."""
    world = Several(proxies, proxies, 6, 0)
    world.run(away=True)
    assert world.worst() <= proxies * 6
    assert sum(world.delivered.values()) >= 0.98 * RATE * PERIODS


def test_a_proxy_that_comes_makes_the_parts_smaller() -> None:
    """Its own deliveries since the statement count in full against the smaller part."""
    world = Several(1, 1, 1, 0)
    (proxy,) = world.proxies
    for _ in range(60):
        proxy.deliver(T0, 1)
    assert proxy.book.left("b1", *_PLACE, T0).msgs == 40
    proxy.book.set_proxies(2)
    assert proxy.book.left("b1", *_PLACE, T0) == (0, None, 1_000, "subscription", "msgs")
    # Two of its parts are 100, and 60 twice over are 120.
    assert proxy.book.left("b1", *_PLACE, T0 + 1_000).msgs == 40
    proxy.book.set_proxies(1)
    assert proxy.book.left("b1", *_PLACE, T0 + 1_000).msgs == 100
