"""What the collector tells Prometheus; names and meanings are listed in docs/metrics.md."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class CollectMetrics:
    """All metrics of one collector, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.rounds = Counter("weir_collect_rounds", "Rounds", ["result"], registry=registry)
        self.round_seconds = Histogram(
            "weir_collect_round_seconds", "Of a round", buckets=_SECONDS, registry=registry
        )
        self.behind = Counter("weir_collect_behind", "Rounds longer than the interval", registry=registry)
        self.requests = Counter("weir_collect_requests", "REST", ["method", "outcome"], registry=registry)
        self.request_seconds = Histogram(
            "weir_collect_request_seconds", "Of a REST call", ["method"], buckets=_SECONDS, registry=registry
        )
        self.brokers = Gauge("weir_collect_brokers", "Brokers that answered", registry=registry)
        self.places = Gauge("weir_collect_places", "Counters kept", registry=registry)
        self.unknown = Counter("weir_collect_unknown_places", "Beyond topics_max", registry=registry)
        self.restarts = Counter("weir_collect_counter_restarts", "Went back", registry=registry)
        self.reports = Counter("weir_collect_reports", "group_usage", ["result"], registry=registry)
        self.pushes = Counter("weir_collect_pushes", "Limits", ["kind", "result"], registry=registry)
        self.push_seconds = Histogram(
            "weir_collect_push_seconds", "Of all pushes of a round", buckets=_SECONDS, registry=registry
        )
        self.limits = Gauge("weir_collect_limits", "Pushed and in force", ["kind"], registry=registry)
        self.waiting = Gauge("weir_collect_waiting_pushes", "Put off", registry=registry)
        self.foreign = Gauge("weir_collect_foreign_limits", "Left to others", registry=registry)
        self.unusable = Counter("weir_collect_unusable_records", "Of Kafka", registry=registry)
        # From the start, for alerts: a series that appears with 1 shows no increase.
        for result in ("done", "first", "unread", "unreported"):
            self.rounds.labels(result)
        for result in ("written", "failed"):
            self.reports.labels(result)

    def request(self, method: str, outcome: str, seconds: float) -> None:
        """A REST call ended."""
        self.requests.labels(method, outcome).inc()
        self.request_seconds.labels(method).observe(seconds)
