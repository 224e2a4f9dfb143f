"""What the admin API tells Prometheus; names and meanings are listed in docs/metrics.md."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from streaming.kafka_io.topic_watch import TopicMetrics

SECONDS_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_KEPT: Final = (
    ("usage", "Pairs of group and broker whose use is kept", "pairs"),
    ("dispatch", "Subscriptions at a broker, by proxy, whose deliveries are kept", "rows"),
    ("backlog", "Topics and their subscriptions whose backlogs are kept", "rows"),
)
"""What is kept of traffic."""
_METHODS: Final = frozenset({"GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS"})


class AdminMetrics:
    """All metrics of one admin API process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "weir_admin_requests",
            "Requests answered, by method, route and status",
            ["method", "route", "code"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "weir_admin_request_seconds",
            "From a request to its answer",
            registry=self.registry,
            buckets=SECONDS_BUCKETS,
        )
        self.changes = Counter(
            "weir_admin_changes",
            "Changes of policies: written, overtaken by another writer and tried again, or failed",
            ["result"],
            registry=self.registry,
        )
        # From the start, for alerts: a series that appears with 1 shows no increase.
        for result in ("written", "overtaken", "failed"):
            self.changes.labels(result)
        self.connections = self._gauge("connections", "Connections that are open")
        self.connections_ended = Counter(
            "weir_admin_connections_ended",
            "Connections that were ended here, by reason",
            ["reason"],
            registry=self.registry,
        )
        self.bad_policies = self._gauge("bad_policy_records", "Records on weir.policies that cannot be used")
        self.policy_version = self._gauge("policy_version", "Newest version of the policies that was read")
        self.rows = {name: self._gauge(f"{name}_rows", text) for name, text, _ in _KEPT}
        self.rows_dropped = {
            name: Counter(
                f"weir_admin_{name}_rows_dropped",
                f"Such {what} forgotten for lack of room",
                registry=self.registry,
            )
            for name, _, what in _KEPT
        }
        self.topics = TopicMetrics(self.registry, "weir_admin_topic_faults", "weir_admin_topics_replaced")

    def answered(self, method: str, route: str, code: int, seconds: float) -> None:
        """Count one answer; `route` is the template of the path, so that names do not become series."""
        self._requests.labels(method if method in _METHODS else "other", route, str(code)).inc()
        self._seconds.observe(seconds)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"weir_admin_{name}", text, registry=self.registry)
