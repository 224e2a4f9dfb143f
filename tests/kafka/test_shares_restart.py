"""A proxy that comes back under its old name reads back its shares (docs/contract.md 1)."""

import time
from collections.abc import Callable

import orjson
from cluster_kit import Cluster, fresh
from proxy_kit import PolicyWriter, ProxyThread
from stack_kit import new_topics, put
from traffic_kit import batch, produce
from wire_client import WireClient

from enforcer.core.account import State
from streaming.contract.topics import Topics

LIFE_MS = 180_000


def share(group: str, broker: str, rate: float | None, decided_ms: int) -> bytes:
    """A share as the job writes it; None takes it away."""
    decision = {
        "type": "share", "id": f"{group}/{broker}@{decided_ms}", "ts": decided_ms, "group": group,
        "broker": broker, "round": 1, "usage": {}, "ttl_ms": LIFE_MS,
        "limits": None if rate is None else {"publishRateInMsgs": rate},
    }  # fmt: skip
    return orjson.dumps(decision)


def test_a_restarted_proxy_goes_on_with_its_share(
    cluster: Cluster, proxy_with: Callable[..., ProxyThread]
) -> None:
    """With its first client, though nothing is decided any more; what has ended or been taken is no share."""
    name, kept, ended, taken = fresh("restarted"), fresh("kept"), fresh("ended"), fresh("taken")
    now_ms = time.time_ns() // 1_000_000
    for group, broker, rate, age_ms in (
        (ended, name, 80.0, LIFE_MS + 1_000),
        (kept, name, 60.0, 20_000),
        (kept, "another", 20.0, 10_000),
        (kept, name, 80.0, 10_000),
        (taken, name, 80.0, 20_000),
        (taken, name, None, 10_000),
    ):
        made_ms = now_ms - age_ms
        key, value = f"{group}/{broker}", share(group, broker, rate, made_ms)
        put(cluster.kafka.bootstrap, cluster.topics.decisions, value, key=key, timestamp=made_ms)
    groups = (kept, ended, taken)
    topics = [cluster.policies.group(group, publishRateInMsgs=100) for group in groups]
    new_topics(cluster.kafka.bootstrap, *topics)
    proxy = proxy_with(id=name)
    with WireClient(proxy.bootstrap) as client:
        for topic in topics:
            client.send_frame(produce(9, {topic: [batch(1)]}, 1)[0])
            client.receive_frame()
    accounts = proxy.proxy.meter.accounts
    assert (accounts[kept].state, accounts[kept].rate(0)) == (State.ACTIVE, 80.0)
    assert {accounts[group].state for group in (ended, taken)} == {State.JOINING}
    left_ms = accounts[kept].share_until_ms - proxy.proxy.now_ms()
    assert left_ms <= LIFE_MS - 10_000
    for group in groups:
        cluster.policies.ungroup(group)


def test_without_decisions_clients_are_let_in_all_the_same(cluster: Cluster) -> None:
    """Reading back has the same limit as all of the start; the topic is not there."""
    topics = Topics(f"{fresh('half')}.")
    new_topics(cluster.kafka.bootstrap, topics.policies)
    policies = PolicyWriter(cluster.kafka.bootstrap, topics)
    policies.put("resourcegroups.rg1", {"publishRateInMsgs": 100})
    policies.put("tenants.acme", {"resourcegroup": "rg1"})
    config = cluster.config(id=fresh("half"), start_timeout_ms=1_500, topics=topics)
    with ProxyThread(config) as running, WireClient(running.bootstrap) as client:
        assert running.proxy.meter.active
        client.metadata([], 4)
