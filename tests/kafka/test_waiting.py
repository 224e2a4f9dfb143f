"""No way round a wait: other connections, other ports, reconnecting; and what still passes."""

import time
from collections.abc import Callable

import pytest
from cluster_kit import Cluster, fresh
from kafka.protocol.admin import topics
from kafka.protocol.metadata import metadata
from proxy_kit import ProxyThread
from wire_client import WireClient, create_request, errors, metadata_request

from enforcer.core import bounds

Connect = Callable[..., WireClient]
ONE = {"controller_mutation_rate": 1, "controller_mutation_burst": 1}
"""Few partitions make a wait of seconds, and brokers take their time to make many."""


def exceed(client: WireClient, name: str, count: int) -> int:
    """Go over the quota with a permissive request; returns the throttle time."""
    answer = client.create({name: count}, 5)
    assert errors(answer) == {name: 0}
    assert answer.throttle_time_ms > 0
    return int(answer.throttle_time_ms)


def broker_address(proxy: ProxyThread) -> str:
    """The proxy's port of the one broker."""
    (port,) = proxy.proxy.brokers.ports.values()
    return f"127.0.0.1:{port}"


@pytest.mark.parametrize("other_port", [False, True])
@pytest.mark.parametrize("decide", ["local", "strict"])
def test_other_connections_are_refused_at_once(
    cluster: Cluster, proxy: ProxyThread, wire: Connect, other_port: bool, decide: str
) -> None:
    """Strict requests of the subject get 89 with the time left, on any port, and the event says why."""
    name = fresh("second")
    cluster.limit(proxy, name, **ONE, decide=decide)
    exceed(wire(name), f"{name}-a", 5)
    second = wire(name, broker_address(proxy) if other_port else "")
    begun = time.monotonic()
    answer = second.create({f"{name}-b": 1})
    assert time.monotonic() - begun < 1.9
    assert errors(answer) == {f"{name}-b": 89}
    assert 2_000 < answer.throttle_time_ms <= 4_000
    event = cluster.event_of(name, strict=True, items=[{"name": f"{name}-b", "mutations": 1}])
    if decide == "strict":
        assert event["answered"] == "not_before"
    else:
        assert event["decided"]["outcome"] == "reject" and "answered" not in event
    # What is bound to fail is the broker's to refuse, as in Kafka, where validation comes before the quota.
    assert errors(second.create({f"{name}-a": 1})) == {f"{name}-a": 36}
    # Its connection goes on: producers and consumers of the user are not in the way of the quota.
    begun = time.monotonic()
    assert {topic.name for topic in second.metadata([f"{name}-a"]).topics} == {f"{name}-a"}
    assert time.monotonic() - begun < 1.9


def test_permissive_requests_wait_on_other_connections(
    cluster: Cluster, proxy: ProxyThread, wire: Connect
) -> None:
    """An old version cannot be refused: its request is kept until the time has passed, in order."""
    name = fresh("kept")
    cluster.limit(proxy, name, controller_mutation_rate=2, controller_mutation_burst=2)
    begun = time.monotonic()
    wait_ms = exceed(wire(name), f"{name}-a", 5)
    second = wire(name)
    second.send(metadata_request([f"{name}-a"]))
    second.send(create_request({f"{name}-b": 1}, 5))
    second.answer_to(metadata_request([f"{name}-a"]), 1)
    assert second.silent_for(wait_ms / 1000 - 0.3)
    answer = second.receive(topics.CreateTopicsResponse, 5)
    assert time.monotonic() - begun >= wait_ms / 1000 - 0.05
    assert errors(answer) == {f"{name}-b": 0}
    second.receive(metadata.MetadataResponse, 9)


def test_reconnecting_is_no_escape(cluster: Cluster, proxy: ProxyThread, wire: Connect) -> None:
    """A client that drops its muted connection finds the same wait on a new one."""
    name = fresh("again")
    cluster.limit(proxy, name, **ONE)
    first = wire(name)
    wait_ms = exceed(first, f"{name}-a", 5)
    first.socket.close()
    for _ in range(3):
        answer = wire(name).create({f"{name}-b": 1})
        assert errors(answer) == {f"{name}-b": 89} and answer.throttle_time_ms <= wait_ms


