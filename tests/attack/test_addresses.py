"""Addresses of brokers and controllers, by which a client would go around the proxy."""

from collections.abc import Callable
from typing import Any

import pytest
from cluster_kit import Cluster
from confluent_kafka.admin import AdminClient, ConfigResource
from kafka.protocol.admin import cluster as cluster_api
from kafka.protocol.admin import configs
from kafka_kit import build
from proxy_kit import ProxyThread
from stack_kit import run_java
from wire_client import WireClient, metadata_request

BROKER = 4
NAMES = {
    "listeners", "advertised.listeners", "controller.quorum.voters", "controller.quorum.bootstrap.servers",
}  # fmt: skip


def quorum(client: WireClient, version: int) -> Any:
    """DescribeQuorum of the metadata."""
    topic = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
    return client.answer_to(build(cluster_api.DescribeQuorumRequest, version, topics=[topic]))


def settings(client: WireClient, version: int) -> Any:
    """DescribeConfigs of the broker, with synonyms."""
    node = client.answer_to(metadata_request([], 4)).brokers[0].node_id
    part = {"resource_type": BROKER, "resource_name": str(node), "configuration_keys": None}
    client.send(build(configs.DescribeConfigsRequest, version, resources=[part], include_synonyms=True))
    return client.receive(configs.DescribeConfigsResponse, version).results[0].configs


def test_controllers_have_no_address(cluster: Cluster, wire: Callable[..., WireClient]) -> None:
    """All else that is said of the quorum is there."""
    for version in (0, 1, 2):
        straight, seen = (
            quorum(client, version) for client in (wire("a", cluster.kafka.bootstrap), wire("a"))
        )
        voters = [part.current_voters[0].replica_id for part in seen.topics[0].partitions]
        assert voters == [part.current_voters[0].replica_id for part in straight.topics[0].partitions]
        if version == 2:
            assert [node.node_id for node in seen.nodes] == [node.node_id for node in straight.nodes]
            assert any(node.listeners for node in straight.nodes)
            assert not any(node.listeners for node in seen.nodes)


@pytest.mark.parametrize("version", [1, 2, 4])
def test_settings_tell_no_address(cluster: Cluster, wire: Callable[..., WireClient], version: int) -> None:
    """They are there without their value; no other value or synonym has a port of the broker's."""
    straight = {config.name: config for config in settings(wire("a", cluster.kafka.bootstrap), version)}
    seen = {config.name: config for config in settings(wire("a"), version)}
    assert seen.keys() == straight.keys()
    told = [config.value for name, config in straight.items() if name in NAMES and config.value]
    ports = {place.rpartition(":")[2] for value in told for place in value.split(",")}
    assert len(ports) >= 2
    for name, config in seen.items():
        values = [config.value, *(one.value for one in config.synonyms)]
        assert not any(value and value.rpartition(":")[2] in ports for value in values), name
        if name in NAMES:
            assert config.is_sensitive and values == [None] * len(values)
        else:
            assert config.value == straight[name].value


@pytest.mark.soak
def test_tools_still_work(proxy: ProxyThread) -> None:
    """Kafka's own tool for the quorum, and a client's look at a broker's settings."""
    tool = "org.apache.kafka.tools.MetadataQuorumCommand"
    done = run_java(tool, "--bootstrap-server", proxy.bootstrap, "describe", "--status")
    assert done.returncode == 0 and "LeaderId" in done.stdout, done.stderr
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
    node = next(iter(admin.list_topics(timeout=10).brokers))
    resource = ConfigResource(ConfigResource.Type.BROKER, str(node))
    found = admin.describe_configs([resource])[resource].result(10)
    assert found["num.partitions"].value == "3" and found["listeners"].value is None
