"""`weir proxy --pulsar`, killed while clients publish and consume, and started again in its place."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from broker_fixtures import apart
from cluster_kit import LOOPBACK, Cluster
from process_kit import Command
from proxy_kit import until
from pulsar_dispatch_kit import Reading, rate
from pulsar_kit import Admin, Publishing, client, fresh

from weir.stack.kafka import free_port
from weir.stack.pulsar import LocalPulsar

pytestmark = pytest.mark.soak
KILLS = 3
SENT_MIN = 500


class Restarting(ExitStack):
    """A proxy on one port; a context manager.

    Args:
        own: Weir's topics.
        pulsar: the broker.
        folder: for settings and logs.
    """

    def __init__(self, own: Cluster, pulsar: LocalPulsar, folder: Path) -> None:
        super().__init__()
        self.service = f"{LOOPBACK}:{free_port()}"
        self._folder, self._section = folder, {"topic_prefix": own.topics.prefix}
        self._words = ["proxy", "--pulsar", pulsar.service, "--kafka", own.kafka.bootstrap]
        self._words += ["--listen", self.service]

    def start(self) -> None:
        """Start it; clients are let in when this returns."""
        command = Command(self._folder / fresh("proxy"), *self._words, kafka=self._section)
        self._process = self.enter_context(command).process
        command.ready()

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait(5)


def more(count: Callable[[], int], by: int) -> Callable[[], bool]:
    """Whether there are so many more than now."""
    before = count()
    return lambda: count() >= before + by


@pytest.mark.parametrize("limited", [False, True], ids=["free", "limited"])
def test_nothing_is_lost_with_a_proxy(
    cluster: Cluster, pulsar: LocalPulsar, admin: Admin, tmp_path: Path, limited: bool
) -> None:
    """Clients come back by themselves, and all arrives; also while SENDs, permits and messages wait in it."""
    namespace = admin.namespace(f"public/{fresh('killed')}")
    topic, group = f"persistent://{namespace}/t", fresh("killed")
    limits = {"resourcegroup": group, "subscriptionDispatchRate": rate(100)}
    options = {"batching_enabled": False, "block_if_queue_full": True, "send_timeout_millis": 120_000}
    with apart(cluster, "killed") as own:
        if limited:
            own.policies.put(f"resourcegroups.{group}", {"publishRateInMsgs": 300})
            own.policies.put(f"namespaces.{namespace}", limits)
        with Restarting(own, pulsar, tmp_path) as proxy, ExitStack() as clients:
            proxy.start()
            reading = clients.enter_context(Reading(proxy.service, topic))
            reading.add()
            producer = clients.enter_context(client(proxy.service)).create_producer(topic, **options)
            with Publishing(producer) as publishing:
                for _ in range(KILLS):
                    time.sleep(2.0)
                    proxy.kill()
                    time.sleep(0.5)
                    proxy.start()
                    until(more(lambda: len(publishing.sending.sent), 50), 60, "receipts")
                    until(more(lambda: len(reading.times()), 50), 60, "messages")
            if limited:
                own.policies.put(f"namespaces.{namespace}", None)
            sent = len(publishing.sending.wait(120))
            until(lambda: len(set(data(reading))) >= sent, 60, "all messages")
    assert set(data(reading)) == set(range(publishing.numbers)) and sent == publishing.numbers > SENT_MIN


def data(reading: Reading) -> list[int]:
    """Numbers that came."""
    return [int(each.data) for each in reading.got[0]]
