"""Who a quota is for: names learned from SASL in passing (docs/protocol_notes.md 3.4)."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from cluster_kit import USERS, Cluster, fresh
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from kafka.errors import ThrottlingQuotaExceededError
from proxy_kit import ProxyThread, until

LOGIN = {
    "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_plain_username": "bob",
    "sasl_plain_password": USERS.plain["bob"],
}  # fmt: skip
"""kafka-python's options."""


@pytest.fixture(scope="module")
def sasl_proxy(cluster: Cluster) -> Iterator[ProxyThread]:
    """A proxy before the broker's SASL listener; its own connections use the plain one."""
    with ProxyThread(cluster.config(sasl=True, id="sasl")) as running:
        yield running


def test_a_user_with_a_client_id_is_isolated(cluster: Cluster, sasl_proxy: ProxyThread) -> None:
    """A (user, client-id) quota is one of its own: exceeding it leaves the user's others alone."""
    tight, free = fresh("tight"), fresh("free")
    cluster.policies.put(f"quotas[user=bob,client-id={tight}]", {"controller_mutation_rate": 1})
    cluster.await_quota(sasl_proxy, "bob", tight, 1)
    for name, ends_in_89 in ((tight, True), (free, False)):
        made = KafkaAdminClient(bootstrap_servers=sasl_proxy.bootstrap, client_id=name, **LOGIN)
        with closing(made) as admin:
            admin.create_topics([NewTopic(f"{name}-a", 20, 1)])
            if ends_in_89:
                with pytest.raises(ThrottlingQuotaExceededError):
                    admin.create_topics([NewTopic(f"{name}-b", 1, 1)])
            else:
                admin.create_topics([NewTopic(f"{name}-b", 1, 1)])


def test_a_wrong_password_fails_as_without_proxy(sasl_proxy: ProxyThread) -> None:
    """The broker's refusal reaches the client."""
    seen: list[int] = []
    admin = AdminClient({
        "bootstrap.servers": sasl_proxy.bootstrap, "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "wrong", "log_level": "0",
        "error_cb": lambda error: seen.append(error.code()),
    })  # fmt: skip
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)
    until(lambda: admin.poll(0.1) >= 0 and KafkaError._AUTHENTICATION in seen)
