"""More than one broker: each behind a port of its own (docs/protocol_notes.md 3.3)."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from cluster_kit import LOOPBACK, USERS, address, fresh
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from consuming_kit import confluent
from proxy_kit import ProxyThread, until
from wire_client import WireClient

from enforcer.core.settings import ProxySettings
from enforcer.host.server import ProxyConfig
from streaming.contract.topics import Cluster, Topics
from weir.stack.kafka import LocalKafka, _Ports, brokers_seen, free_port
from weir.stack.topics import ensure_topics

NAMES = Topics()
JOINED_S = 10.0
"""The proxy allows itself half of it; before, it was a minute, or for ever."""


class Growing(LocalKafka):
    """A cluster that brokers join."""

    def join(self) -> None:
        """One more; returns when the first one tells clients of it."""
        self._ports.append(_Ports(plain=free_port(), controller=free_port(), sasl=free_port()))
        node = len(self._ports) - 1
        self._format(node, self._write_properties(node), self.cluster_id())
        self.children.append(self._spawn(node))
        until(lambda: brokers_seen(self._ports[0].plain) == len(self._ports), 60.0, "the new broker")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """Two brokers and Weir's topics."""
    with LocalKafka(tmp_path_factory.mktemp("pair"), brokers=2) as kafka:
        ensure_topics(Cluster(kafka.bootstrap, NAMES))
        yield kafka


@pytest.fixture(scope="module")
def proxy(pair: LocalKafka) -> Iterator[ProxyThread]:
    """A proxy that knows both bootstrap addresses."""
    config = ProxyConfig(
        kafka=tuple(address(part) for part in pair.bootstrap.split(",")),
        listen=(LOOPBACK, 0),
        topics=NAMES,
        settings=ProxySettings(id="pair"),
    )
    with ProxyThread(config) as running:
        until(lambda: len(running.proxy.brokers.ports) == 2, what="both ports")
        yield running


@pytest.mark.soak
def test_traffic_uses_both_ports(proxy: ProxyThread) -> None:
    """Partitions on both brokers are written and read through the proxy's two ports, and no others."""
    ports = proxy.proxy.brokers.ports
    assert len(set(ports.values())) == 2
    topic = fresh("spread")
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(10)
    seen = {broker.id: broker.port for broker in admin.list_topics(timeout=10).brokers.values()}
    assert seen == ports
    producer = Producer({"bootstrap.servers": proxy.bootstrap})
    for number in range(400):
        producer.produce(topic, b"x", partition=number % 4)
    assert producer.flush(20) == 0
    assert len(confluent(proxy.bootstrap, topic, topic, 400)) == 400


@pytest.mark.soak
def test_a_broker_that_joins_has_a_port_at_every_proxy(tmp_path: Path) -> None:
    """A client that heard of it from one may come to another, whichever listener that uses itself."""
    with ExitStack() as stack:
        kafka = Growing(tmp_path, sasl=USERS)
        stack.enter_context(kafka)
        ensure_topics(Cluster(kafka.bootstrap, NAMES))
        proxies = []
        for name, guarded in (("same", kafka.bootstrap), ("own", kafka.sasl_bootstrap)):
            connection = {} if name == "same" else {"bootstrap.servers": kafka.bootstrap}
            config = ProxyConfig(
                kafka=(address(guarded),), listen=(LOOPBACK, 0), topics=NAMES, connection=connection,
                settings=ProxySettings(id=name),
            )  # fmt: skip
            running = stack.enter_context(ProxyThread(config)).proxy
            assert running is not None
            until(lambda at=running: set(at.brokers.ports) == {1}, what="the first port")
            proxies.append(running)
        kafka.join()
        for running, bootstrap in zip(proxies, (kafka.bootstrap, kafka.sasl_bootstrap), strict=True):
            until(lambda at=running: set(at.brokers.ports) == {1, 2}, JOINED_S, "the new broker's port")
            assert running.brokers.addresses == [address(part) for part in bootstrap.split(",")]
        port = proxies[0].brokers.ports[2]
        with WireClient(f"{LOOPBACK}:{port}") as client:
            assert {broker.node_id for broker in client.metadata([], 12).brokers} == {1, 2}
