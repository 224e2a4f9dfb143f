"""TLS of the Kafka proxy on real parts: clients served as without it, bad handshakes, new certificates."""

import hashlib
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cluster_kit import USERS, Cluster, address, fresh
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from connection_kit import framed, header
from kafka.protocol.metadata import MetadataRequest
from proxy_kit import ProxyThread, until
from tls_kit import DOMAIN, LOOPBACK, Authority, Pair
from traffic_kit import batch, produce
from wire_client import WireClient, errors

from enforcer.core.security.tls import ClientAuth, Protocol, TlsSettings, UpstreamTlsSettings
from enforcer.core.settings import ProxySettings
from enforcer.host.server import ProxyConfig
from streaming.contract.topics import Cluster as Home
from weir.stack.kafka import LocalKafka
from weir.stack.topics import ensure_topics

RULES = "RULE:^.*CN=([^,]*).*$/$1/L, DEFAULT"
LIMIT_S = 10.0
HALF = b"\x16\x03\x01\x02\0"
"""The beginning of a hello."""
Secured = Callable[..., ProxyThread]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Everybody's CA."""
    return Authority(tmp_path_factory.mktemp("ca"))


def guarded(cluster: Cluster, authority: Authority, *, memory_mb: int = 512, **tls: Any) -> ProxyThread:
    """A proxy with TLS that is not started; arguments are TlsSettings', but for the memory."""
    pair = authority.server()
    given = {"certificate": pair.certificate, "key": pair.key, "client_ca": authority.ca, **tls}
    settings = TlsSettings(principal_mapping_rules=RULES, **given)
    return ProxyThread(cluster.config(tls=settings, broker_port_base=0, memory_mb=memory_mb))


@pytest.fixture
def secured(cluster: Cluster, authority: Authority) -> Iterator[Secured]:
    """Starts such proxies."""
    with ExitStack() as stack:
        yield lambda **tls: stack.enter_context(guarded(cluster, authority, **tls))


@pytest.fixture(scope="module")
def picky(cluster: Cluster, authority: Authority) -> Iterator[ProxyThread]:
    """One that wants a certificate, one version, one kind of cipher and a name that it knows."""
    with guarded(
        cluster, authority, client_auth=ClientAuth.REQUIRED, protocols=[Protocol.TLS_1_2], sni=DOMAIN,
        ciphers="ECDHE+AESGCM",
    ) as proxy:  # fmt: skip
        yield proxy


def rdkafka(
    proxy: ProxyThread, authority: Authority, shown: Pair | None = None, **more: Any
) -> dict[str, Any]:
    """librdkafka's properties."""
    own = dict(zip(("ssl.certificate.location", "ssl.key.location"), shown or (), strict=False))
    return {
        "bootstrap.servers": proxy.bootstrap, "security.protocol": "SSL", "ssl.ca.location": authority.ca,
        "log_level": "0", **own, **more,
    }  # fmt: skip


def failures(proxy: ProxyThread, reason: str) -> float:
    """Handshakes that failed so."""
    return proxy.metric("tls_failures_total", reason=reason)


def handshake(proxy: ProxyThread, context: ssl.SSLContext, name: str = LOOPBACK) -> ssl.SSLSocket:
    """A connection whose handshake is done; with TLS 1.3 the server may still refuse it."""
    plain = socket.create_connection(address(proxy.bootstrap), timeout=LIMIT_S)
    return context.wrap_socket(plain, server_hostname=name)


def ends(connection: socket.socket) -> bool:
    """Whether the other side closes without a word of Kafka's."""
    connection.settimeout(LIMIT_S)
    try:
        while data := connection.recv(4096):
            assert data[:1] == b"\x15"  # an alert
    except (ssl.SSLError, ConnectionError):
        pass
    return True


def brokers_at(proxy: ProxyThread, context: ssl.SSLContext, name: str) -> list[tuple[str, int]]:
    """What Metadata says to a client that asks for a server of this name."""
    client = WireClient(proxy.bootstrap)
    client.socket = context.wrap_socket(client.socket, server_hostname=name)
    with client:
        answer = client.answer_to(MetadataRequest(version=1, topics=[]))
    return [(broker.host, broker.port) for broker in answer.brokers]


@pytest.mark.soak
def test_what_tls_keeps_is_within_the_bound(secured: Secured, authority: Authority) -> None:
    """Connections that had large requests and are idle: the greediest end, who had none is served."""
    proxy = secured(memory_mb=64)
    frame, _ = produce(9, {"no.such.topic": [batch(1, size=900_000)]})
    with ExitStack() as stack:

        def client() -> WireClient:
            made = stack.enter_context(WireClient(proxy.bootstrap))
            made.socket = authority.context().wrap_socket(made.socket, server_hostname=LOOPBACK)
            return made

        bystander = client()
        for greedy in [client() for _ in range(500)]:
            greedy.send_frame(frame)
            greedy.receive_frame()
        until(lambda: proxy.metric("closed_connections_total", reason="memory") > 0, what="some ended")
        assert bystander.metadata([]).brokers


