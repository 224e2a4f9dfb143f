"""Strict versions: asked first, rejected with error 89 (docs/protocol_notes.md 1.2, 1.3)."""

import time
from collections.abc import Callable
from contextlib import closing

import pytest
from cluster_kit import DEFAULT_PARTITIONS, Cluster, fresh
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from kafka.errors import ThrottlingQuotaExceededError
from proxy_kit import ProxyThread, until
from wire_client import WireClient, errors

Connect = Callable[..., WireClient]


def test_rate_one_admits_three_of_four_topics(cluster: Cluster, proxy: ProxyThread, wire: Connect) -> None:
    """Rate 1: of four topics with 5 partitions the fourth is rejected with 4 s less the answer's time."""
    name = fresh("four")
    cluster.limit(proxy, name, controller_mutation_rate=1)
    client = wire(name)
    answer = client.create({f"{name}-{i}": 5 for i in range(4)})
    assert errors(answer) == {f"{name}-0": 0, f"{name}-1": 0, f"{name}-2": 0, f"{name}-3": 89}
    assert 3_000 < answer.throttle_time_ms <= 4_000
    rejected = next(part for part in answer.topics if part.error_code)
    assert "1 per second" in rejected.error_message and "retry after" in rejected.error_message
    assert f"client-id={name}" in rejected.error_message
    direct = wire("direct", cluster.kafka.bootstrap)

    def found() -> dict[str, int]:
        # A broker's metadata follows its controller some ms later.
        return {part.name: part.error_code for part in direct.metadata([f"{name}-2", f"{name}-3"]).topics}

    until(
        lambda: found() == {f"{name}-2": 0, f"{name}-3": 3}, what="the fourth is absent, the third is there"
    )


def test_after_the_told_time_it_succeeds(cluster: Cluster, proxy: ProxyThread, wire: Connect) -> None:
    """A burst passes with throttle 0, one more is rejected and succeeds after the told time."""
    name = fresh("told")
    cluster.limit(proxy, name, controller_mutation_rate=20, controller_mutation_burst=20)
    client = wire(name)
    first = client.create({f"{name}-big": 60})
    assert (first.throttle_time_ms, errors(first)) == (0, {f"{name}-big": 0})
    second = client.create({f"{name}-small": 1})
    assert errors(second) == {f"{name}-small": 89}
    assert 0 < second.throttle_time_ms <= 2_000
    time.sleep(second.throttle_time_ms / 1000)
    assert errors(client.create({f"{name}-small": 1})) == {f"{name}-small": 0}


def test_what_is_charged(cluster: Cluster, proxy: ProxyThread, wire: Connect) -> None:
    """Delete costs the partitions, growth the difference, -1 the default, an existing topic nothing."""
    name = fresh("cost")
    cluster.limit(proxy, name, controller_mutation_rate=1_000)
    client = wire(name)

    def charged(api: str, topic: str, mutations: int) -> bool:
        # By all of its items: an answer may come before its event, and the newest is then an older request's.
        items = [{"name": topic, "mutations": mutations}]
        return cluster.event_of(name, api=api, items=items)["items"] == items

    assert errors(client.create({f"{name}-a": 4})) == {f"{name}-a": 0}
    assert charged("CreateTopics", f"{name}-a", 4)
    assert errors(client.grow(f"{name}-a", 31)) == {f"{name}-a": 0}
    assert charged("CreatePartitions", f"{name}-a", 27)
    assert errors(client.delete([f"{name}-a"])) == {f"{name}-a": 0}
    assert charged("DeleteTopics", f"{name}-a", 31)
    assert errors(client.create({f"{name}-b": -1})) == {f"{name}-b": 0}
    assert charged("CreateTopics", f"{name}-b", DEFAULT_PARTITIONS)
    # Bound to fail: the broker says so itself, and nobody is asked.
    before = len(cluster.decider.events)
    assert errors(client.create({f"{name}-b": 1})) == {f"{name}-b": 36}
    assert errors(client.delete([f"{name}-none"])) == {f"{name}-none": 3}
    assert len(cluster.decider.events) == before


def test_dry_runs_are_asked_but_not_charged(cluster: Cluster, proxy: ProxyThread, wire: Connect) -> None:
    """validateOnly is answered by the balance as it stands and costs nothing."""
    name = fresh("dry")
    cluster.limit(proxy, name, controller_mutation_rate=1)
    client = wire(name)
    for _ in range(3):
        answer = client.create({f"{name}-x": 30}, validate_only=True)
        assert (answer.throttle_time_ms, errors(answer)) == (0, {f"{name}-x": 0})
    assert errors(client.create({f"{name}-x": 12})) == {f"{name}-x": 0}
    assert errors(client.create({f"{name}-y": 1}, validate_only=True)) == {f"{name}-y": 89}


