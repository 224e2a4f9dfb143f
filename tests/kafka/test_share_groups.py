"""Share groups (KIP-932) through the proxy on a broker that has them (docs/protocol_notes.md 3.9)."""

import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
from broker_fixtures import apart, own_cluster, serving
from cluster_kit import Cluster, fresh
from consuming_kit import holds, rate
from counted_kit import Counted, count_by, full_name, wall_ms
from exam_kit import Say
from proxy_kit import Decider, ProxyThread, until
from reading_kit import fill
from share_kit import (
    MEMBER,
    Arrival,
    Member,
    RawMember,
    Session,
    acquired,
    brokers_own_rate,
    codes,
    configure,
    console,
    go,
    java,
    shared,
)

from enforcer.wire.kafka.frames import SHARE_ACKNOWLEDGE, SHARE_FETCH, Fields

Start = Callable[..., ProxyThread]
Client = Callable[..., list[str]]
ANOTHER, TWO = "B" * 22, {"MaxRecords": 2}
cluster = own_cluster("share")


@pytest.mark.soak
@pytest.mark.parametrize("client", [console, go])
def test_members_read_through_the_proxy(cluster: Cluster, proxy_with: Start, client: Client) -> None:
    """Each record once, as by Java below: all that they learn of brokers leads through the proxy."""
    topic, group = shared(cluster.kafka.bootstrap, 1_000, batch=10)
    proxy = proxy_with()
    got = Member(client(proxy.bootstrap, group, topic, 1_000, 30)).arrivals()
    assert sorted(each.offset for each in got) == list(range(1_000))
    assert {each.delivery for each in got} == {1}


def limited(start: Start, topic: str, group: str, limit: int) -> tuple[ProxyThread, Counted]:
    """A proxy with a limit of a share group, and what it counts."""
    running = start()
    counted = Counted(wall_ms, subscriptions={(full_name(topic), group): (limit, 0)})
    count_by(running.proxy, counted)
    return running, counted


def measured(cluster: Cluster, start: Start, client: Client, limit: int, per_batch: int, count: int) -> float:
    """What a share group gets in a second, each record once and none for the second time."""
    topic, group = shared(cluster.kafka.bootstrap, count, batch=per_batch)
    proxy, counted = limited(start, topic, group, limit)
    got = Member(client(proxy.bootstrap, group, topic, count, 60)).arrivals()
    assert sorted(each.offset for each in got) == list(range(count))
    assert {each.delivery for each in got} == {1}
    assert {each.place[2] for each in counted.delivered} == {group}
    assert sum(each.msgs for each in counted.delivered) == count
    return rate([(each.at_ms / 1_000, each.partition, each.offset) for each in got])


RATES = [
    # Client, limit a second, records in a batch, records: the first second's and those of whole turns.
    (java, 100, 1, 400),
    *(pytest.param(*case, marks=pytest.mark.soak) for case in ((java, 10, 6, 102), (go, 100, 6, 1_002))),
    # Then half a minute, with all clients.
    *(
        pytest.param(client, limit, size, 31 * limit + rest, marks=pytest.mark.soak)
        for client in (java, console, go)
        for limit in (10, 100, 1_000)
        for size, rest in ((1, 0), (6, 2))
    ),
]  # fmt: skip


@pytest.mark.parametrize(("client", "limit", "per_batch", "count"), RATES)
def test_rates(
    cluster: Cluster, proxy_with: Start, client: Client, limit: int, per_batch: int, count: int
) -> None:
    """Within 2 % of the limit, and nothing is delivered twice for having waited."""
    holds(lambda: measured(cluster, proxy_with, client, limit, per_batch, count), limit)


@pytest.mark.soak
def test_several_topics_of_one_member(cluster: Cluster, proxy_with: Start) -> None:
    """They do not wait for each other under one rate of their broker: it is theirs, within 2 %."""

    def together() -> float:
        topics, group = [fresh("shared") for _ in range(3)], fresh("members")
        for topic, count in zip(topics, (334, 333, 333), strict=True):
            fill(cluster.kafka.bootstrap, topic, count)
        configure(cluster.kafka.bootstrap, group)
        proxy = proxy_with()
        count_by(proxy.proxy, Counted(wall_ms, broker=(100, 0)))
        got = Member(java(proxy.bootstrap, group, ",".join(topics), 1_000, 60)).arrivals()
        assert len({(each.topic, each.offset) for each in got}) == len(got) == 1_000
        return rate([(each.at_ms / 1_000, each.partition, each.offset) for each in got])

    holds(together, 100)


