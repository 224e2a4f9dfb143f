"""What is counted of topics that clients would create (docs/metrics.md)."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class CreatingMetrics:
    """Its counts.

    Args:
        registry: where they are shown.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.topics = Counter(
            "weir_pulsar_topics_looked_up",
            "Topics of requests that would create them, by what is known of them",
            ["found"],
            registry=registry,
        )
        self.held = Gauge(
            "weir_pulsar_held_creations", "Requests kept that may create a topic", registry=registry
        )
        self.refused = Counter(
            "weir_pulsar_refused_creations", "Requests that would create a topic and were refused", ["why"],
            registry=registry,
        )  # fmt: skip
