"""Old versions: carried out, then throttled and muted (docs/protocol_notes.md 1.2, 2.2)."""

import asyncio
import time
from collections.abc import Callable

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from cluster_kit import Cluster, fresh
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.protocol.admin import topics
from proxy_kit import ProxyThread, until
from wire_client import WireClient, create_request, errors, metadata_request

Connect = Callable[..., WireClient]
TEN = {"controller_mutation_rate": 10, "controller_mutation_burst": 10}


def test_all_is_carried_out_then_the_connection_is_silent(
    cluster: Cluster, proxy: ProxyThread, wire: Connect
) -> None:
    """v5 at rate and burst 10: 10 + 15 partitions are made, it says 1.5 s, and so long nothing is read."""
    name = fresh("old")
    cluster.limit(proxy, name, **TEN)
    client = wire(name)
    client.send(create_request({f"{name}-a": 10, f"{name}-b": 15}, 5))
    client.send(metadata_request([f"{name}-b"]))
    answer = client.receive(topics.CreateTopicsResponse, 5)
    answered = time.monotonic()
    assert errors(answer) == {f"{name}-a": 0, f"{name}-b": 0}
    assert 800 < answer.throttle_time_ms <= 1_500
    assert all("10 per second" in part.error_message for part in answer.topics)
    # The answer is on its way before the connection falls silent.
    until(lambda: proxy.metric("muted_connections") >= 1)
    client.receive_frame()
    assert time.monotonic() - answered >= answer.throttle_time_ms / 1000 - 0.05


@pytest.mark.parametrize("version", [2, 3, 4])
def test_older_answers_keep_their_form(
    cluster: Cluster, proxy: ProxyThread, wire: Connect, version: int
) -> None:
    """The throttle is filled in where the version has the field, and the answer decodes."""
    name = fresh(f"v{version}")
    # Five below zero at one a second: the wait is longer than a busy broker takes to create them.
    cluster.limit(proxy, name, controller_mutation_rate=1)
    answer = wire(name).create({f"{name}-a": 16}, version)
    assert errors(answer) == {f"{name}-a": 0}
    assert 0 < answer.throttle_time_ms <= 5_000


def test_deletion_and_growth(cluster: Cluster, proxy: ProxyThread, wire: Connect) -> None:
    """DeleteTopics v4 and CreatePartitions v2 are charged and throttled as well."""
    name = fresh("both")
    cluster.limit(proxy, name, controller_mutation_rate=5)
    client = wire(name)
    assert errors(client.create({f"{name}-a": 30}, 4)) == {f"{name}-a": 0}
    grown = client.grow(f"{name}-a", 60, 2)
    assert errors(grown) == {f"{name}-a": 0} and 0 < grown.throttle_time_ms <= 1_000
    deleted = client.delete([f"{name}-a"], 4)
    assert errors(deleted) == {f"{name}-a": 0} and 11_000 < deleted.throttle_time_ms <= 12_000


def test_confluent_succeeds_and_then_waits(cluster: Cluster, proxy: ProxyThread) -> None:
    """confluent-kafka sees success every time; over the quota its next call takes as long as the throttle."""
    name = fresh("confluent")
    cluster.limit(proxy, name, **TEN)
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap, "client.id": name})
    for part, count in (("a", 10), ("b", 12)):
        for future in admin.create_topics([NewTopic(f"{name}-{part}", count, 1)]).values():
            future.result(10)
    begun = time.monotonic()
    for future in admin.create_topics([NewTopic(f"{name}-c", 1, 1)]).values():
        future.result(10)
    assert 0.7 < time.monotonic() - begun < 3
    assert cluster.event_of(name)["api_version"] == 4


def test_aiokafka_succeeds_and_then_waits(cluster: Cluster, proxy: ProxyThread) -> None:
    """aiokafka, with CreateTopics v3, is limited by the mute as well."""
    name = fresh("aiokafka")
    cluster.limit(proxy, name, **TEN)

    async def work() -> float:
        admin = AIOKafkaAdminClient(bootstrap_servers=proxy.bootstrap, client_id=name)
        await admin.start()
        try:
            await admin.create_topics([AioNewTopic(f"{name}-a", 22, 1)])
            begun = time.monotonic()
            await admin.create_topics([AioNewTopic(f"{name}-b", 1, 1)])
            return time.monotonic() - begun
        finally:
            await admin.close()

    assert 0.7 < asyncio.run(work()) < 3
    assert cluster.event_of(name)["strict"] is False


def test_those_who_wait_do_not_pass_together(
    cluster: Cluster, proxy_with: Callable[..., ProxyThread], wire: Connect
) -> None:
    """Ten connections of a subject in debt: when its wait is over one of them passes, and it owes again."""
    # Of its own: who has left in debt stays half a minute, and others count connections.
    name, proxy = fresh("herd"), proxy_with(stop_timeout_ms=300)
    cluster.limit(proxy, name, controller_mutation_rate=1)
    assert errors(wire(name, proxy.bootstrap).create({f"{name}-first": 13}, 5)) == {f"{name}-first": 0}
    for number in range(10):
        wire(name, proxy.bootstrap).send(create_request({f"{name}-{number}": 60}, 5))

    def asked() -> int:
        return sum(event.get("client_id") == name for event in list(cluster.decider.events))

    until(lambda: asked() >= 2, what="the first of them")
    time.sleep(1)
    assert asked() == 2
