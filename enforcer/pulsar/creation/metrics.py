"""What is counted of topics that clients would create (docs/metrics.md)."""

from streaming.metrics import MetricTable, counter, gauge


class CreationMetrics(MetricTable):
    """Its counts."""

    prefix = "weir_creation_"

    topics = counter("Topics of requests that would create them, by what is known of them", "found")
    held = gauge("Requests kept that may create a topic")
    refused = counter("Requests that would create a topic and were refused", "why")
