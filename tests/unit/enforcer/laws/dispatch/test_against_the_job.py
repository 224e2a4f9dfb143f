"""Statement + own tail equals the job's own table, whatever is delivered and however decisions are read."""

import sys
from collections import deque
from typing import Any

from dispatch_kit import T0, TOPIC, Job, Proxy
from dispatch_policies import COUNTS, KINDS, broker_settings
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries

from enforcer.laws.dispatch.decisions import CounterStatement
from streaming.policy.policy_set import Mode
from streaming.policy.timeline import PolicyTimeline

TOPICS = [TOPIC, "persistent://acme/orders/t2", "persistent://other/n/t1"]
BROKER = broker_settings()
RAISED = st.builds(
    lambda own, raised, until: own | {"raise": raised | {"until": f"2026-11-20T09:25:{until:02}Z"}},
    BROKER, BROKER.filter(bool), st.integers(0, 20),
)  # fmt: skip
POLICIES = {
    "mode": st.sampled_from(list(Mode)), "broker": BROKER | RAISED, "namespaces.acme/orders": KINDS,
    f"topics.{TOPIC}": KINDS,
}
GAPS = st.sampled_from([0, 0, 1, 130, 400, 1_000, 2_600, 60_000])
BROKERS = st.sampled_from(["b1", "b2"])
PLACES = st.tuples(st.sampled_from(TOPICS), st.sampled_from(["s1", "s2", ""]))


class World:
    """Some proxies before the same brokers, and the log between them and the job."""

    def __init__(self, data: st.DataObject, proxies: int, **bounds: int) -> None:
        self.draw = data.draw
        self.timeline = PolicyTimeline({path: self.draw(values) for path, values in POLICIES.items()})
        self.job = Job(self.timeline)
        self.proxies = [Proxy(f"p{number}", self.timeline, **bounds) for number in range(proxies)]
        self.log: deque[dict[str, Any]] = deque()
        self.said: list[CounterStatement] = []
        self.now = T0

    def step(self) -> None:
        """Time goes on, perhaps the policies change, somebody delivers, the job decides some."""
        self.now += self.draw(GAPS)
        if self.draw(st.integers(0, 7)) == 0:
            path = self.draw(st.sampled_from(sorted(POLICIES)))
            # Known beforehand, as a live change is.
            self.timeline.apply(path, self.draw(st.none() | POLICIES[path]), self.now + 2_000)
            for proxy in self.proxies:
                proxy.table.policies_changed(self.now + 2_000)
        for _ in range(self.draw(st.integers(0, 3))):
            proxy = self.draw(st.sampled_from(self.proxies))
            counts = (self.draw(COUNTS), self.draw(COUNTS), self.draw(COUNTS))
            where = {"broker": self.draw(BROKERS), "place": self.draw(PLACES)}
            event = proxy.deliver(self.now, *counts, backlog=self.draw(st.booleans()), **where)
            if event is not None:
                self.log.append(event)
        self.decide(self.draw(st.integers(0, 4)))

    def decide(self, most: int = sys.maxsize) -> None:
        """The job decides the next events."""
        for _ in range(min(most, len(self.log))):
            self.said.append(self.job.decide(self.log.popleft()))

    def agree(self) -> None:
        """Everybody knows what the job knows."""
        self.decide()
        for now in (self.now, self.now + 700, self.now + 3_100):
            known = self.job.at(now)
            for proxy in self.proxies:
                here = proxy.acquired(now)
                assert {names: count for names, count in here.items() if any(count)} == {
                    names: count for names, count in known.items() if any(count)
                }


@tries(120)
@given(st.data(), st.integers(1, 3))
def test_read_in_order_all_know_the_same(data: st.DataObject, proxies: int) -> None:
    """Each reads the decisions with a delay of its own, some again; the end is the job's."""
    world = World(data, proxies)
    read = [0] * proxies
    for _ in range(data.draw(st.integers(1, 12))):
        world.step()
        for number, proxy in enumerate(world.proxies):
            upto = data.draw(st.integers(read[number], len(world.said)))
            since = max(0, read[number] - data.draw(st.integers(0, 3)))
            for said in world.said[since:upto]:
                proxy.read(said)
            read[number] = max(read[number], upto)
    world.decide()
    for number, proxy in enumerate(world.proxies):
        for said in world.said[read[number] :]:
            proxy.read(said)
        assert not any(known.tail for known in proxy.table.counters.values()) and not proxy.table.tail
    world.agree()


@tries(80)
@given(st.data(), st.integers(1, 3))
def test_read_in_any_order_all_know_the_same_in_the_end(data: st.DataObject, proxies: int) -> None:
    """Out of order, twice, and repeated long after: of each counter the last statement counts."""
    world = World(data, proxies)
    for _ in range(data.draw(st.integers(1, 8))):
        world.step()
    world.decide()
    for proxy in world.proxies:
        order = data.draw(st.permutations(world.said))
        for said in [*order, *order[: data.draw(st.integers(0, 5))]]:
            proxy.read(said)
    world.agree()


@tries(100)
@given(st.data(), st.sampled_from([1, 3, 1_000]))
def test_alone_it_is_exact_at_every_moment(data: st.DataObject, tail_max: int) -> None:
    """One proxy knows at once what the job will say of each delivery, however late it says so."""
    world = World(data, 1, tail_max=tail_max)
    (proxy,) = world.proxies
    foreseen: dict[str, dict[tuple[str, ...], tuple[int, int]]] = {}
    read = 0
    for _ in range(data.draw(st.integers(1, 12))):
        before = len(world.log) + len(world.said)
        world.step()
        if len(world.log) + len(world.said) > before:
            newest = world.log[-1] if world.log else None
            if newest is not None:
                foreseen[newest["id"]] = proxy.acquired(world.now)
        upto = data.draw(st.integers(read, len(world.said)))
        for said in world.said[read:upto]:
            proxy.read(said)
        read = upto
    world.decide()
    for said in world.said[read:]:
        proxy.read(said)
    world.agree()
    # Decided anew from the start, each decision is what was foreseen when its delivery was made.
    for said in world.said:
        for level, acquired in enumerate(said.acquired):
            names = (said.broker, said.topic, said.subscription)[: level + 1]
            if acquired is not None and any(acquired) and said.id in foreseen:
                assert foreseen[said.id][names] == acquired


@tries(60)
@given(st.data(), st.integers(2, 3))
def test_who_starts_again_reads_back_what_counts(data: st.DataObject, proxies: int) -> None:
    """Of each counter that is not paid off the newest decision is enough, in the order of the log."""
    world = World(data, proxies)
    for _ in range(data.draw(st.integers(1, 10))):
        world.step()
    world.decide()
    world.proxies = [Proxy("p0", world.timeline)]
    newest = {(said.broker, said.topic, said.subscription): said for said in world.said}
    repeats = data.draw(st.permutations(list(newest.values())))
    for said in (*repeats, *world.said[-3:]):
        world.proxies[0].read(said._replace(proxy="p9"))
    world.agree()
