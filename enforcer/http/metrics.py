"""What the proxy of an admin API tells Prometheus; names and meanings are listed in docs/metrics.md."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
OTHER: Final = "other"
"""Operation of requests that no rule is for."""


class HttpMetrics:
    """All metrics of one such proxy.

    Args:
        registry: they become part of it.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "weir_http_requests",
            "Requests passed on or refused, by operation and status",
            ["operation", "code"],
            registry=registry,
        )
        self.upstream_seconds = Histogram(
            "weir_http_upstream_seconds",
            "From a request to the upstream to the head of its answer",
            registry=registry,
            buckets=_SECONDS_BUCKETS,
        )
        self.upstream_failures = Counter(
            "weir_http_upstream_failures",
            "Requests that the upstream did not answer, or not to the end",
            ["reason"],
            registry=registry,
        )
        # From the start, for alerts: a series that appears with 1 shows no increase.
        for reason in ("connect", "busy", "timeout", "ended", "request"):
            self.upstream_failures.labels(reason)
        self.redirects = Counter(
            "weir_http_redirects",
            "Requests that the upstream sent on, followed here or refused",
            ["result"],
            registry=registry,
        )
        self.credentials = Counter(
            "weir_http_credentials",
            "Credentials asked about, by what the upstream said of them",
            ["result"],
            registry=registry,
        )
        self.replay_bytes = Gauge(
            "weir_http_replay_bytes", "Bodies kept to be sent again, now", registry=registry
        )
        self.waiting = Gauge(
            "weir_http_waiting_requests", "Requests that wait for their quota, now", registry=registry
        )