def test_a_client_is_served_and_limited_as_without(
    cluster: Cluster, secured: Secured, authority: Authority
) -> None:
    """Its user is the one in its certificate; records come back as they were, also in large fetches."""
    proxy = secured(client_auth=ClientAuth.REQUIRED)
    user = fresh("tls")
    shown = authority.client(user.upper())
    cluster.policies.put(f"quotas[user={user}]", {"controller_mutation_rate": 1})
    cluster.await_quota(proxy, user, "any", 1)
    with WireClient(proxy.bootstrap, "any") as client:
        client.socket = authority.context(shown).wrap_socket(client.socket, server_hostname=LOOPBACK)
        assert errors(client.create({user: 50})) == {user: 0}
        assert errors(client.create({f"{user}-b": 1})) == {f"{user}-b": 89}
    producer = Producer(rdkafka(proxy, authority, shown, **{
        "message.max.bytes": 2_000_000, "enable.idempotence": True,
    }))  # fmt: skip
    bodies, failed = [os.urandom(900_000) for _ in range(20)], list[Any]()
    # The first one alone: the leader of a topic just made may refuse what is under way to it, take what comes
    # behind that, and then take the first, sent again, for one that it has had.
    for batch_of in (bodies[:1], bodies[1:]):
        for body in batch_of:
            producer.produce(user, body, partition=0, on_delivery=lambda why, _: why and failed.append(why))
        assert producer.flush(LIMIT_S) == 0 and not failed
    consumer = Consumer(rdkafka(proxy, authority, shown, **{
        "group.id": user, "auto.offset.reset": "earliest", "fetch.max.bytes": 50_000_000,
    }))  # fmt: skip
    consumer.subscribe([user])
    got = [message for message in consumer.consume(20, timeout=2 * LIMIT_S) if message.error() is None]
    consumer.close()
    assert [hashlib.sha256(m.value()).digest() for m in got] == [hashlib.sha256(b).digest() for b in bodies]


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("plain", "no_tls"), ("http", "no_tls"), ("half", "closed"), ("no_certificate", "no_certificate"),
        ("other_ca", "untrusted"), ("expired", "expired"), ("version", "protocol"), ("cipher", "cipher"),
        ("client_distrusts", "refused_by_client"),
    ],
)  # fmt: skip
def test_a_bad_handshake_ends_one_connection(
    picky: ProxyThread, authority: Authority, tmp_path: Path, case: str, reason: str
) -> None:
    """It is counted by its reason, and nobody else notices."""
    proxy, before_it = picky, failures(picky, reason)
    good = authority.context(authority.client("good"))
    with handshake(proxy, good) as bystander:
        if case in ("plain", "http", "half"):
            sent = {"plain": framed(header(18, 0, 1)), "http": b"GET / HTTP/1.1\r\n\r\n", "half": HALF}
            with socket.create_connection(address(proxy.bootstrap), timeout=LIMIT_S) as client:
                client.sendall(sent[case])
                if case == "half":
                    client.shutdown(socket.SHUT_WR)
                assert ends(client)
        else:
            other = Authority(tmp_path / "other")
            context = {
                "no_certificate": authority.context,
                "other_ca": lambda: authority.context(other.client("eve")),
                "expired": lambda: authority.context(authority.expired("old")),
                "client_distrusts": lambda: other.context(other.client("eve")),
            }.get(case, lambda: authority.context(authority.client("good")))()
            if case == "version":
                context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
            if case == "cipher":
                context.set_ciphers("AES256-SHA256:@SECLEVEL=0")
                context.maximum_version = ssl.TLSVersion.TLSv1_2
            with pytest.raises((ssl.SSLError, ConnectionError)):
                handshake(proxy, context)
        until(lambda: failures(proxy, reason) == before_it + 1, what=f"a failure counted as {reason}")
        assert brokers_at(proxy, good, LOOPBACK)
        bystander.settimeout(0.2)
        with pytest.raises(TimeoutError):
            bystander.recv(1)


def test_one_port_for_all_brokers(secured: Secured, authority: Authority) -> None:
    """Answers name broker-ID.DOMAIN at our port, which leads to the broker; any other to the bootstrap.

    Whoever asks for a broker that nobody has is sent away, and may come again.
    """
    proxy = secured(sni=DOMAIN)
    context = authority.context()
    _, port = address(proxy.bootstrap)
    named = [(f"broker-1.{DOMAIN}", port)]
    for name in (LOOPBACK, DOMAIN, "localhost", f"broker-1.{DOMAIN}", f"x.{DOMAIN}"):
        assert brokers_at(proxy, context, name) == named
    with handshake(proxy, context, f"broker-99.{DOMAIN}") as client:
        assert ends(client) and failures(proxy, "unknown_name") == 1