def test_what_the_broker_refuses_is_given_back(cluster: Cluster, proxy: ProxyThread, wire: Connect) -> None:
    """A topic that is admitted but fails at the broker is refunded."""
    name = fresh("refund")
    cluster.limit(proxy, name, controller_mutation_rate=1)
    client = wire(name)
    # A configuration that the proxy does not look at, but the broker does.
    assert errors(client.create_misconfigured(f"{name}-bad", 11)) == {f"{name}-bad": 40}
    refund = cluster.event_of(name, type="refund")
    assert refund["items"] == [{"name": f"{name}-bad", "mutations": 11}]
    request = cluster.event_of(name, type="request")
    assert refund["of"] == request["id"] and isinstance(refund["of_ts"], int)
    assert errors(client.create({f"{name}-a": 11})) == {f"{name}-a": 0}
    assert errors(client.create({f"{name}-b": 1})) == {f"{name}-b": 0}


def test_deletion_by_id(cluster: Cluster, proxy: ProxyThread, wire: Connect) -> None:
    """DeleteTopics v6 by topic id is counted, rejected and carried out like one by name."""
    name = fresh("byid")
    cluster.limit(proxy, name, controller_mutation_rate=1)
    client = wire(name)
    created = client.create({f"{name}-a": 5, f"{name}-b": 5, f"{name}-c": 2})
    ids = {part.name: part.topic_id for part in created.topics}
    answer = client.delete_by_id([ids[f"{name}-a"]])
    assert [(part.error_code, part.topic_id) for part in answer.responses] == [(89, ids[f"{name}-a"])]
    assert answer.responses[0].error_message and answer.throttle_time_ms > 0
    time.sleep(answer.throttle_time_ms / 1000)
    answer = client.delete_by_id([ids[f"{name}-a"], ids[f"{name}-b"]])
    assert sorted(part.error_code for part in answer.responses) == [0, 89]


def test_kafka_python_raises_with_the_throttle(cluster: Cluster, proxy: ProxyThread) -> None:
    """kafka-python gets its ThrottlingQuotaExceededError with our message, and is let in afterwards."""
    name = fresh("python")
    cluster.limit(proxy, name, controller_mutation_rate=5, controller_mutation_burst=5)
    with closing(KafkaAdminClient(bootstrap_servers=proxy.bootstrap, client_id=name)) as admin:
        admin.create_topics([NewTopic(f"{name}-a", 10, 1)])
        with pytest.raises(ThrottlingQuotaExceededError, match="retry after"):
            admin.create_topics([NewTopic(f"{name}-b", 1, 1)])
        time.sleep(1.1)
        admin.create_topics([NewTopic(f"{name}-b", 1, 1)])


def test_the_newest_quota_counts(cluster: Cluster, proxy: ProxyThread, wire: Connect) -> None:
    """Changing a quota while it is exceeded changes the waiting time from the next decision on."""
    name = fresh("change")
    cluster.limit(proxy, name, controller_mutation_rate=1)
    client = wire(name)
    client.create({f"{name}-a": 50})
    slow = wire(name).create({f"{name}-b": 1})
    assert 30_000 < slow.throttle_time_ms <= 39_000
    cluster.limit(proxy, name, controller_mutation_rate=10)
    quick = wire(name).create({f"{name}-b": 1})
    assert errors(quick) == {f"{name}-b": 89}
    assert 2_000 < quick.throttle_time_ms <= 4_000
    cluster.policies.put(f"quotas[user=ANONYMOUS,client-id={name}]", None)
    cluster.await_quota(proxy, "ANONYMOUS", name, None)
    assert errors(wire(name).create({f"{name}-b": 1})) == {f"{name}-b": 0}


def test_shadow_is_decided_and_never_acted_on(cluster: Cluster, proxy: ProxyThread, wire: Connect) -> None:
    """Under a shadow quota all passes at once, while its decisions say what would have been."""
    name = fresh("shadow")
    cluster.limit(proxy, name, controller_mutation_rate=1, shadow=True)
    client = wire(name)
    for i in range(3):
        answer = client.create({f"{name}-{i}": 12})
        assert (answer.throttle_time_ms, errors(answer)) == (0, {f"{name}-{i}": 0})
    subject = f"user=ANONYMOUS,client-id={name}"

    def outcomes() -> list[str]:
        return [made["outcome"] for made in cluster.decider.decisions if made.get("subject") == subject]

    until(lambda: len(outcomes()) >= 3)
    assert outcomes() == ["allow", "reject", "reject"]


def test_without_a_quota_requests_are_reported(cluster: Cluster, wire: Connect) -> None:
    """Where no quota applies the request passes at once and its event has an empty subject."""
    name = fresh("free")
    client = wire(name)
    assert errors(client.create({f"{name}-a": 2})) == {f"{name}-a": 0}
    assert errors(client.delete([f"{name}-a"])) == {f"{name}-a": 0}
    event = cluster.event_of(name, api="DeleteTopics")
    assert (event["subject"], event["items"]) == ("", [{"name": f"{name}-a", "mutations": 2}])
    assert "deadline_ms" not in event
