"""Quotas that tools give to the cluster, through the proxy and as on Kafka: they are taken over, and hold.

kafka-configs and Strimzi's user operator use Kafka's own admin client; Terraform's provider of Mongey uses
Sarama's, whose requests are sent here in its form: version 0, one entity, matched exactly and strictly.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from broker_fixtures import own_cluster, serving
from cluster_kit import Cluster, fresh
from kafka.protocol.admin import client_quotas
from kafka_kit import build
from proxy_kit import ProxyThread, until
from stack_kit import run_java
from wire_client import WireClient, errors

from streaming.contract.topics import Cluster as Home
from streaming.kafka_io.cluster_quotas import QuotaReader
from streaming.kafka_io.policy_topic import PolicyReader, read_policies
from weir.collect.kafka import collect_once

LIMIT_S = 30.0
RATES = {"controller_mutation_rate": 1.0, "producer_byte_rate": 1_000.0, "consumer_byte_rate": 2_000.0}
NO_LAW = {"request_percentage": 50.0}
cluster = own_cluster("tools")


@pytest.fixture(scope="module")
def proxy(cluster: Cluster) -> Iterator[ProxyThread]:
    """Through which an administrator may change quotas."""
    with serving(cluster, id="tools", alter_client_quotas="admins", admins=["ANONYMOUS"]) as running:
        yield running


def by_java(proxy: ProxyThread, name: str, *, remove: bool = False) -> None:
    """Give a client-id these quotas, or take them away."""
    quotas = RATES | NO_LAW
    change = ("--delete-config", ",".join(quotas)) if remove else (
        "--add-config", ",".join(f"{key}={value}" for key, value in quotas.items())
    )  # fmt: skip
    done = run_java(
        "kafka.admin.ConfigCommand", "--bootstrap-server", proxy.bootstrap, "--alter",
        "--entity-type", "clients", "--entity-name", name, *change,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def by_terraform(proxy: ProxyThread, name: str, *, remove: bool = False) -> None:
    """The same, and look until it is so: brokers learn of it a little later."""
    quotas = RATES | NO_LAW
    ops = [{"key": key, "value": value, "remove": remove} for key, value in quotas.items()]
    entry: dict[str, Any] = {"entity": [{"entity_type": "client-id", "entity_name": name}], "ops": ops}
    part = {"entity_type": "client-id", "match_type": 0, "match": name}
    with WireClient(proxy.bootstrap) as client:
        client.send(build(client_quotas.AlterClientQuotasRequest, 0, entries=[entry], validate_only=False))
        answer = client.receive(client_quotas.AlterClientQuotasResponse, 0)
        assert [one.error_code for one in answer.entries] == [0]

        def told() -> list[dict[str, float]]:
            client.send(build(client_quotas.DescribeClientQuotasRequest, 0, components=[part], strict=True))
            found = client.receive(client_quotas.DescribeClientQuotasResponse, 0).entries or ()
            return [{pair.key: pair.value for pair in one.values} for one in found]

        until(lambda: told() == ([] if remove else [quotas]), what="what was set")


@pytest.mark.parametrize("tool", [pytest.param(by_java, marks=pytest.mark.soak), by_terraform])
def test_what_a_tool_sets_is_in_force(cluster: Cluster, proxy: ProxyThread, tool: Any) -> None:
    """Once collected it refuses, as long as it stands; what no law here has is left to the brokers."""
    name, home = fresh("tool"), Home(cluster.kafka.bootstrap, cluster.topics)
    path = f"quotas[client-id={name}]"
    reader, policies = QuotaReader(home, 10_000), PolicyReader(home)

    def collected() -> object:
        collect_once(reader, policies, home, LIMIT_S)
        return read_policies(home).entries.get(path)

    with closing(reader):
        tool(proxy, name)
        until(lambda: collected() == RATES, what="the policy")
        cluster.await_quota(proxy, "ANONYMOUS", name, 1)
        with WireClient(proxy.bootstrap, name) as client:
            assert errors(client.create({f"{name}-a": 50})) == {f"{name}-a": 0}
            assert errors(client.create({f"{name}-b": 1})) == {f"{name}-b": 89}
        tool(proxy, name, remove=True)
        until(lambda: collected() is None, what="no policy")
        cluster.await_quota(proxy, "ANONYMOUS", name, None)
