"""Who a quota is for: names learned from SASL in passing (docs/protocol_notes.md 3.4)."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from cluster_kit import USERS, Cluster, fresh
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from kafka.errors import ThrottlingQuotaExceededError
from proxy_kit import ProxyThread, until

PASSWORDS = {**USERS.plain, **USERS.scram}


@pytest.fixture(scope="module")
def sasl_proxy(cluster: Cluster) -> Iterator[ProxyThread]:
    """A proxy before the broker's SASL listener; its own connections use the plain one."""
    with ProxyThread(cluster.config(sasl=True, id="sasl")) as running:
        yield running


def login(user: str, mechanism: str) -> dict[str, Any]:
    """kafka-python's options."""
    return {
        "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism, "sasl_plain_username": user,
        "sasl_plain_password": PASSWORDS[user],
    }  # fmt: skip


def rdkafka_login(proxy: ProxyThread, user: str, mechanism: str, password: str) -> dict[str, Any]:
    """librdkafka's properties."""
    return {
        "bootstrap.servers": proxy.bootstrap, "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password, "log_level": "0",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("user", "mechanism"), [("alice", "PLAIN"), ("carol", "SCRAM-SHA-256"), ("carol", "SCRAM-SHA-512")]
)
def test_a_user_quota_meets_the_user(
    cluster: Cluster, sasl_proxy: ProxyThread, user: str, mechanism: str
) -> None:
    """After PLAIN and SCRAM logins the quota of that user applies, whatever the client-id."""
    name = fresh(user)
    cluster.policies.put(f"quotas[user={user}]", {"controller_mutation_rate": 1000})
    cluster.await_quota(sasl_proxy, user, name, 1000)
    admin = KafkaAdminClient(bootstrap_servers=sasl_proxy.bootstrap, client_id=name, **login(user, mechanism))
    with closing(admin):
        admin.create_topics([NewTopic(f"{name}-a", 2, 1)])
    event = cluster.event_of(name)
    assert (event["user"], event["subject"]) == (user, f"user={user}")


def test_a_user_with_a_client_id_is_isolated(cluster: Cluster, sasl_proxy: ProxyThread) -> None:
    """A (user, client-id) quota is one of its own: exceeding it leaves the user's others alone."""
    tight, free = fresh("tight"), fresh("free")
    cluster.policies.put(f"quotas[user=bob,client-id={tight}]", {"controller_mutation_rate": 1})
    cluster.await_quota(sasl_proxy, "bob", tight, 1)
    for name, ends_in_89 in ((tight, True), (free, False)):
        admin = KafkaAdminClient(
            bootstrap_servers=sasl_proxy.bootstrap, client_id=name, **login("bob", "PLAIN")
        )
        with closing(admin):
            admin.create_topics([NewTopic(f"{name}-a", 20, 1)])
            if ends_in_89:
                with pytest.raises(ThrottlingQuotaExceededError):
                    admin.create_topics([NewTopic(f"{name}-b", 1, 1)])
            else:
                admin.create_topics([NewTopic(f"{name}-b", 1, 1)])


def test_a_wrong_password_fails_as_without_proxy(sasl_proxy: ProxyThread) -> None:
    """The broker's refusal reaches the client."""
    seen: list[int] = []
    properties = rdkafka_login(sasl_proxy, "alice", "PLAIN", "wrong")
    admin = AdminClient({**properties, "error_cb": lambda error: seen.append(error.code())})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)
    until(lambda: admin.poll(0.1) >= 0 and KafkaError._AUTHENTICATION in seen)


def test_librdkafka_logs_in_through_the_proxy(cluster: Cluster, sasl_proxy: ProxyThread) -> None:
    """confluent-kafka with SCRAM finds the cluster through the proxy, at the proxy's addresses."""
    admin = AdminClient(rdkafka_login(sasl_proxy, "carol", "SCRAM-SHA-256", PASSWORDS["carol"]))
    (broker,) = admin.list_topics(timeout=10).brokers.values()
    assert broker.port == sasl_proxy.proxy.brokers.ports[broker.id]
