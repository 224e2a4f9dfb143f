"""The doors of the Kafka proxy on real parts: clients behind a load balancer, connections that get old."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cluster_kit import Cluster, address, fresh
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from login_kit import Login
from path_kit import AnnouncingRelay
from proxy_header_kit import CLIENTS, HEADERS
from proxy_kit import ProxyThread, until
from stack_kit import new_topics
from tls_kit import Authority
from wire_client import Closed, WireClient

from enforcer.core.security.tls import TlsSettings

LIMIT_S = 20.0
BALANCER = "127.0.0.2"
HIDDEN = "127.0.0.3"


@contextmanager
def balanced(proxy: ProxyThread, header: bytes) -> Iterator[str]:
    """A load balancer before all ports of a proxy; its bootstrap address."""
    ports = proxy.proxy.brokers.ports
    until(lambda: ports, what="the broker's port")
    host, port = address(proxy.bootstrap)
    with ExitStack() as relays:
        for one in (port, *ports.values()):
            relays.enter_context(AnnouncingRelay((BALANCER, one), (host, one), header))
        yield f"{BALANCER}:{port}"


def sent(properties: dict[str, Any], topic: str, count: int, pause_s: float = 0) -> list[bytes]:
    """Send so many records, and get them back."""
    new_topics(properties, topic)
    producer = Producer({**properties, "linger.ms": 0})
    for number in range(count):
        producer.produce(topic, b"%d" % number)
        producer.poll(0)
        time.sleep(pause_s)
    assert producer.flush(LIMIT_S) == 0
    consumer = Consumer({**properties, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    got: list[bytes] = []
    deadline = time.monotonic() + LIMIT_S
    while len(got) < count and time.monotonic() < deadline:
        got += [record.value() for record in consumer.consume(count, timeout=1) if record.error() is None]
        time.sleep(pause_s)
    consumer.close()
    return got


@pytest.mark.parametrize(("kind", "tls"), [
    ("v1", False), ("v2", True),
    *(pytest.param(*one, marks=pytest.mark.soak) for one in (("v1", True), ("v2", False))),
])  # fmt: skip
def test_a_client_behind_a_load_balancer_is_served(
    cluster: Cluster, tmp_path: Path, kind: str, tls: bool
) -> None:
    """Its own address is what the proxy knows and bounds; past the load balancer nobody comes in."""
    authority = Authority(tmp_path)
    doors: dict[str, Any] = {"proxy_protocol": "required"}
    properties: dict[str, Any] = {"log_level": "0"}
    if tls:
        pair = authority.issue(BALANCER)
        doors["tls"] = TlsSettings(certificate=pair.certificate, key=pair.key)
        properties |= {"security.protocol": "SSL", "ssl.ca.location": authority.ca}
    # On an address of its own: a client that an earlier test left looks for its proxy where that one was.
    config = replace(cluster.config(broker_port_base=0, advertise=BALANCER, **doors), listen=(HIDDEN, 0))
    with ProxyThread(config) as proxy, balanced(proxy, HEADERS[kind](*CLIENTS["tcp6"])) as bootstrap:
        properties["bootstrap.servers"] = bootstrap
        assert sent(properties, fresh("balanced"), 100) == [b"%d" % number for number in range(100)]
        with WireClient(proxy.bootstrap) as past:
            past.send_frame(b"anything")
            assert past.closed_within(LIMIT_S)
        admin = AdminClient(properties)
        admin.list_topics(timeout=LIMIT_S)
        own = proxy.proxy
        assert own is not None
        # A client may be between its first connection and the one to a broker that it was told of.
        until(lambda: {connection.peer for connection in list(own.connections)} == {CLIENTS["tcp6"]})
        assert proxy.metric("refused_connections_total", reason="no_header") == 1


def test_a_client_with_too_many_connections(cluster: Cluster) -> None:
    """Its next one ends at once, until one has gone; others have their own."""
    header = HEADERS["v2"]
    config = cluster.config(proxy_protocol="required", connections_per_address=2)
    with ProxyThread(config) as proxy:
        clients = [WireClient(proxy.bootstrap) for _ in range(4)]
        for number, client in enumerate(clients):
            client.socket.sendall(header("192.0.2.8" if number == 3 else "192.0.2.7", number))
            if number < 2 or number == 3:
                client.metadata([])
            else:
                assert client.closed_within(LIMIT_S)
        assert proxy.metric("refused_connections_total", reason="connections_per_address") == 1
        clients[0].socket.close()
        until(lambda: len(proxy.proxy.connections) == 2, what="it is gone")
        with WireClient(proxy.bootstrap) as late:
            late.socket.sendall(header("192.0.2.7", 9))
            late.metadata([])
        for client in clients:
            client.socket.close()


@pytest.mark.soak
def test_clients_notice_nothing_of_the_greatest_age(cluster: Cluster) -> None:
    """Every record comes once, though connections end all the time."""
    with ProxyThread(cluster.config(broker_port_base=0, connection_age_max_s=1)) as proxy:
        properties = {"bootstrap.servers": proxy.bootstrap, "log_level": "0", "enable.idempotence": True}
        # The proxy looks once a second, so each connection lasts up to two.
        got = sent(properties, fresh("aged"), 700, pause_s=0.01)
        assert got == [b"%d" % number for number in range(700)]
        assert proxy.metric("closed_connections_total", reason="age") >= 3


def test_a_user_with_too_many_connections(cluster: Cluster) -> None:
    """Its third login ends, until one has gone; who does not log in ends too."""
    with ProxyThread(cluster.config(sasl=True, connections_per_user=2, login_timeout_s=3)) as proxy:
        *clients, silent = (WireClient(proxy.bootstrap) for _ in range(4))

        def log_in(client: WireClient) -> None:
            assert Login(client).scram("n,,n=carol,r=nonce").error_code == 0

        for client in clients[:2]:
            log_in(client)
        with pytest.raises(Closed):
            log_in(clients[2])
        assert proxy.metric("closed_connections_total", reason="connections_per_user") == 1
        assert silent.closed_within(LIMIT_S)
        assert proxy.metric("closed_connections_total", reason="no_login") == 1
        clients[1].socket.close()
        until(lambda: len(proxy.proxy.connections) == 1, what="it is gone")
        with WireClient(proxy.bootstrap) as late:
            log_in(late)
            for client in (late, clients[0]):
                client.metadata([])
        for client in (*clients, silent):
            client.socket.close()


def test_what_stands_before_brokers_hears_of_clients(cluster: Cluster) -> None:
    """A proxy that demands a header behind one that sends it: both know whose the connection is."""
    with ProxyThread(cluster.config(proxy_protocol="required")) as inner:
        outward = {"kafka": inner.bootstrap, "upstream_proxy_protocol": True, "proxy_protocol": "required"}
        with ProxyThread(cluster.config(**outward)) as outer, WireClient(outer.bootstrap) as client:
            client.socket.sendall(HEADERS["v1"](*CLIENTS["tcp6"]))
            client.metadata([])
            for proxy in (inner.proxy, outer.proxy):
                assert {connection.peer for connection in proxy.connections} == {CLIENTS["tcp6"]}
