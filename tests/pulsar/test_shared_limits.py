"""One group's limit on SENDs shared by several proxies, of Pulsar and of Kafka, with the law of shares."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from broker_fixtures import apart, cluster, serving
from cluster_kit import LOOPBACK, Cluster, address
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from proxy_kit import Decider
from pulsar import Result
from pulsar_kit import Admin, client, fresh
from pulsar_proxy_kit import PulsarThread

from enforcer.core.settings import ProxySettings
from enforcer.pulsar.proxy import PulsarProxyConfig
from weir.stack.pulsar import LocalPulsar

__all__ = ["cluster"]
pytestmark = pytest.mark.soak
logger = logging.getLogger(__name__)
RATE = 300
SETTLE_S = 12.0
"""Shares move half-way to what is fair each round of a second."""
MEASURED_S = 30.0
Times = list[float]


@pytest.fixture(scope="module")
def company(cluster: Cluster) -> Iterator[Cluster]:
    """An installation of its own whose rounds last a second."""
    with apart(cluster, "pulsar-shares") as own:
        own.policies.put("broker", {"resourceUsagePublishIntervalInSecs": 1})
        with Decider(own.kafka.bootstrap, own.topics, "shares"):
            yield own


@pytest.fixture
def join(company: Cluster, pulsar: LocalPulsar) -> Iterator[Callable[[str], PulsarThread]]:
    """Start proxies of Pulsar's that follow it."""
    with ExitStack() as stack:

        def start(name: str) -> PulsarThread:
            return stack.enter_context(
                PulsarThread(
                    PulsarProxyConfig(
                        pulsar=(address(pulsar.service),),
                        kafka=(address(company.kafka.bootstrap),),
                        listen=(LOOPBACK, 0),
                        topics=company.topics,
                        settings=ProxySettings(id=name),
                    )
                )
            )

        yield start


class Driving:
    """Clients that send as fast as they may until they are stopped; a context manager."""

    def __init__(self, *clients: Callable[[threading.Event, Times], None]) -> None:
        self.ended: list[Times] = [[] for _ in clients]
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=each, args=(self._stop, ended))
            for each, ended in zip(clients, self.ended, strict=True)
        ]

    def __enter__(self) -> "Driving":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def rates(self, for_s: float) -> list[float]:
        """Acknowledged messages a second of each from now on."""
        began = time.monotonic()
        time.sleep(for_s)
        rates = [sum(began <= at < began + for_s for at in list(each)) / for_s for each in self.ended]
        logger.info("messages a second: %s", rates)
        return rates


def drive_pulsar(service: str, topic: str, stop: threading.Event, ended: Times) -> None:
    """Singles, as many as the proxy lets through."""
    with client(service) as own:
        producer = own.create_producer(
            topic, batching_enabled=False, block_if_queue_full=True, max_pending_messages=100
        )

        def done(result: Any, _: Any) -> None:
            if result == Result.Ok:
                ended.append(time.monotonic())

        while not stop.is_set():
            producer.send_async(b"x" * 100, done)
        producer.flush()


def drive_kafka(bootstrap: str, topic: str, stop: threading.Event, ended: Times) -> None:
    """The same on Kafka, in batches of ten at most."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "batch.num.messages": 10, "linger.ms": 5, "log_level": 0}
    )

    def done(error: Any, _: Any) -> None:
        if error is None:
            ended.append(time.monotonic())

    while not stop.is_set():
        if len(producer) < 100:
            producer.produce(topic, b"x" * 100, on_delivery=done)
        producer.poll(0 if len(producer) < 100 else 0.01)
    producer.flush(30)


def group_of(company: Cluster, *namespaces: str) -> str:
    """A group with 300 messages a second, and these in it."""
    group = fresh("shared")
    company.policies.put(f"resourcegroups.{group}", {"publishRateInMsgs": RATE})
    for namespace in namespaces:
        company.policies.put(f"namespaces.{namespace}", {"resourcegroup": group})
    return group


def test_two_proxies_share_a_group_over_two_namespaces(
    company: Cluster, join: Callable[[str], PulsarThread], admin: Admin
) -> None:
    """Together they let through what the limit allows, within 3 % over 30 s, and each its fair part."""
    namespaces = [admin.namespace(f"public/{fresh('two')}") for _ in range(2)]
    group_of(company, *namespaces)
    first, second = join("p1"), join("p2")
    first.await_part(0.5)
    with Driving(
        partial(drive_pulsar, first.bootstrap, f"persistent://{namespaces[0]}/t"),
        partial(drive_pulsar, second.bootstrap, f"persistent://{namespaces[1]}/t"),
    ) as driving:
        time.sleep(SETTLE_S)
        rates = driving.rates(MEASURED_S)
    assert 0.97 * RATE <= sum(rates) <= 1.03 * RATE, rates
    assert min(rates) > 0.4 * RATE


def test_a_group_on_kafka_and_pulsar_has_one_limit(
    company: Cluster, join: Callable[[str], PulsarThread], admin: Admin
) -> None:
    """A Kafka namespace through Kafka's proxy and a Pulsar namespace through Pulsar's."""
    namespace = admin.namespace(f"public/{fresh('both')}")
    topic = f"acme.{fresh('both')}.t"
    kafka_admin = AdminClient({"bootstrap.servers": company.kafka.bootstrap})
    kafka_admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
    group_of(company, namespace, "/".join(topic.split(".")[:2]))
    with serving(company, id="kafka-side") as kafka:
        pulsar = join("pulsar-side")
        kafka.await_part(0.5)
        with Driving(
            partial(drive_kafka, kafka.bootstrap, topic),
            partial(drive_pulsar, pulsar.bootstrap, f"persistent://{namespace}/t"),
        ) as driving:
            time.sleep(SETTLE_S)
            rates = driving.rates(MEASURED_S)
    assert 0.97 * RATE <= sum(rates) <= 1.03 * RATE, rates
    assert min(rates) > 0.4 * RATE
