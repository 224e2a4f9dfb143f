"""Raising one's own limits by changing the cluster through the proxy."""

from collections.abc import Callable
from typing import Any

import pytest
from cluster_kit import Cluster, fresh
from confluent_kafka.admin import AdminClient, ConfigResource
from kafka.protocol.admin import acl, client_quotas, configs, users
from kafka_kit import build
from proxy_kit import ProxyThread, until
from stack_kit import alter
from wire_client import WireClient

CLUSTER_AUTHORIZATION_FAILED = 31
QUOTA = "controller_mutation_rate"
Proxies = Callable[..., ProxyThread]


def quota_of(user: str, rate: float) -> dict[str, Any]:
    """A user's quota, as Kafka is told."""
    entity, op = {"entity_type": "user", "entity_name": user}, {"key": QUOTA, "value": rate, "remove": False}
    return {"entity": [entity], "ops": [op]}


def alter_quota(client: WireClient, user: str, version: int = 1) -> list[int]:
    """Give a user a quota; the error of each entry."""
    entry = quota_of(user, 1e6)
    answer = client.answer_to(build(client_quotas.AlterClientQuotasRequest, version, entries=[entry, entry]))
    assert all(item.entity[0].entity_name == user for item in answer.entries)
    return [item.error_code for item in answer.entries]


def quotas_of(cluster: Cluster, user: str) -> int:
    """How many entries with quotas the cluster has for a user."""
    part = {"entity_type": "user", "match_type": 0, "match": user}
    with WireClient(cluster.kafka.bootstrap) as client:
        client.send(build(client_quotas.DescribeClientQuotasRequest, 0, components=[part], strict=False))
        return len(client.receive(client_quotas.DescribeClientQuotasResponse, 0).entries or ())


@pytest.mark.parametrize("version", [0, 1])
def test_nobody_raises_a_quota(cluster: Cluster, wire: Callable[..., WireClient], version: int) -> None:
    """AlterClientQuotas is refused entry by entry, the connection goes on, the cluster has no such quota."""
    user = fresh("greedy")
    client = wire("attack")
    assert alter_quota(client, user, version) == [CLUSTER_AUTHORIZATION_FAILED] * 2
    assert quotas_of(cluster, user) == 0
    assert client.metadata([]).brokers


def test_an_admin_may_if_the_setting_says_so(cluster: Cluster, proxy_with: Proxies) -> None:
    """With `admins` those who are listed pass and nobody else; with `allow` everybody does."""
    for settings, error in (
        ({"alter_client_quotas": "admins", "admins": ["alice"]}, CLUSTER_AUTHORIZATION_FAILED),
        ({"alter_client_quotas": "admins", "admins": ["ANONYMOUS"]}, 0),
        ({"alter_client_quotas": "allow"}, 0),
    ):
        user = fresh("user")
        running = proxy_with(**settings)
        with WireClient(running.bootstrap) as client:
            client.send(build(client_quotas.AlterClientQuotasRequest, 0, entries=[quota_of(user, 5.0)]))
            answer = client.receive(client_quotas.AlterClientQuotasResponse, 0)
        assert [item.error_code for item in answer.entries] == [error]
        if error:
            assert quotas_of(cluster, user) == 0
        else:
            until(lambda name=user: quotas_of(cluster, name), what="the quota at the broker")  # type: ignore[misc]
        assert running.metric("refused_changes_total", api="AlterClientQuotas") == (error != 0)


def test_settings_of_brokers_are_not_changed(cluster: Cluster, proxy: ProxyThread) -> None:
    """What a broker's settings say is the default for Weir's topics too; a topic's own may be changed."""
    topic = fresh("mine")
    with WireClient(proxy.bootstrap) as client:
        client.create({topic: 1})
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})

    def change(kind: ConfigResource.Type, name: str) -> Any:
        key = "log.retention.ms" if kind is ConfigResource.Type.BROKER else "retention.ms"
        return alter(admin, name, {key: 1000}, kind).exception(20)

    refused = change(ConfigResource.Type.BROKER, "1")
    assert refused is not None and refused.args[0].code() == CLUSTER_AUTHORIZATION_FAILED
    assert change(ConfigResource.Type.TOPIC, topic) is None


def test_one_request_for_both(proxy: ProxyThread, wire: Callable[..., WireClient]) -> None:
    """Old AlterConfigs with a topic and a broker: each has its own verdict."""
    topic = fresh("both")
    client = wire("attack")
    client.create({topic: 1})
    cls = configs.AlterConfigsRequest
    for version in (0, 2):
        parts = [
            {"resource_type": kind, "resource_name": name, "configs": []}
            for kind, name in ((4, "0"), (2, topic))
        ]
        answer = client.answer_to(build(cls, version, resources=parts, validate_only=True))
        found = {item.resource_type: item.error_code for item in answer.responses}
        assert found == {4: CLUSTER_AUTHORIZATION_FAILED, 2: 0}


def test_nobody_becomes_another_user(cluster: Cluster, wire: Callable[..., WireClient]) -> None:
    """A password for carol, or for a new user with a fresh quota, is not set."""
    name = fresh("mallory")
    gone, new = ({"name": one, "mechanism": 1} for one in ("carol", name))
    new |= {"iterations": 4096, "salt": b"s" * 16, "salted_password": b"p" * 32}
    client = wire("attack")
    client.send(build(users.AlterUserScramCredentialsRequest, 0, deletions=[gone], upsertions=[new]))
    answer = client.receive(users.AlterUserScramCredentialsResponse, 0)
    assert {item.user: item.error_code for item in answer.results} == dict.fromkeys(
        (name, "carol"), CLUSTER_AUTHORIZATION_FAILED
    )


def test_acls_of_weirs_topics(cluster: Cluster, wire: Callable[..., WireClient]) -> None:
    """ACLs that shut Weir out are refused at their place, others are the broker's to judge."""
    client = wire("attack")
    denial = {
        "resource_type": 2, "resource_pattern_type": 3, "principal": "User:ANONYMOUS", "host": "*",
        "operation": 2, "permission_type": 2,
    }  # fmt: skip
    parts = [denial | {"resource_name": name} for name in ("mine", cluster.topics.policies, "mine")]
    answer = client.answer_to(build(acl.CreateAclsRequest, 1, creations=parts))
    without_authorizer = 54
    assert [item.error_code for item in answer.results] == [
        without_authorizer, CLUSTER_AUTHORIZATION_FAILED, without_authorizer,
    ]  # fmt: skip
