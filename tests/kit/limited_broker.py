"""A broker with a limit of requests in flight, and a relay before it that counts them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from cluster_kit import Cluster, fresh
from confluent_kafka.admin import AdminClient
from counting_relay import CountingRelay
from proxy_kit import Decider, PolicyWriter, ProxyThread, until
from stack_kit import new_topics
from tls_kit import PLAIN, Way
from traffic_kit import batch, produce
from wire_client import WireClient

from enforcer.host.dial import Upstream
from enforcer.host.sockets import Address
from streaming.contract.topics import Topics

LIMIT = 8
FIXED = {"algorithm": "fixed", "fixed": {"limit": LIMIT}}


def partition(proxy: ProxyThread) -> Any:
    """What the proxy knows of the one broker's limit; None: nothing yet."""
    known = proxy.proxy.concurrency.partitions.known
    return next(iter(known.values()), None)


class World:
    """A proxy of an installation of its own, behind which a relay stands."""

    def __init__(
        self, cluster: Cluster, topics: Topics, relay: CountingRelay, proxy: ProxyThread, way: Way
    ) -> None:
        self.cluster, self.topics, self.relay, self.proxy = cluster, topics, relay, proxy
        self.client = {"bootstrap.servers": proxy.bootstrap, "log_level": "0", **way.rdkafka}
        self.topic = fresh("flow")
        new_topics(cluster.kafka.bootstrap, self.topic, partitions=4)

    def limit(self, entry: dict[str, Any]) -> None:
        """Put a limit in force before the broker, and wait until connections are counted."""
        PolicyWriter(self.cluster.kafka.bootstrap, self.topics).put("backpressure.partitions.*", entry)
        client = AdminClient(self.client)
        until(lambda: client.list_topics(self.topic, 20) and partition(self.proxy), what="a limited broker")

    def produce(self, client: WireClient) -> None:
        """Ask for one record to be written; the answer is not read."""
        client.send_frame(produce(9, {self.topic: [batch(1)]}, -1)[0])


Start = Callable[..., World]


@contextmanager
def worlds(cluster: Cluster, topics: Topics, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Makes worlds, with a job that answers or none; settings are ProxySettings'."""
    with ExitStack() as stack:
        relays: dict[Address, CountingRelay] = {}
        dial = Upstream.dial
        monkeypatch.setattr(Upstream, "dial", lambda self, to: dial(self, relays[to].listens))

        def make(*, job: bool = False, way: Way = PLAIN, **settings: Any) -> World:
            if job:
                stack.enter_context(Decider(cluster.kafka.bootstrap, topics))
            config = cluster.config(id=fresh("flow"), topics=topics, **way.settings, **settings)
            (target,) = config.kafka
            if target not in relays:
                relays[target] = stack.enter_context(CountingRelay(target))
            running = stack.enter_context(ProxyThread(config))
            return World(cluster, topics, relays[target], running, way)

        yield make
