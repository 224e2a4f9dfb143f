"""What only the Pulsar proxy tells Prometheus (docs/metrics.md)."""

from streaming.metrics import MetricTable, counter, gauge


class PulsarMetrics(MetricTable):
    """Its counts."""

    prefix = "weir_pulsar_"

    lookups = counter("Answers to lookups, by what the client got", "outcome")
    redirects = counter("Lookups followed to another broker, by how that went", "result")
    refused_targets = counter("Clients that asked for a broker nobody knows")
    targets = gauge("Brokers known from lookups")
    broker_frames = counter("Frames read from brokers")
    moved = counter("Producers and consumers that brokers sent elsewhere, by how", "how")
