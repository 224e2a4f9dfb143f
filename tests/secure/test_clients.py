"""Clients in C, Python, Java and Go feel each law by TLS and with a login (docs/testing.md).

`make matrix` has further ones, and other brokers.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from backlog_kit import EXCEPTION, counted, full
from blocked_world import World
from broker_fixtures import own_cluster, serving
from cluster_kit import USERS, Cluster, fresh
from four_clients import CLIENTS, Client
from limited_broker import partition, worlds
from matrix_clients import OTHERS
from proxy_kit import ProxyThread, until
from reading_kit import fill
from stack_kit import new_topics
from tls_kit import Authority, Way

from streaming.contract.topics import Topics

QUOTA_EXCEEDED, POLICY_VIOLATION = 89, 44
RATE = 10_000
ONE = {
    "algorithm": "fixed", "fixed": {"limit": 1},
    # Those by default, and metadata, without which no client comes so far as to create.
    "exempt": ["heartbeat", "group", "sasl", "api_versions", "fetch", "metadata"],
}  # fmt: skip
Make = Callable[[ProxyThread], Client]

cluster = own_cluster("clients")


@pytest.fixture(scope="module")
def way(tmp_path_factory: pytest.TempPathFactory) -> Way:
    """By TLS, as carol."""
    return Way.secured(Authority(tmp_path_factory.mktemp("ca")), "carol", USERS.scram["carol"])


@pytest.fixture(scope="module")
def proxy(cluster: Cluster, way: Way) -> Iterator[ProxyThread]:
    """Before the listener with logins."""
    with serving(cluster, id="secured", **way.settings) as running:
        yield running


@pytest.fixture(params=[*CLIENTS, *(pytest.param(other, marks=pytest.mark.soak) for other in OTHERS)])
def client(request: pytest.FixtureRequest, way: Way, tmp_path: Path) -> Make:
    """Makes clients of one kind before a proxy, each with an id of its own."""
    made = (CLIENTS | OTHERS)[request.param]
    return lambda proxy: made(way, proxy.bootstrap, fresh(request.param), tmp_path)


@pytest.fixture
def blocked(cluster: Cluster, topics: Topics) -> Iterator[World]:
    """See World."""
    with ExitStack() as stack:
        yield World(cluster, topics, stack)


def put(cluster: Cluster, proxy: ProxyThread, entries: dict[str, Any]) -> None:
    """Put policies in force at the proxy, which has the whole of each limit."""
    for path, value in entries.items():
        cluster.policies.put(path, value)
    until(lambda: entries.keys() <= proxy.entries.keys(), what="the policies")
    proxy.await_part(1)


def test_mutations(cluster: Cluster, proxy: ProxyThread, client: Make) -> None:
    """A topic too many is refused, and it is said for how long; who knows no such error waits."""
    one, name = client(proxy), fresh("made")
    put(cluster, proxy, {f"quotas[user=carol,client-id={one.name}]": {"controller_mutation_rate": 5}})
    outcome = {"api": "CreateTopics", "outcome": "reject" if one.refused else "throttle"}
    before = proxy.metric("requests_total", **outcome)
    told = one.create({f"{name}-{number}": 30 for number in range(3)})
    assert sorted(told.codes) == [0, 0, QUOTA_EXCEEDED if one.refused else 0]
    assert proxy.metric("requests_total", **outcome) == before + 1
    assert (told.throttle_ms > 0) == one.tells


@pytest.mark.parametrize("by", ["user", "group"])
def test_byte_rates(cluster: Cluster, proxy: ProxyThread, client: Make, by: str) -> None:
    """Who writes or reads too much as a user, or in a resource group, gets it all, and is told to wait."""
    one, name = client(proxy), fresh("rated")
    topic = f"acme.{name}.t"
    new_topics(cluster.kafka.bootstrap, topic)
    of_user = {"producer_byte_rate": RATE, "consumer_byte_rate": RATE}
    of_group = {"publishRateInBytes": RATE, "dispatchRateInBytes": RATE}
    put(
        cluster, proxy,
        {f"quotas[user=carol,client-id={one.name}]": of_user} if by == "user"
        else {f"namespaces.acme/{name}": {"resourcegroup": name}, f"resourcegroups.{name}": of_group},
    )  # fmt: skip

    def throttled() -> list[float]:
        return [proxy.metric("throttled_frames_total", by=by, dimension=dimension) for dimension in of_group]

    before = throttled()
    wrote = one.produce(topic, 2 * RATE // 1_000, 1_000)
    read = one.consume(topic, one.name, 2 * RATE // 1_000)
    assert (set(wrote.codes), read.offsets) == ({0}, [*range(2 * RATE // 1_000)])
    assert wrote.throttle_ms > 0 and read.throttle_ms > 0
    assert all(now > then for now, then in zip(throttled(), before, strict=True))


def test_dispatch(cluster: Cluster, proxy: ProxyThread, client: Make) -> None:
    """A group is held back at its rate, and reads each record once and in order."""
    one, topic = client(proxy), fresh("dispatched")
    fill(cluster.kafka.bootstrap, topic, 30)
    rate = {"dispatchRate": {"dispatchThrottlingRateInMsg": 10}}
    put(cluster, proxy, {f"topics.{full(topic)}": {"subscriptions": {one.name: rate}}})
    dispatch, read = proxy.proxy.dispatch, proxy.proxy.metrics.registry.get_sample_value
    until(lambda: dispatch.active and dispatch.limits(full(topic), one.name), what="the limit")
    assert one.consume(topic, one.name, 30).offsets == [*range(30)]
    labels = {"topic": full(topic), "subscription": one.name}
    assert read("weir_dispatch_delivered_msgs_total", {"broker": "broker-1", **labels}) == 30
    labels |= {"namespace": "public/default", "reason": "subscription"}
    assert (read("pulsar_subscription_dispatch_throttled_msg_events_total", labels) or 0) > 0


def test_backlog_exception(blocked: World, way: Way, client: Make) -> None:
    """All that is written to a topic beyond its quota is refused."""
    proxy, topic = blocked.proxy(**way.settings), blocked.topic()
    blocked.block(proxy, topic, EXCEPTION)
    assert client(proxy).produce(topic, 5, 10).codes == [POLICY_VIOLATION] * 5
    assert blocked.read(topic) == [] and counted(proxy, "refused", EXCEPTION) > 0


def test_backlog_hold(blocked: World, way: Way, client: Make) -> None:
    """It waits, and when the topic is inside again all is there once, in order."""
    proxy, topic = blocked.proxy(**way.settings), blocked.topic()
    blocked.block(proxy, topic)
    with ThreadPoolExecutor() as pool:
        writing = pool.submit(client(proxy).produce, topic, 20, 10)
        until(lambda: counted(proxy, "held") > 0, what="a held request")
        assert blocked.read(topic) == []
        blocked.lift(proxy, topic)
        assert writing.result().codes == [0] * 20
    assert blocked.read(topic) == [f"{number:010}" for number in range(20)]


def test_slots(
    cluster: Cluster, topics: Topics, way: Way, client: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one request is at the broker another waits, and a new topic is refused, or waits too."""
    with worlds(cluster, topics, monkeypatch) as start, ThreadPoolExecutor() as pool:
        # Nothing is given up because the machine is busy.
        world = start(way=way, inflight_wait_ms=600_000)
        world.limit(ONE)
        limiter, creator = partition(world.proxy).limiter, client(world.proxy)
        world.relay.open.clear()
        try:
            writing = [pool.submit(client(world.proxy).produce, world.topic, 5, 10) for _ in range(2)]
            # Of one writer several connections may wait.
            until(lambda: world.relay.in_flight == 1 and limiter.waiting, what="one waits")
            before = limiter.waiting
            creating = pool.submit(creator.create, {fresh("made"): 1})
            if creator.refused:
                assert creating.result().codes == [QUOTA_EXCEEDED]
            else:
                until(lambda: limiter.waiting > before, what="both wait")
        finally:
            world.relay.open.set()
        assert [one.result().codes for one in writing] == [[0] * 5] * 2
        assert creator.refused or creating.result().codes == [0]
        assert world.relay.most == 1
