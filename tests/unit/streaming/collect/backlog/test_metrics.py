"""Series of topics and namespaces: which are there, and when they go."""

import pytest
from collector_kit import EVICTS, TOPIC, decided, policies, report
from prometheus_client import CollectorRegistry, generate_latest

from streaming.collect.backlog.metrics import GONE_AFTER, BacklogMetrics, used_ratios

OTHER = "persistent://acme/orders/t2"
AGE = {"limitTime": 50, "policy": "producer_exception"}
SIZE_NAME, AGE_NAME = "pulsar_storage_backlog_size", "pulsar_storage_backlog_age_seconds"
EVICTIONS = "pulsar_storage_backlog_quota_exceeded_evictions_total"


def metrics_of(*, topic_metrics: bool = True) -> tuple[BacklogMetrics, CollectorRegistry]:
    registry = CollectorRegistry()
    return BacklogMetrics(registry, "c1", topic_metrics=topic_metrics), registry


def tell(metrics: BacklogMetrics, *topics: str) -> None:
    """All of them reported, and decided on."""
    metrics.reported(set(topics), complete=True)
    entries = {**policies(EVICTS, AGE), **policies(EVICTS, AGE, topic=OTHER)}
    for topic in topics:
        metrics.decided(decided(report(topic, slow=49), entries))


def test_a_topic_is_shown_with_its_limits() -> None:
    metrics, registry = metrics_of()
    tell(metrics, TOPIC)
    place = {"cluster": "c1", "namespace": "acme/orders", "topic": TOPIC}

    def value(name: str, **more: str) -> float | None:
        return registry.get_sample_value(name, {**place, **more})

    assert value(SIZE_NAME) == 5_000.0
    assert value("pulsar_storage_backlog_quota_limit") == 4_000
    assert value("pulsar_storage_backlog_quota_limit_time") == 50
    assert value(AGE_NAME) == 100
    assert value("weir_backlog_quota_used_ratio", quota_type="size") == 1.25
    assert value("weir_backlog_quota_used_ratio", quota_type="time") == 2.0
    assert value(EVICTIONS, quota_type="size") == value(EVICTIONS, quota_type="time") == 0
    kinds = {family.name: family.type for family in registry.collect()}
    assert kinds[EVICTIONS.removesuffix("_total")] == "counter"
    assert kinds["pulsar_broker_storage_backlog_quota_exceeded_evictions"] == "counter"
    assert kinds["pulsar_storage_backlog_quota_check_duration_seconds"] == "histogram"


def test_without_topic_metrics_namespaces_are_summed_and_ages_left_out() -> None:
    metrics, registry = metrics_of(topic_metrics=False)
    tell(metrics, TOPIC, OTHER)
    metrics.evicted(TOPIC, "size", "d1", 3, 30)
    metrics.evicted(OTHER, "size", "d1", 4, 40)
    place = {"cluster": "c1", "namespace": "acme/orders"}
    assert registry.get_sample_value(SIZE_NAME, place) == 10_000.0
    assert registry.get_sample_value(EVICTIONS, {**place, "quota_type": "size"}) == 2
    assert registry.get_sample_value("weir_backlog_quota_used_ratio", {**place, "quota_type": "time"}) == 2.0
    text = generate_latest(registry).decode()
    assert AGE_NAME not in text and "topic=" not in text


def test_a_decisions_subscriptions_count_as_one_eviction_of_the_topic() -> None:
    metrics, registry = metrics_of()
    tell(metrics, TOPIC)
    for decision in ("d1", "d1", "d2"):
        metrics.evicted(TOPIC, "size", decision, 5, 50)
    labels = {"cluster": "c1", "quota_type": "size"}
    assert registry.get_sample_value(EVICTIONS, {**labels, "namespace": "acme/orders", "topic": TOPIC}) == 2
    total = "pulsar_broker_storage_backlog_quota_exceeded_evictions_total"
    assert registry.get_sample_value(total, labels) == 2
    assert registry.get_sample_value("weir_backlog_evicted_messages_total", {"quota_type": "size"}) == 15
    assert registry.get_sample_value("weir_backlog_evicted_bytes_total", {"quota_type": "size"}) == 150


@pytest.mark.parametrize("complete", [True, False])
def test_topics_that_are_gone_leave(complete: bool) -> None:
    """At once if all could be read, else after some checks; the broker's total stays."""
    metrics, registry = metrics_of()
    tell(metrics, TOPIC, OTHER)
    metrics.evicted(OTHER, "size", "d1", 5, 50)
    for check in range(GONE_AFTER):
        assert registry.get_sample_value("weir_backlog_topics") == (2 if not complete or not check else 1)
        metrics.reported({TOPIC}, complete=complete)
    text = generate_latest(registry).decode()
    assert OTHER not in text and TOPIC in text
    total = "pulsar_broker_storage_backlog_quota_exceeded_evictions_total"
    assert registry.get_sample_value(total, {"cluster": "c1", "quota_type": "size"}) == 1


def test_a_namespace_without_topics_is_forgotten() -> None:
    """Its count stayed for good, one more with each namespace that ever was."""
    metrics, _ = metrics_of()
    tell(metrics, TOPIC, "persistent://gone/b/t")
    for topic in (TOPIC, "persistent://gone/b/t"):
        metrics.evicted(topic, "size", "d1", 5, 50)
    metrics.reported({TOPIC}, complete=True)
    assert set(metrics.by_namespace) == {("acme/orders", "size")}


def test_no_more_topics_are_shown_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.collect.backlog.metrics.TOPICS_MAX", 1)
    metrics, registry = metrics_of()
    tell(metrics, TOPIC, OTHER)
    assert registry.get_sample_value("weir_backlog_topics_not_shown") == 1
    assert sum(line.startswith(SIZE_NAME) for line in generate_latest(registry).decode().splitlines()) == 1


def test_without_a_quota_nothing_is_near_it() -> None:
    assert used_ratios(decided(report(slow=1), {})) == {}
    unknown = decided(report(slow=99), policies(EVICTS, AGE))
    assert unknown.age == -1 and used_ratios(unknown) == {"size": 0.0, "time": 0.0}


def test_every_backlog_is_beyond_a_quota_of_no_bytes() -> None:
    """Alerts look at the ratio alone, and there was none."""
    for slow, beyond in ((49, True), (99, False)):
        held = decided(report(slow=slow), policies({**EVICTS, "limitSize": 0}))
        assert (used_ratios(held)["size"] > 1) is beyond
