"""What is counted of topics that clients would create (docs/metrics.md)."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class CreationMetrics:
    """Its counts.

    Args:
        registry: where they are shown.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.topics = Counter(
            "weir_creation_topics",
            "Topics of requests that would create them, by what is known of them",
            ["found"],
            registry=registry,
        )
        self.held = Gauge(
            "weir_creation_held", "Requests kept that may create a topic", registry=registry
        )
        self.refused = Counter(
            "weir_creation_refused", "Requests that would create a topic and were refused", ["why"],
            registry=registry,
        )  # fmt: skip
