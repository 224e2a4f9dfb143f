"""What an enforcer tells Prometheus of blocked producers: docs/metrics.md, "Blocked producers"."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

HELD_BUCKETS_S: Final = (0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0)


class BlockMetrics:
    """All of them.

    Args:
        registry: of the process.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        kind = ["quota_type", "policy"]
        self.blocks = Gauge(
            "weir_producer_blocks", "Topics whose producers are blocked", kind, registry=registry
        )
        self.requests = Counter(
            "weir_producer_block_requests",
            "Requests to blocked topics, by what became of them",
            [*kind, "outcome"],
            registry=registry,
        )
        self.held = Gauge("weir_producer_block_held", "Requests that are held now", registry=registry)
        self.held_s = Histogram(
            "weir_producer_block_held_seconds",
            "How long a request was held",
            registry=registry,
            buckets=HELD_BUCKETS_S,
        )
        self.stale = Counter(
            "weir_producer_block_stale", "Decisions that became too old", ["outcome"], registry=registry
        )
        self.dropped = Counter(
            "weir_producer_block_dropped", "Decisions beyond 10,000 topics", registry=registry
        )
        self.actions = Counter(
            "weir_producer_block_actions", "Steps of blocks logged", ["step", "result"], registry=registry
        )
        # From the start, for alerts: a series that appears with 1 shows no increase.
        for outcome in ("open", "keep"):
            self.stale.labels(outcome)
        for step in ("begun", "ended"):
            for result in ("written", "failed", "dropped"):
                self.actions.labels(step, result)
