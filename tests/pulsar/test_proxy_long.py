"""The Pulsar proxy before brokers that come, go and check logins: what takes a broker of its own."""

import time
from pathlib import Path

import pulsar as client_library
import pytest
from proxy_kit import until
from pulsar_kit import Admin, Publishing, client, fresh, receive, send_all
from pulsar_proxy_kit import bare_proxy
from pulsar_tokens import checking, token

from weir.stack.pulsar import LocalPulsar

pytestmark = pytest.mark.soak


def test_logins_are_the_brokers(tmp_path: Path) -> None:
    """Tokens pass, the broker sees whose they are, so does the proxy; a forged one is nobody's."""
    with (
        LocalPulsar(tmp_path, token=token("root"), properties=checking("ann")) as broker,
        bare_proxy(broker.service) as proxy,
    ):
        topic = fresh("logins")
        login = client_library.AuthenticationToken(token("ann"))
        with client(proxy.bootstrap, authentication=login) as made:
            producer, consumer = made.create_producer(topic), made.subscribe(topic, "s")
            send_all(producer, [b"x"] * 10)
            assert len(receive(consumer, most=10)) == 10
            stats = Admin(broker.admin, token("root")).stats(topic)
            assert [one["appId"] for one in stats["subscriptions"]["s"]["consumers"]] == ["ann"]
            users = {one.user for one in list(proxy.proxy.connections)}
            assert users == {"ann"}
        forged = client_library.AuthenticationToken(token("ann", b"x" * 32))
        with client(proxy.bootstrap, authentication=forged, operation_timeout_seconds=3) as made:
            with pytest.raises(client_library.PulsarException):
                made.create_producer(topic)
            assert "ann" not in {one.user for one in list(proxy.proxy.connections)}


def test_a_broker_that_restarts(tmp_path: Path) -> None:
    """Clients come back through the proxy by themselves; nothing that was acknowledged is lost."""
    with LocalPulsar(tmp_path) as broker, bare_proxy(broker.service) as proxy:
        topic = fresh("restarts")
        with client(proxy.bootstrap) as made:
            producer = made.create_producer(topic, block_if_queue_full=True, send_timeout_millis=120_000)
            consumer = made.subscribe(topic, "s")
            with Publishing(producer, 200) as publishing:
                time.sleep(1)
                broker.stop()
                until(lambda: not proxy.metric("connections"), what="the end of all connections")
                broker.start()
                until(lambda: proxy.metric("connections"), 60, "clients that come back")
                time.sleep(2)
            sent = len(publishing.sending.wait(120))
            got = {one.data for one in receive(consumer, quiet_s=5.0, for_s=60)}
            assert len(got) == sent > 100
