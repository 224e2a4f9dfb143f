"""Proxies without shares, at a real broker: alone one has the whole limit, of two each has half of it."""

from contextlib import ExitStack

from cluster_kit import Cluster, fresh
from proxy_kit import PolicyWriter, ProxyThread, until
from stack_kit import new_topics
from traffic_kit import batch, produce
from wire_client import WireClient

from enforcer.core.account import State
from streaming.contract.topics import Topics

LIMIT = 100.0


def rate(proxy: ProxyThread, group: str) -> float | None:
    """What a proxy may use of a group; None: its clients do not use it."""
    account = proxy.proxy.meter.accounts.get(group)
    return None if account is None or account.state is not State.JOINING else account.rate(0)


def use(proxy: ProxyThread, topic: str) -> None:
    """A client publishes a little."""
    with WireClient(proxy.bootstrap) as client:
        client.send_frame(produce(9, {topic: [batch(1)]}, 1)[0])
        client.receive_frame()


def test_the_limit_is_divided_by_the_proxies_alive(cluster: Cluster, topics: Topics) -> None:
    """Without a job, so nobody ever has a share; one that leaves makes room for the other.

    In an installation of its own: the proxies of other tests are alive as well.
    """
    group = fresh("newcomers")
    topic = PolicyWriter(cluster.kafka.bootstrap, topics).group(group, publishRateInMsgs=LIMIT)
    new_topics(cluster.kafka.bootstrap, topic)
    with ExitStack() as first_lives, ExitStack() as second_lives:
        configs = [cluster.config(id=fresh(name), topics=topics) for name in ("first", "second")]
        first, second = map(ProxyThread, configs)
        first_lives.enter_context(first)
        use(first, topic)
        until(lambda: rate(first, group) == LIMIT, what="the whole limit alone")
        second_lives.enter_context(second)
        use(second, topic)
        for proxy in (first, second):
            until(lambda proxy=proxy: rate(proxy, group) == LIMIT / 2, what="half of the limit each")
        second_lives.close()
        until(lambda: rate(first, group) == LIMIT, what="the whole limit again")
