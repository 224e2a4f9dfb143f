"""What the proxy of an admin API tells Prometheus; names and meanings are listed in docs/metrics.md."""

from typing import Final

from streaming.metrics import MetricTable, counter, gauge, histogram

_SECONDS_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
OTHER: Final = "other"
"""Operation of requests that no rule is for."""


class HttpMetrics(MetricTable):
    """All metrics of one such proxy."""

    prefix = "weir_http_"

    requests = counter("Requests passed on or refused, by operation and status", "operation code")
    upstream_seconds = histogram("From a request to the upstream to the head of its answer", _SECONDS_BUCKETS)
    upstream_failures = counter(
        "Requests that the upstream did not answer, or not to the end",
        "reason", "connect busy timeout ended request",
    )  # fmt: skip
    redirects = counter("Requests that the upstream sent on, followed here or refused", "result")
    credentials = counter("Credentials asked about, by what the upstream said of them", "result")
    replay_bytes = gauge("Bodies kept to be sent again, now")
    waiting_requests = gauge("Requests that wait for their quota, now")
