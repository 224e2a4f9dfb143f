"""The doors of the Pulsar proxy on real parts: TLS on both sides, a client behind a load balancer."""

from pathlib import Path

import pytest
from path_kit import AnnouncingRelay
from proxy_header_kit import CLIENTS, HEADERS
from proxy_kit import until
from pulsar import InitialPosition
from pulsar_kit import Admin, client, fresh, numbered, receive, send_all
from pulsar_proxy_kit import bare_proxy
from tls_kit import Authority

from enforcer.core.security.tls import ClientAuth, UpstreamTlsSettings
from weir.stack.kafka import free_port
from weir.stack.pulsar import LocalPulsar

AGED = {"connection_age_max_s": 1}


@pytest.mark.parametrize("more", [{}, pytest.param(AGED, marks=pytest.mark.soak)], ids=["lasting", "aged"])
def test_a_client_behind_a_load_balancer_is_served(
    pulsar: LocalPulsar, admin: Admin, more: dict[str, int]
) -> None:
    """Its own address is what proxy and broker know; connections that get old lose no message."""
    doors = {"proxy_protocol": "required", "upstream_proxy_protocol": True, **more}
    with bare_proxy(pulsar.service, own=doors) as proxy:
        listen = ("127.0.0.2", free_port())
        with (
            AnnouncingRelay(listen, proxy.proxy.listen, HEADERS["v2"](*CLIENTS["tcp6"])),
            client("pulsar://{}:{}".format(*listen)) as connected,
        ):
            topic = admin.topic(fresh("doors"))
            consumer = connected.subscribe(topic, "all", initial_position=InitialPosition.Earliest)
            producer = connected.create_producer(topic, batching_enabled=False)
            messages = numbered(50)
            assert len(send_all(producer, messages)) == 50
            assert {one.data for one in receive(consumer, most=50)} == set(messages)
            assert {one.peer for one in proxy.proxy.connections} == {CLIENTS["tcp6"]}
            [publisher] = admin.stats(topic)["publishers"]
            assert publisher["address"] == "2001:db8:0:0:0:0:0:7:40002"
            if more:
                until(lambda: proxy.metric("closed_connections_total", reason="age"), what="an old one")
                assert len(send_all(producer, messages)) == 50
        with client(f"pulsar://{proxy.bootstrap}", operation_timeout_seconds=3) as past, pytest.raises(
            Exception, match=r"(?i)timeout|connect"
        ):
            past.create_producer(topic)
        assert proxy.metric("refused_connections_total", reason="no_header")


def passes(service: str, authority: Authority, topic: str) -> None:
    """A client sends and gets fifty messages through a proxy."""
    with client(f"pulsar+ssl://{service}", tls_trust_certs_file_path=authority.ca) as connected:
        consumer = connected.subscribe(topic, "all", initial_position=InitialPosition.Earliest)
        producer = connected.create_producer(topic, batching_enabled=False)
        messages = numbered(50)
        assert len(send_all(producer, messages)) == 50
        assert [one.data for one in receive(consumer, most=50)] == messages


def test_a_client_over_tls_is_served_as_without(pulsar: LocalPulsar, admin: Admin, tmp_path: Path) -> None:
    """Lookups lead back to the proxy; a client that does not trust it is out, counted."""
    authority = Authority(tmp_path)
    own = {"tls": authority.door(client_auth=ClientAuth.REQUESTED)}
    with bare_proxy(pulsar.service, own=own) as proxy:
        passes(proxy.bootstrap, authority, admin.topic(fresh("tls")))
        other = Authority(tmp_path / "other")
        with (
            client(f"pulsar+ssl://{proxy.bootstrap}", tls_trust_certs_file_path=other.ca,
                   operation_timeout_seconds=3) as distrusting,
            pytest.raises(Exception, match=r"(?i)timeout|connect"),
        ):  # fmt: skip
            distrusting.create_producer(fresh("out"))
        refused = "tls_failures_total"
        until(lambda: proxy.metric(refused, reason="refused_by_client") > 0, what="it was counted")


@pytest.mark.soak
def test_brokers_are_spoken_to_by_tls(tmp_path: Path) -> None:
    """With a private CA, at the address that lookups name for TLS."""
    authority, port = Authority(tmp_path / "ca"), free_port()
    broker = authority.server()
    conf = {
        "brokerServicePortTls": str(port), "tlsCertificateFilePath": broker.certificate,
        "tlsKeyFilePath": broker.key, "tlsTrustCertsFilePath": authority.ca,
    }  # fmt: skip
    own = {"tls": authority.door(), "upstream_tls": UpstreamTlsSettings(ca=authority.ca)}
    with LocalPulsar(tmp_path / "pulsar", properties=conf) as pulsar:
        topic = Admin(pulsar.admin).topic(fresh("upstream"))
        with bare_proxy(f"127.0.0.1:{port}", own=own) as proxy:
            passes(proxy.bootstrap, authority, topic)