@pytest.mark.parametrize("version", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_acknowledgements_never_wait(cluster: Cluster, proxy_with: Start, version: int) -> None:
    """Neither those that a ShareFetch carries nor those behind one that is held: it then acquires nothing."""
    topic, group = shared(cluster.kafka.bootstrap, 100, batch=4)
    proxy, _ = limited(partial(proxy_with, dispatch_hold_ms=10_000), topic, group, 2)
    with RawMember(proxy.bootstrap) as wire:
        session = Session(wire, group, topic)
        answers = (wire.ask(SHARE_FETCH, version, session.fetch(MaxRecords=8)) for _ in range(100))
        # A limited request waits at the broker for a moment only; a share that is new takes its time.
        began = next(filter(acquired, answers))
        # One batch at least, and what is beyond the limit is paid off: two a second.
        (first, last, delivery), *_ = acquired(began)
        assert (first, delivery) == (0, 1) and began["ErrorCode"] == 0
        owed_s = (last + 1) // 2
        asked_at = time.monotonic()
        some = wire.ask(SHARE_FETCH, version, session.fetch((0, 0)))
        assert acquired(some) == [] and some["ErrorCode"] == 0
        assert set(codes(some, "AcknowledgeErrorCode")) <= {0}
        wire.tell(SHARE_FETCH, version, session.fetch())
        wire.tell(SHARE_ACKNOWLEDGE, version, session.acknowledge((1, last)))
        held, ended = wire.hear(SHARE_FETCH, version), wire.hear(SHARE_ACKNOWLEDGE, version)
        assert acquired(held) == [] and (held["ErrorCode"], ended["ErrorCode"]) == (0, 0)
        assert codes(ended) == [0]
        if last:
            assert time.monotonic() - asked_at < owed_s
        # Nothing stands behind the next one: it is kept until its time has come, and brings what follows.
        following = wire.ask(SHARE_FETCH, version, session.fetch())
        assert acquired(following)[0][::2] == (last + 1, 1)


def test_what_is_delivered_again_counts_again(cluster: Cluster, proxy_with: Start) -> None:
    """By the limit, and by a metric of its own: a member that lets its locks run out gets all once more."""
    topic, group = shared(cluster.kafka.bootstrap, 10, batch=10)
    configure(cluster.kafka.bootstrap, group, **{"share.record.lock.duration.ms": "1000"})
    proxy, counted = limited(proxy_with, topic, group, 1_000)
    with RawMember(proxy.bootstrap) as wire:
        session = Session(wire, group, topic)
        # A limited request waits at the broker for a moment only.
        found = filter(None, (acquired(wire.ask(SHARE_FETCH, 2, session.fetch())) for _ in range(100)))
        assert [next(found), next(found)] == [[(0, 9, 1)], [(0, 9, 2)]]
    assert [each.msgs for each in counted.delivered] == [10, 10]
    sample = proxy.proxy.metrics.registry.get_sample_value
    assert sample("weir_dispatch_redelivered_msgs_total") == 10


class World:
    """A hundred records, a batch each, a share group of two a second, and a proxy."""

    def __init__(self, cluster: Cluster, start: Start) -> None:
        self._topic, self._group = shared(cluster.kafka.bootstrap, 100)
        start = partial(start, dispatch_hold_ms=10_000)
        self.proxy, self.counted = limited(start, self._topic, self._group, 2)

    def join(self, wire: RawMember, member: str = MEMBER) -> Session:
        """A member begins."""
        return Session(wire, self._group, self._topic, member)


def count(answer: Fields) -> int:
    """How many records a ShareFetch has brought."""
    return sum(last + 1 - first for first, last, _ in acquired(answer))


@pytest.mark.parametrize(("straight", "more"), [(False, 2), (True, 1)])
def test_a_session_that_goes_on_elsewhere_is_known_by_what_it_brings(
    cluster: Cluster, proxy_with: Start, *, straight: bool, more: int
) -> None:
    """A record at first, which counts, if the proxy has not seen which topics it has."""
    world = World(cluster, proxy_with)
    begins = cluster.kafka.bootstrap if straight else world.proxy.bootstrap
    with RawMember(begins) as one, RawMember(world.proxy.bootstrap) as other:
        # Of a topic that the proxy knows.
        brought = count(other.ask(SHARE_FETCH, 2, world.join(other, ANOTHER).fetch(**TWO))) if straight else 0
        session = world.join(one)
        began = count(one.ask(SHARE_FETCH, 2, session.fetch(**TWO)))
        went_on = count(other.ask(SHARE_FETCH, 2, session.fetch()))
        assert (began, went_on) == (2, more)
        through = brought if straight else began
        assert sum(each.msgs for each in world.counted.delivered) == through + more == 2 + more


def test_what_the_broker_refuses_to_forget_stays_limited(cluster: Cluster, proxy_with: Start) -> None:
    """By a wrong epoch: the session goes on with the topic, of which all the rest would come at once."""
    world = World(cluster, proxy_with)
    with RawMember(world.proxy.bootstrap) as wire:
        session = world.join(wire)
        assert count(wire.ask(SHARE_FETCH, 2, session.fetch(**TWO))) == 2
        gone = [{"TopicId": session.topic_id, "Partitions": [0]}]
        session.epoch = 7
        refused = wire.ask(SHARE_FETCH, 2, {**session.fetch(), "ForgottenTopicsData": gone})
        session.epoch = 1
        went_on = wire.ask(SHARE_FETCH, 2, session.fetch())
        assert (refused["ErrorCode"], went_on["ErrorCode"]) == (123, 0) and 0 < count(went_on) <= 2


def test_requests_sent_at_once_share_what_is_left(cluster: Cluster, proxy_with: Start) -> None:
    """Each of them waits for the answer to that before it."""
    world = World(cluster, proxy_with)
    with RawMember(world.proxy.bootstrap) as wire:
        session = world.join(wire)
        wire.tell(SHARE_FETCH, 2, session.fetch(**TWO))
        for _ in range(9):
            wire.tell(SHARE_FETCH, 2, session.fetch(MaxWaitMs=0))
        began = time.monotonic()
        brought = sum(count(wire.hear(SHARE_FETCH, 2)) for _ in range(10))
        assert 2 <= brought <= 2 * (2 + time.monotonic() - began)


def test_members_of_one_connection_wait_beside_each_other(cluster: Cluster, proxy_with: Start) -> None:
    """A request that is held is not answered empty because the other member's stands behind it."""
    world = World(cluster, proxy_with)
    with RawMember(world.proxy.bootstrap) as wire:
        first, second = world.join(wire), world.join(wire, ANOTHER)
        assert count(wire.ask(SHARE_FETCH, 2, first.fetch(**TWO))) == 2
        wire.tell(SHARE_FETCH, 2, second.fetch(**TWO))
        wire.tell(SHARE_FETCH, 2, first.fetch())
        assert count(wire.hear(SHARE_FETCH, 2)) > 0


def test_nothing_is_acquired_for_who_is_gone(cluster: Cluster, proxy_with: Start) -> None:
    """A held request of its goes on without: no delivery of what it would have got is spent."""
    world = World(cluster, proxy_with)
    with RawMember(world.proxy.bootstrap) as wire:
        session = world.join(wire)
        assert count(wire.ask(SHARE_FETCH, 2, session.fetch(**TWO))) == 2
        wire.tell(SHARE_FETCH, 2, session.fetch())
        until(lambda: world.counted.held, what="the request held")
    until(lambda: world.proxy.metric("connections") == 0, what="its connection gone")
    with RawMember(cluster.kafka.bootstrap) as wire:
        later = wire.ask(SHARE_FETCH, 2, world.join(wire, ANOTHER).fetch())
        assert {delivery for first, _, delivery in acquired(later) if first >= 2} == {1}


@pytest.mark.soak
@pytest.mark.parametrize("other", [java, go])
def test_two_members_share_the_limit(cluster: Cluster, proxy_with: Start, other: Client) -> None:
    """Both get some of it, together no more than it."""
    count = 1_500

    def together() -> float:
        topic, group = shared(cluster.kafka.bootstrap, count)
        proxy, _ = limited(proxy_with, topic, group, 100)
        commands = [each(proxy.bootstrap, group, topic, count, 17) for each in (java, other)]
        got = [member.arrivals() for member in [Member(command) for command in commands]]
        arrivals = sorted(each for its in got for each in its)
        assert [len({each.offset for each in arrivals}), min(map(len, got)) > 0] == [len(arrivals), True]
        middle = [each for each in arrivals if each.at_ms < arrivals[0].at_ms + 10_000]
        return rate([(each.at_ms / 1_000, each.partition, each.offset) for each in middle])

    holds(together, 100)


RATE, SIZE, FOR_S = 20_000, 1_000, 30


@pytest.mark.soak
def test_a_byte_rate_spends_no_deliveries(cluster: Cluster, proxy_with: Start, say: Say) -> None:
    """Kafka's own throttle acquires first and answers empty; ours waits before. The same rate of both."""
    proxy, rated = proxy_with(), fresh("rated")
    path = f"quotas[user=ANONYMOUS,client-id={rated}]"
    cluster.policies.put(path, {"consumer_byte_rate": RATE})
    until(lambda: path in proxy.entries, what="the quota")
    proxy.await_part(1.0)
    throttled = fresh("throttled")
    brokers_own_rate(cluster.kafka.bootstrap, throttled, RATE)
    found: dict[str, list[Arrival]] = {}
    for client_id, bootstrap in ((throttled, cluster.kafka.bootstrap), (rated, proxy.bootstrap)):
        topic, group = shared(cluster.kafka.bootstrap, 2_000, batch=10, size=SIZE)
        command = java(bootstrap, group, topic, 2_000, FOR_S, f"client.id={client_id}")
        found[client_id] = Member(command).arrivals()
    for name, got in found.items():
        say(f"{name}: {len(got)} records, deliveries {Counter(each.delivery for each in got)}")
    assert {each.delivery for each in found[rated]} == {1}
    assert len({each.offset for each in found[rated]}) == len(found[rated])
    assert len(found[rated]) * SIZE < RATE * (FOR_S + 3)
    assert max(each.delivery for each in found[throttled]) > 1
    assert len(found[rated]) > len(found[throttled])


@pytest.mark.soak
def test_a_resource_group(cluster: Cluster) -> None:
    """Of the topic's namespace, with the real law: no more than its rate, little less, none twice."""
    name, group, limit = fresh("g"), fresh("members"), 100
    topic = f"acme.{name}.t"
    fill(cluster.kafka.bootstrap, topic, 3_000)
    configure(cluster.kafka.bootstrap, group)
    with apart(cluster, name) as own, Decider(own.kafka.bootstrap, own.topics, "shares"):
        own.policies.put("broker", {"resourceUsagePublishIntervalInSecs": 1})
        own.policies.group(name, dispatchRateInMsgs=limit)
        with serving(own, id="alone") as proxy:
            until(lambda: f"namespaces.acme/{name}" in proxy.entries, what="the group")
            proxy.await_part(1.0)
            got = Member(java(proxy.bootstrap, group, topic, 3_000, 20)).arrivals()
    assert {each.delivery for each in got} == {1} and len({each.offset for each in got}) == len(got)
    lasted_s = (got[-1].at_ms - got[0].at_ms) / 1_000
    assert 0.9 * limit * lasted_s <= len(got) <= limit * (lasted_s + 2)


@pytest.mark.soak
def test_two_proxies_hold_one_limit(cluster: Cluster) -> None:
    """A member at each of two proxies, with the real law: together at the rate, within 5 %."""
    count, limit = 2_000, 100
    topic, group = shared(cluster.kafka.bootstrap, count)
    rates = {"subscriptionDispatchRate": {"dispatchThrottlingRateInMsg": limit}}
    with apart(cluster, "two") as own, Decider(own.kafka.bootstrap, own.topics, "dispatch"):
        own.policies.put(f"topics.{full_name(topic)}", rates)
        with serving(own, id="one") as one, serving(own, id="two") as two:
            for each in (one, two):
                until(lambda each=each: knows(each, topic, group), what="the limit, and the other proxy")
            got = [Member(java(each.bootstrap, group, topic, count, 20)) for each in (one, two)]
            arrivals = sorted(each for its in got for each in its.arrivals())
    assert len({each.offset for each in arrivals}) == len(arrivals)
    whole = {each.at_ms // 1_000 for each in arrivals}
    # Without the first seconds, in which one of them is alone, and the last.
    first, last = min(whole) + 5, max(whole) - 2
    middle = sum(first <= each.at_ms // 1_000 < last for each in arrivals)
    assert middle / (last - first) == pytest.approx(limit, rel=0.05)


def knows(running: ProxyThread, topic: str, group: str) -> bool:
    """Whether a proxy knows a group's limit and one other proxy."""
    dispatch = running.proxy.fetch_context.dispatch
    return dispatch.limits_group(full_name(topic), group) and dispatch.proxies == 2