def test_a_new_certificate_is_taken_without_a_restart(
    secured: Secured, authority: Authority, tmp_path: Path
) -> None:
    """New clients see it, those that are connected notice nothing; one that is of no use is passed over."""
    first, second = authority.server(), authority.server()
    pair = Pair(str(tmp_path / "c.pem"), str(tmp_path / "k.pem"))
    for source, target in zip(first, pair, strict=True):
        Path(target).write_bytes(Path(source).read_bytes())
    proxy = secured(certificate=pair.certificate, key=pair.key)
    context = authority.context()
    with handshake(proxy, context) as early:
        before = early.getpeercert()
        Path(pair.certificate).write_bytes(Path(second.certificate).read_bytes())
        with handshake(proxy, context) as between:
            assert between.getpeercert() == before
        Path(pair.key).write_bytes(Path(second.key).read_bytes())
        with handshake(proxy, context) as late:
            assert late.getpeercert() != before
        early.settimeout(0.2)
        with pytest.raises(TimeoutError):
            early.recv(1)


def test_half_open_clients_keep_nobody_out(secured: Secured, authority: Authority) -> None:
    """Five hundred that say nothing after they have come: the next one is served at once."""
    proxy = secured()
    idle = [socket.create_connection(address(proxy.bootstrap), timeout=LIMIT_S) for _ in range(500)]
    try:
        assert brokers_at(proxy, authority.context(), LOOPBACK)
    finally:
        for client in idle:
            client.close()
    until(lambda: failures(proxy, "closed") == 500, what="all of them counted")


@pytest.fixture(scope="module")
def tls_brokers(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker whose second listener speaks SASL over TLS, and demands a certificate."""
    listener = "listener.name.sasl.ssl"
    properties = {
        **authority.listener(), f"{listener}.truststore.type": "PEM",
        f"{listener}.truststore.location": authority.ca, f"{listener}.client.auth": "required",
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("tls-kafka")
    with LocalKafka(folder, sasl=USERS, properties=properties, advertise="localhost") as kafka:
        ensure_topics(Home(kafka.bootstrap))
        yield kafka


def before(kafka: LocalKafka, host: str = "localhost", **settings: Any) -> ProxyThread:
    """A proxy before that listener."""
    return ProxyThread(ProxyConfig(
        kafka=((host, address(kafka.sasl_bootstrap)[1]),), listen=(LOOPBACK, 0),
        connection={"bootstrap.servers": kafka.bootstrap},
        settings=ProxySettings(broker_port_base=0, **settings),
    ))  # fmt: skip


@pytest.mark.soak
def test_brokers_are_spoken_to_by_tls(tls_brokers: LocalKafka, authority: Authority) -> None:
    """With a private CA and a certificate of ours; a client that logs in is known by that."""
    own, pair = authority.client("weir"), authority.server()
    settings = {
        "upstream_tls": UpstreamTlsSettings(ca=authority.ca, certificate=own.certificate, key=own.key),
        "tls": TlsSettings(certificate=pair.certificate, key=pair.key),
    }
    with before(tls_brokers, **settings) as proxy:
        login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
                 "sasl.username": "carol", "sasl.password": USERS.scram["carol"]}  # fmt: skip
        name = fresh("upstream")
        admin = AdminClient(rdkafka(proxy, authority, **login))
        admin.create_topics([NewTopic(name, 3, 1)])[name].result(LIMIT_S)
        assert "carol" in {connection.user for connection in proxy.proxy.connections}


@pytest.mark.soak
@pytest.mark.parametrize("lack", ["ca", "certificate", "hostname"])
def test_a_broker_that_is_not_trusted_is_none(
    tls_brokers: LocalKafka, authority: Authority, tmp_path: Path, lack: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its clients' connections end, counted, and the log says which broker and why."""
    other, own = Authority(tmp_path / "other"), authority.client("weir")
    given = {"ca": authority.ca, "certificate": own.certificate, "key": own.key}
    if lack == "ca":
        given["ca"] = other.ca
    elif lack == "certificate":
        given |= {"certificate": "", "key": ""}
    host = LOOPBACK if lack == "hostname" else "localhost"
    with before(tls_brokers, host, upstream_tls=UpstreamTlsSettings(**given)) as proxy:
        with WireClient(proxy.bootstrap) as client:
            assert client.closed_within(LIMIT_S)
        reasons = ("tls", "lost")
        told = {reason: proxy.metric("upstream_failures_total", reason=reason) for reason in reasons}
        # TLS 1.3 tells a client that it has no certificate only once it reads.
        assert sum(told.values()) >= 1 and (lack == "certificate" or told["tls"] >= 1)
        assert lack == "certificate" or "cannot be spoken to by TLS" in caplog.text
