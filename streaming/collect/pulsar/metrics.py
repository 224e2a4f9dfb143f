"""What the collector tells Prometheus; names and meanings are listed in docs/metrics.md."""

from streaming.metrics import MetricTable, counter, gauge, histogram

_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class CollectMetrics(MetricTable):
    """All metrics of one collector."""

    prefix = "weir_collect_"

    rounds = counter("Rounds", "result", "done first unread unreported")
    round_seconds = histogram("Of a round", _SECONDS)
    behind = counter("Rounds longer than the interval")
    requests = counter("REST", "method outcome")
    request_seconds = histogram("Of a REST call", _SECONDS, "method")
    brokers = gauge("Brokers that answered")
    places = gauge("Counters kept")
    unknown_places = counter("Beyond those kept")
    counter_restarts = counter("Went back")
    reports = counter("group_usage", "result", "written failed")
    pushes = counter("Limits", "kind result")
    push_seconds = histogram("Of all pushes of a round", _SECONDS)
    limits = gauge("Pushed and in force", "kind")
    waiting_pushes = gauge("Put off")
    foreign_limits = gauge("Left to others")
    unusable_records = counter("Of Kafka")

    def request(self, method: str, outcome: str, seconds: float) -> None:
        """A REST call ended."""
        self.requests.labels(method, outcome).inc()
        self.request_seconds.labels(method).observe(seconds)
