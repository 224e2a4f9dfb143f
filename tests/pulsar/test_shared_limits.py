"""One group's limit on what is published through Kafka's proxy and Pulsar's, with the law of shares."""

from functools import partial

import pytest
from broker_fixtures import apart, serving
from cluster_kit import Cluster
from proxy_kit import Decider
from publishing_clients import Driving, drive_kafka, drive_pulsar
from pulsar_kit import Admin, fresh
from pulsar_proxy_kit import joined
from stack_kit import new_topics

from weir.stack.pulsar import LocalPulsar

pytestmark = pytest.mark.soak
RATE = 300
SETTLE_S = 12.0
"""Shares move half-way to what is fair each round of a second."""


def test_a_group_on_kafka_and_pulsar_has_one_limit(
    cluster: Cluster, pulsar: LocalPulsar, admin: Admin
) -> None:
    """A Kafka namespace through Kafka's proxy and a Pulsar namespace through Pulsar's: each its fair part."""
    namespace, group = admin.namespace(f"public/{fresh('both')}"), fresh("shared")
    topic = f"acme.{fresh('both')}.t"
    new_topics(cluster.kafka.bootstrap, topic)
    with apart(cluster, "pulsar-shares") as own, Decider(own.kafka.bootstrap, own.topics, "shares"):
        own.policies.put("broker", {"resourceUsagePublishIntervalInSecs": 1})
        own.policies.put(f"resourcegroups.{group}", {"publishRateInMsgs": RATE})
        for each in (namespace, "/".join(topic.split(".")[:2])):
            own.policies.put(f"namespaces.{each}", {"resourcegroup": group})
        with serving(own, id="kafka-side") as kafka, joined(own, pulsar, "pulsar-side") as proxy:
            kafka.await_part(0.5)
            with Driving(
                partial(drive_kafka, kafka.bootstrap, topic),
                partial(drive_pulsar, proxy.bootstrap, f"persistent://{namespace}/t"),
            ) as driving:
                assert min(driving.hold(RATE, SETTLE_S)) > 0.4 * RATE
