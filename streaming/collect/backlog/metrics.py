"""What the collectors of backlogs tell Prometheus; names and meanings are listed in docs/metrics.md.

PIP-323's names and labels, with their true types; what is ours begins with `weir_backlog_`.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from prometheus_client import CollectorRegistry

from streaming.contract.backlog.actions import QUOTA_TYPES
from streaming.contract.backlog.decisions import BacklogDecision
from streaming.contract.names import namespace_of
from streaming.metrics import MetricTable, Sample, counter, gauge, histogram, read_counter, read_gauge

_SECONDS: Final = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_NAMESPACE: Final = "cluster namespace"
_TOPIC: Final = "cluster namespace topic"
_USED: Final = "weir_backlog_quota_used_ratio"
TOPICS_MAX: Final = 5_000
"""Topics that are shown; the others are counted."""
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


class BacklogMetrics(MetricTable):
    """All metrics of one collector of backlogs.

    Attributes:
        cluster: its label.
        known: topics, by name.
        by_namespace: how often something was evicted of a namespace's topics, by type of quota.

    Args:
        topic_metrics: of each topic; else of each namespace.
    """

    prefix = "weir_backlog_"

    check_seconds = histogram(
        "Of a check of all topics", _SECONDS, "cluster", "pulsar_storage_backlog_quota_check_duration_seconds"
    )
    rounds = counter("Checks", "result", "done unread unreported")
    behind = counter("Checks that took longer than the interval")
    reports = counter("Topics reported")
    unread_topics = gauge("Of the last check")
    too_large_reports = counter("Beyond a record's size")
    dropped_decisions = counter("Not acted on", "reason", "late unlike unusable")
    evictions = counter("By what became of them", "quota_type outcome", " ".join(QUOTA_TYPES), "done failed")
    evicted_messages = counter("Carried out", "quota_type")
    evicted_bytes = counter("Carried out", "quota_type")
    unsettled_evictions = gauge("Of earlier runs")
    unsettled_dropped = counter("Beyond what is kept")
    unsaid_dropped = counter("Ends of actions")
    publish_times_missed = counter("Wanted and not read")
    topics = read_gauge("Of the last check")
    topics_not_shown = read_gauge("Beyond what is shown")
    all_evictions = read_counter(
        "Carried out", "cluster quota_type", name="pulsar_broker_storage_backlog_quota_exceeded_evictions"
    )

    def __init__(self, registry: CollectorRegistry, cluster: str, *, topic_metrics: bool) -> None:
        self.cluster = cluster
        self.known: dict[str, _Topic] = {}
        self.by_namespace: dict[tuple[str, str], int] = {}
        self._evictions = dict.fromkeys(QUOTA_TYPES, 0)
        self._by_topic = topic_metrics
        super().__init__(registry)
        self.check_seconds = self.check_seconds.labels(cluster)
        (TopicBacklogs if topic_metrics else NamespaceBacklogs)(registry, self)

    def decided(self, decision: BacklogDecision) -> None:
        """A report of this run was decided on, newer than the one before."""
        topic = self.known.get(decision.topic)
        if topic is not None:
            topic.decision = decision

    def reported(self, topics: Collection[str], *, complete: bool) -> None:
        """A check has reported these topics; `complete`: there are no others."""
        for name in topics:
            if name in self.known:
                self.known[name].missed = 0
            else:
                self.known[name] = _Topic(namespace_of(name))
        there = set(topics)
        if not (absent := [name for name in self.known if name not in there]):
            return
        for name in absent:
            self.known[name].missed += 1
            if complete or self.known[name].missed >= GONE_AFTER:
                del self.known[name]
        left = {topic.namespace for topic in self.known.values()}
        self.by_namespace = {place: count for place, count in self.by_namespace.items() if place[0] in left}

    def evicted(self, topic: str, quota_type: str, decision: str, messages: int, size: int) -> None:
        """One subscription has lost what was planned: a topic counts once a decision and type of quota."""
        self.evicted_messages.labels(quota_type).inc(messages)
        self.evicted_bytes.labels(quota_type).inc(size)
        known = self.known.setdefault(topic, _Topic(namespace_of(topic)))
        if known.counted.get(quota_type) == decision:
            return
        known.counted[quota_type] = decision
        known.evictions[quota_type] = known.evictions.get(quota_type, 0) + 1
        place = known.namespace, quota_type
        self.by_namespace[place] = self.by_namespace.get(place, 0) + 1
        self._evictions[quota_type] += 1

    def read_samples(self) -> Iterator[Sample]:
        """See there."""
        for quota_type, count in self._evictions.items():
            yield self.all_evictions, [self.cluster, quota_type], count
        known = len(self.known)
        yield self.topics, (), known
        yield self.topics_not_shown, (), max(0, known - TOPICS_MAX) if self._by_topic else 0


class _Backlogs(MetricTable):
    """What a collector knows of backlogs."""

    prefix = "pulsar_storage_backlog_"

    def __init__(self, registry: CollectorRegistry, metrics: BacklogMetrics) -> None:
        self._metrics = metrics
        super().__init__(registry)


class TopicBacklogs(_Backlogs):
    """The same of each topic."""

    size = read_gauge("Bytes", _TOPIC, "size")
    quota_limit = read_gauge("Bytes", _TOPIC, "limit_size")
    quota_limit_time = read_gauge("Seconds", _TOPIC, "limit_time")
    age_seconds = read_gauge("Of the oldest", _TOPIC, "age")
    quota_exceeded_evictions = read_counter("Carried out", f"{_TOPIC} quota_type")
    used = read_gauge("Of the limit", f"{_TOPIC} quota_type", name=_USED)

    def read_samples(self) -> Iterator[Sample]:
        """See there."""
        # A copy: the page is made in a thread of its own.
        for name, topic in islice(dict(self._metrics.known).items(), TOPICS_MAX):
            place = [self._metrics.cluster, topic.namespace, name]
            for quota_type in QUOTA_TYPES:
                count = topic.evictions.get(quota_type, 0)
                yield self.quota_exceeded_evictions, [*place, quota_type], count
            if (decision := topic.decision) is not None:
                yield from self.read_paths(place, decision)
                for quota_type, ratio in used_ratios(decision).items():
                    yield self.used, [*place, quota_type], ratio


class NamespaceBacklogs(_Backlogs):
    """The same of each namespace."""

    size = read_gauge("Bytes", _NAMESPACE)
    quota_exceeded_evictions = read_counter("Carried out", f"{_NAMESPACE} quota_type")
    used = read_gauge("The greatest of its topics", f"{_NAMESPACE} quota_type", name=_USED)

    def read_samples(self) -> Iterator[Sample]:
        """See there."""
        sizes: dict[str, float] = {}
        ratios: dict[tuple[str, str], float] = {}
        for topic in dict(self._metrics.known).values():
            sizes.setdefault(topic.namespace, 0.0)
            if topic.decision is not None:
                sizes[topic.namespace] += topic.decision.size
                for quota_type, ratio in used_ratios(topic.decision).items():
                    place = topic.namespace, quota_type
                    ratios[place] = max(ratio, ratios.get(place, 0.0))
        cluster = self._metrics.cluster
        for namespace, held in sizes.items():
            yield self.size, [cluster, namespace], held
            for quota_type in QUOTA_TYPES:
                count = self._metrics.by_namespace.get((namespace, quota_type), 0)
                yield self.quota_exceeded_evictions, [cluster, namespace, quota_type], count
        for (namespace, quota_type), ratio in ratios.items():
            yield self.used, [cluster, namespace, quota_type], ratio


def used_ratios(decision: BacklogDecision) -> dict[str, float]:
    """What part of each quota of a topic is used, by its type; more than 1 is beyond it.

    Without a quota, or with one of 0 s, there is none; while the age is not known it is 0. A quota of 0
    bytes, which every backlog exceeds, counts as one of 1.
    """
    ratios = {}
    if decision.limit_size >= 0:
        ratios["size"] = decision.size / max(1, decision.limit_size)
    if decision.limit_time > 0:
        ratios["time"] = max(0, decision.age) / decision.limit_time
    return ratios
