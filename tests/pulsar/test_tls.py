"""TLS on both sides of the Pulsar proxy: real clients, a real broker with a TLS port."""

from pathlib import Path

import pytest
from proxy_kit import until
from pulsar import InitialPosition
from pulsar_kit import Admin, client, fresh, numbered, receive, send_all
from pulsar_proxy_kit import bare_proxy
from tls_kit import Authority

from enforcer.core.security.tls import ClientAuth, UpstreamTlsSettings
from weir.stack.kafka import free_port
from weir.stack.pulsar import LocalPulsar


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
