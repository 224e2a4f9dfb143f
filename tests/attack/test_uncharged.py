"""What nobody can charge must not pass: requests whose events would be too large for a record."""

from collections.abc import Callable, Iterator

import pytest
from cluster_kit import Cluster, fresh
from kafka.protocol.admin import topics
from kafka_kit import build
from proxy_kit import ProxyThread, until
from wire_client import WireClient, create_request, errors

Connect = Callable[..., WireClient]
MANY = 4_200
"""Topics whose full names are more than a record of Kafka's default size holds."""


@pytest.fixture(scope="module")
def proxy(cluster: Cluster) -> Iterator[ProxyThread]:
    """One whose operator lets a request have more topics than the default 2,000."""
    with ProxyThread(cluster.config(id=fresh("roomy"), max_items=50_000)) as running:
        until(running.proxy.enforcement.ready.is_set, what="a decided probe")
        yield running


def long_names(stem: str, count: int = MANY) -> dict[str, int]:
    """Topics of one partition with the longest names that Kafka takes."""
    return {f"{stem}-{number}-".ljust(249, "x"): 1 for number in range(count)}


@pytest.mark.parametrize("decide", ["local", "strict"])
def test_long_names_are_no_free_pass(
    cluster: Cluster, proxy: ProxyThread, wire: Connect, decide: str
) -> None:
    """4,200 new topics at burst 11: twelve pass, by their own names, and the others are told why not."""
    name = fresh("longnames")
    cluster.limit(proxy, name, controller_mutation_rate=1, decide=decide)
    answer = wire(name, proxy.bootstrap).create(long_names(name))
    codes = list(errors(answer).values())
    assert (codes.count(0), codes.count(89), len(codes)) == (12, MANY - 12, MANY)
    assert answer.throttle_time_ms > 0
    event = cluster.event_of(name, type="request")
    assert [item["mutations"] for item in event["items"]] == [1] * MANY
    assert event["items"][7]["name"] == f"{name}-7-".ljust(32, "x") + "#7"
    direct, first = wire("direct", cluster.kafka.bootstrap), list(long_names(name, 20))
    until(lambda: [part.error_code for part in direct.metadata(first).topics].count(0) == 12)


def test_a_list_of_rejected_names_is_no_free_pass(
    cluster: Cluster, proxy: ProxyThread, wire: Connect
) -> None:
    """3,000 names fit an event once, but not as items and as what was rejected: Kafka has it all the same."""
    name = fresh("twice")
    cluster.limit(proxy, name, controller_mutation_rate=0.01, decide="local")
    client = wire(name, proxy.bootstrap)
    assert errors(client.create({name: 20})) == {name: 0}
    # In debt all of it is decided here, also where another proxy lives.
    answer = client.create(long_names(name, 3_000))
    assert list(errors(answer).values()) == [89] * 3_000

    def rejected() -> list[int]:
        told = [event for event in list(cluster.decider.events) if event.get("client_id") == name]
        return [len(event["decided"]["rejected"]) for event in told if len(event["items"]) == 3_000]

    until(rejected, what="the event of 3,000 names")
    assert rejected() == [3_000]


def test_old_versions_are_charged_in_one_sum(cluster: Cluster, proxy: ProxyThread, wire: Connect) -> None:
    """What an old version asks for is charged by whatever names, and given back if it fails."""
    name = fresh("oldnames")
    cluster.limit(proxy, name, controller_mutation_rate=1)
    config = topics.CreateTopicsRequest.CreatableTopic.CreatableTopicConfig
    message = create_request(long_names(name), 5)
    for part in message.topics:
        part.configs = [build(config, 5, name="no.such", value="1")]
    client = wire(name, proxy.bootstrap)
    answer = client.answer_to(message)
    assert set(errors(answer).values()) == {40}
    for kind in ("request", "refund"):
        event = cluster.event_of(name, type=kind)
        assert sum(item["mutations"] for item in event["items"]) == MANY


def test_more_than_any_event_holds_is_refused_whole(
    cluster: Cluster, proxy: ProxyThread, wire: Connect
) -> None:
    """29,000 topics at once: every one of them gets error 89, and nothing is created or charged."""
    name = fresh("toomany")
    cluster.limit(proxy, name, controller_mutation_rate=1)
    before = proxy.metric("requests_total", api="CreateTopics", outcome="too_large")
    answer = wire(name, proxy.bootstrap).create({f"{name}-{number}": 1 for number in range(29_000)})
    assert set(errors(answer).values()) == {89} and answer.throttle_time_ms == 2_000
    assert "ask for fewer" in answer.topics[0].error_message
    assert proxy.metric("requests_total", api="CreateTopics", outcome="too_large") == before + 1
    assert [event for event in cluster.decider.events if event.get("client_id") == name] == []
    # It was not charged, so the balance is full.
    few = {f"{name}-a": 11, f"{name}-b": 1}
    assert errors(wire(name, proxy.bootstrap).create(few)) == dict.fromkeys(few, 0)
