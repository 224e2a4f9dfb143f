"""What the collectors of backlogs tell Prometheus; names and meanings are listed in docs/metrics.md.

PIP-323's names and labels, with their true types; what is ours begins with `weir_backlog_`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from streaming.contract.backlog.actions import QUOTA_TYPES
from streaming.contract.backlog.decisions import BacklogDecision
from streaming.contract.names import namespace_of

_SECONDS: Final = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_PLACE: Final = ("cluster", "namespace", "topic")
GONE_AFTER: Final = 3
"""Checks in a row that do not report a topic, after which it is gone although topics could not be read."""


@dataclass(slots=True)
class _Topic:
    """What is known of one topic.

    Attributes:
        namespace: its own.
        decision: the newest one; None: there is none yet.
        evictions: by type of quota, how often it was carried out.
        counted: by type of quota, the decision that was counted last.
        missed: checks in a row that did not report it.
    """

    namespace: str
    decision: BacklogDecision | None = None
    evictions: dict[str, int] = field(default_factory=dict)
    counted: dict[str, str] = field(default_factory=dict)
    missed: int = 0


class BacklogMetrics:
    """All metrics of one collector of backlogs.

    Args:
        registry: that they are told to.
        cluster: its label.
        topic_metrics: of each topic; else of each namespace.
        topics_max: topics that are shown.
    """

    def __init__(
        self, registry: CollectorRegistry, cluster: str, *, topic_metrics: bool, topics_max: int
    ) -> None:
        self._cluster, self._by_topic, self._topics_max = cluster, topic_metrics, topics_max
        self._topics: dict[str, _Topic] = {}
        self._evictions = dict.fromkeys(QUOTA_TYPES, 0)
        self._of_namespaces: dict[tuple[str, str], int] = {}
        self.check_seconds = Histogram(
            "pulsar_storage_backlog_quota_check_duration_seconds", "Of a check of all topics", ["cluster"],
            buckets=_SECONDS, registry=registry,
        ).labels(cluster)  # fmt: skip
        self.rounds = Counter("weir_backlog_rounds", "Checks", ["result"], registry=registry)
        self.behind = Counter(
            "weir_backlog_behind", "Checks that took longer than the interval", registry=registry
        )
        self.reports = Counter("weir_backlog_reports", "Topics reported", registry=registry)
        self.unread = Gauge("weir_backlog_unread_topics", "Of the last check", registry=registry)
        self.too_large = Counter(
            "weir_backlog_too_large_reports", "Beyond a record's size", registry=registry
        )
        self.dropped = Counter(
            "weir_backlog_dropped_decisions", "Not acted on", ["reason"], registry=registry
        )
        self.outcomes = Counter(
            "weir_backlog_evictions", "By what became of them", ["quota_type", "outcome"], registry=registry
        )
        self.messages = Counter(
            "weir_backlog_evicted_messages", "Carried out", ["quota_type"], registry=registry
        )
        self.bytes = Counter("weir_backlog_evicted_bytes", "Carried out", ["quota_type"], registry=registry)
        self.unsettled = Gauge("weir_backlog_unsettled_evictions", "Of earlier runs", registry=registry)
        self.lost = Counter("weir_backlog_unsettled_dropped", "Beyond what is kept", registry=registry)
        self.unsaid_dropped = Counter("weir_backlog_unsaid_dropped", "Ends of actions", registry=registry)
        self.publish_times_missed = Counter(
            "weir_backlog_publish_times_missed", "Wanted and not read", registry=registry
        )
        # From the start, for alerts: a series that appears with 1 shows no increase.
        for result in ("done", "unread", "unreported"):
            self.rounds.labels(result)
        for reason in ("late", "unlike", "unusable"):
            self.dropped.labels(reason)
        for quota_type in QUOTA_TYPES:
            for outcome in ("done", "failed"):
                self.outcomes.labels(quota_type, outcome)
        registry.register(self)

    def decided(self, decision: BacklogDecision) -> None:
        """A report of this run was decided on, newer than the one before."""
        topic = self._topics.get(decision.topic)
        if topic is not None:
            topic.decision = decision

    def reported(self, topics: Collection[str], *, complete: bool) -> None:
        """A check has reported these topics; `complete`: there are no others."""
        for name in topics:
            if name in self._topics:
                self._topics[name].missed = 0
            else:
                self._topics[name] = _Topic(namespace_of(name))
        there = set(topics)
        for name in [name for name in self._topics if name not in there]:
            self._topics[name].missed += 1
            if complete or self._topics[name].missed >= GONE_AFTER:
                del self._topics[name]

    def evicted(self, topic: str, quota_type: str, decision: str, messages: int, size: int) -> None:
        """One subscription has lost what was planned: a topic counts once a decision and type of quota."""
        self.messages.labels(quota_type).inc(messages)
        self.bytes.labels(quota_type).inc(size)
        known = self._topics.setdefault(topic, _Topic(namespace_of(topic)))
        if known.counted.get(quota_type) == decision:
            return
        known.counted[quota_type] = decision
        known.evictions[quota_type] = known.evictions.get(quota_type, 0) + 1
        place = known.namespace, quota_type
        self._of_namespaces[place] = self._of_namespaces.get(place, 0) + 1
        self._evictions[quota_type] += 1

    def collect(self) -> Iterator[Metric]:
        """What stands now, for Prometheus' client."""
        total = CounterMetricFamily(
            "pulsar_broker_storage_backlog_quota_exceeded_evictions", "Carried out",
            labels=["cluster", "quota_type"],
        )  # fmt: skip
        for quota_type, count in self._evictions.items():
            total.add_metric([self._cluster, quota_type], count)
        yield total
        # A copy: the page is made in a thread of its own.
        topics = dict(self._topics)
        shown = dict(list(topics.items())[: self._topics_max]) if self._by_topic else {}
        hidden = GaugeMetricFamily("weir_backlog_topics_not_shown", "Beyond metrics_topics_max")
        hidden.add_metric([], len(topics) - len(shown) if self._by_topic else 0)
        known = GaugeMetricFamily("weir_backlog_topics", "Of the last check")
        known.add_metric([], len(topics))
        yield from (known, hidden)
        yield from self._of_topics(shown) if self._by_topic else self._summed(topics.values())

    def _of_topics(self, topics: Mapping[str, _Topic]) -> Iterator[Metric]:
        size = GaugeMetricFamily("pulsar_storage_backlog_size", "Bytes", labels=_PLACE)
        limit = GaugeMetricFamily("pulsar_storage_backlog_quota_limit", "Bytes", labels=_PLACE)
        time = GaugeMetricFamily("pulsar_storage_backlog_quota_limit_time", "Seconds", labels=_PLACE)
        age = GaugeMetricFamily("pulsar_storage_backlog_age_seconds", "Of the oldest", labels=_PLACE)
        labels = (*_PLACE, "quota_type")
        evictions = CounterMetricFamily(
            "pulsar_storage_backlog_quota_exceeded_evictions", "Carried out", labels=labels
        )
        used = GaugeMetricFamily("weir_backlog_quota_used_ratio", "Of the limit", labels=labels)
        for name, topic in topics.items():
            place = [self._cluster, topic.namespace, name]
            for quota_type in QUOTA_TYPES:
                evictions.add_metric([*place, quota_type], topic.evictions.get(quota_type, 0))
            decision = topic.decision
            if decision is None:
                continue
            size.add_metric(place, decision.size)
            limit.add_metric(place, decision.limit_size)
            time.add_metric(place, decision.limit_time)
            age.add_metric(place, decision.age)
            for quota_type, ratio in used_ratios(decision).items():
                used.add_metric([*place, quota_type], ratio)
        yield from (size, limit, time, age, evictions, used)

    def _summed(self, topics: Iterable[_Topic]) -> Iterator[Metric]:
        sizes: dict[str, float] = {}
        ratios: dict[tuple[str, str], float] = {}
        for topic in topics:
            sizes.setdefault(topic.namespace, 0.0)
            if topic.decision is not None:
                sizes[topic.namespace] += topic.decision.size
                for quota_type, ratio in used_ratios(topic.decision).items():
                    place = topic.namespace, quota_type
                    ratios[place] = max(ratio, ratios.get(place, 0.0))
        size = GaugeMetricFamily("pulsar_storage_backlog_size", "Bytes", labels=_PLACE[:2])
        labels = (*_PLACE[:2], "quota_type")
        evictions = CounterMetricFamily(
            "pulsar_storage_backlog_quota_exceeded_evictions", "Carried out", labels=labels
        )
        used = GaugeMetricFamily("weir_backlog_quota_used_ratio", "The greatest of its topics", labels=labels)
        for namespace, held in sizes.items():
            size.add_metric([self._cluster, namespace], held)
            for quota_type in QUOTA_TYPES:
                count = self._of_namespaces.get((namespace, quota_type), 0)
                evictions.add_metric([self._cluster, namespace, quota_type], count)
        for (namespace, quota_type), ratio in ratios.items():
            used.add_metric([self._cluster, namespace, quota_type], ratio)
        yield from (size, evictions, used)


def used_ratios(decision: BacklogDecision) -> dict[str, float]:
    """What part of each quota of a topic is used, by its type; more than 1 is beyond it.

    Without a quota, or with one of 0, there is none; while the age is not known it is 0.
    """
    ratios = {}
    if decision.limit_size > 0:
        ratios["size"] = decision.size / decision.limit_size
    if decision.limit_time > 0:
        ratios["time"] = max(0, decision.age) / decision.limit_time
    return ratios