def test_a_policy_change_ends_the_wait(cluster: Cluster, proxy: ProxyThread, wire: Connect) -> None:
    """A kept request goes on as soon as its subject has another quota."""
    name = fresh("freed")
    cluster.limit(proxy, name, controller_mutation_rate=1)
    assert exceed(wire(name), f"{name}-a", 41) > 20_000
    second = wire(name)
    second.send(create_request({f"{name}-b": 1}, 5))
    assert second.silent_for(0.3)
    cluster.policies.put(f"quotas[user=ANONYMOUS,client-id={name}]", None)
    assert errors(second.receive(topics.CreateTopicsResponse, 5, 5)) == {f"{name}-b": 0}


@pytest.mark.soak
def test_a_long_mute_lets_one_request_through(
    cluster: Cluster, proxy_with: Callable[..., ProxyThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each MUTE_SPLIT_MS one request is read: strict is refused, permissive charged, others pass."""
    monkeypatch.setattr(bounds, "MUTE_SPLIT_MS", 600)
    proxy = proxy_with()
    name = fresh("split")
    cluster.limit(proxy, name, controller_mutation_rate=10)
    with WireClient(proxy.bootstrap, name) as client:
        wait_ms = exceed(client, f"{name}-a", 170)
        begun = time.monotonic()
        client.send(metadata_request([f"{name}-a"]))
        client.send(create_request({f"{name}-b": 1}, 7))
        client.send(create_request({f"{name}-c": 10}, 5))
        client.answer_to(metadata_request([f"{name}-a"]))
        assert 0.5 < time.monotonic() - begun < 2.5
        refused = client.receive(topics.CreateTopicsResponse, 7)
        assert 1.1 < time.monotonic() - begun < 3
        assert errors(refused) == {f"{name}-b": 89} and refused.throttle_time_ms < wait_ms - 1_000
        charged = client.receive(topics.CreateTopicsResponse, 5)
        assert 1.7 < time.monotonic() - begun < 4
        assert errors(charged) == {f"{name}-c": 0}
        # 10 more at rate 10: another second on top of what was left.
        assert charged.throttle_time_ms > wait_ms - 1_800
        client.receive(metadata.MetadataResponse, 9)
        assert 2.3 < time.monotonic() - begun < 5


def test_user_quota_is_shared_by_client_ids(cluster: Cluster, proxy_with: Callable[..., ProxyThread]) -> None:
    """One client-id's debt keeps the whole subject waiting, and another subject goes on."""
    proxy = proxy_with(sasl=False)
    name = fresh("share")
    cluster.policies.put(f"quotas[client-id={name}]", ONE)
    cluster.await_quota(proxy, "ANONYMOUS", name, 1)
    with WireClient(proxy.bootstrap, name) as client, WireClient(proxy.bootstrap, name) as second:
        exceed(client, f"{name}-a", 5)
        assert errors(second.create({f"{name}-b": 1})) == {f"{name}-b": 89}
    with WireClient(proxy.bootstrap, fresh("other")) as other:
        assert errors(other.create({f"{name}-b": 1})) == {f"{name}-b": 0}


def test_pipelined_requests_wait_in_order(cluster: Cluster, proxy: ProxyThread, wire: Connect) -> None:
    """Requests behind a strict one are held while it waits for its decision, and answered in order."""
    name = fresh("pipe")
    cluster.limit(proxy, name, controller_mutation_rate=100)
    client = wire(name)
    client.send(metadata_request([f"{name}-none"]), correlation_id=1)
    client.send(create_request({f"{name}-a": 1}), correlation_id=2)
    for number in range(3, 60):
        client.send(metadata_request([f"{name}-a"]), correlation_id=number)
    order = [int.from_bytes(client.receive_frame()[:4], "big") for _ in range(1, 60)]
    assert order == list(range(1, 60))


def test_two_proxies_share_a_wait(
    cluster: Cluster, proxy: ProxyThread, wire: Connect, proxy_with: Callable[..., ProxyThread]
) -> None:
    """What one proxy learns about a subject holds at every proxy."""
    other = proxy_with(id="other")
    name = fresh("cluster")
    cluster.limit(proxy, name, **ONE, decide="strict")
    cluster.await_quota(other, "ANONYMOUS", name, 1)
    exceed(wire(name), f"{name}-a", 6)
    time.sleep(0.3)
    with WireClient(other.bootstrap, name) as client:
        assert errors(client.create({f"{name}-b": 1})) == {f"{name}-b": 89}
    assert other.metric("requests_total", api="CreateTopics", outcome="not_before") == 1
