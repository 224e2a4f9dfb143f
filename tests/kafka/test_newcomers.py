"""Proxies without shares, at a real broker: alone one has the whole limit, of two each has half of it."""

from collections.abc import Callable

from cluster_kit import Cluster, fresh
from confluent_kafka.admin import AdminClient, NewTopic
from proxy_kit import ProxyThread, until
from traffic_kit import batch, produce
from wire_client import WireClient

from enforcer.metering.account import State

LIMIT = 100.0


def rate(proxy: ProxyThread, group: str) -> float | None:
    """What a proxy may use of a group; None: its clients do not use it."""
    assert proxy.proxy is not None
    account = proxy.proxy.groups.meter.accounts.get(group)
    return None if account is None or account.state is not State.JOINING else account.rate(0)


def use(proxy: ProxyThread, topic: str) -> None:
    """A client publishes a little."""
    with WireClient(proxy.bootstrap) as client:
        client.send_frame(produce(9, {topic: [batch(1)]}, 1)[0])
        client.receive_frame()


def test_the_limit_is_divided_by_the_proxies_alive(
    cluster: Cluster, proxy_with: Callable[..., ProxyThread]
) -> None:
    """Without a job, so nobody ever has a share; one that leaves makes room at once."""
    group = fresh("newcomers")
    topic = f"acme.{group}.t"
    cluster.policies.put(f"resourcegroups.{group}", {"publishRateInMsgs": LIMIT})
    cluster.policies.put(f"namespaces.acme/{group}", {"resourcegroup": group})
    admin = AdminClient({"bootstrap.servers": cluster.kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
    first = proxy_with(id=fresh("first"))
    # Those of earlier tests may be counted until their time is over.
    until(lambda: company(first) == 1, what="nobody else is alive", limit_s=30)
    use(first, topic)
    until(lambda: rate(first, group) == LIMIT, what="the whole limit alone")
    second = proxy_with(id=fresh("second"))
    use(second, topic)
    for proxy in (first, second):
        until(lambda proxy=proxy: rate(proxy, group) == LIMIT / 2, what="half of the limit each")
    for path in (f"namespaces.acme/{group}", f"resourcegroups.{group}"):
        cluster.policies.put(path, None)


def company(proxy: ProxyThread) -> int | None:
    """How many proxies it counts."""
    assert proxy.proxy is not None
    return proxy.proxy.coordinator.local.company
