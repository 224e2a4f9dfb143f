"""What only the Pulsar proxy tells Prometheus (docs/metrics.md)."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class PulsarMetrics:
    """Its counts.

    Args:
        registry: where they are shown.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.lookups = Counter(
            "weir_pulsar_lookups", "Answers to lookups, by what the client got", ["outcome"],
            registry=registry,
        )  # fmt: skip
        self.redirects = Counter(
            "weir_pulsar_redirects", "Lookups followed to another broker, by how that went", ["result"],
            registry=registry,
        )  # fmt: skip
        self.refused_targets = Counter(
            "weir_pulsar_refused_targets", "Clients that asked for a broker nobody knows", registry=registry
        )
        self.targets = Gauge("weir_pulsar_targets", "Brokers known from lookups", registry=registry)
        self.broker_frames = Counter(
            "weir_pulsar_broker_frames", "Frames read from brokers", registry=registry
        )
        self.moved = Counter(
            "weir_pulsar_moved", "Producers and consumers that brokers sent elsewhere, by how", ["how"],
            registry=registry,
        )  # fmt: skip
