"""One group's limit on SENDs shared by several proxies, of Pulsar and of Kafka, with the law of shares."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest
from broker_fixtures import apart, serving
from cluster_kit import Cluster
from proxy_kit import Decider
from publishing_clients import Driving, drive_kafka, drive_pulsar
from pulsar_kit import Admin, fresh
from pulsar_proxy_kit import PulsarThread, joined
from stack_kit import new_topics

from weir.stack.pulsar import LocalPulsar

pytestmark = pytest.mark.soak
RATE = 300
SETTLE_S = 12.0
"""Shares move half-way to what is fair each round of a second."""


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
            return stack.enter_context(joined(company, pulsar, name))

        yield start


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
        assert min(driving.hold(RATE, SETTLE_S)) > 0.4 * RATE


def test_a_group_on_kafka_and_pulsar_has_one_limit(
    company: Cluster, join: Callable[[str], PulsarThread], admin: Admin
) -> None:
    """A Kafka namespace through Kafka's proxy and a Pulsar namespace through Pulsar's."""
    namespace = admin.namespace(f"public/{fresh('both')}")
    topic = f"acme.{fresh('both')}.t"
    new_topics(company.kafka.bootstrap, topic)
    group_of(company, namespace, "/".join(topic.split(".")[:2]))
    with serving(company, id="kafka-side") as kafka:
        pulsar = join("pulsar-side")
        kafka.await_part(0.5)
        with Driving(
            partial(drive_kafka, kafka.bootstrap, topic),
            partial(drive_pulsar, pulsar.bootstrap, f"persistent://{namespace}/t"),
        ) as driving:
            assert min(driving.hold(RATE, SETTLE_S)) > 0.4 * RATE
