"""What the delivering side tells Prometheus (docs/metrics.md)."""

from prometheus_client import CollectorRegistry

from streaming.metrics import MetricTable, counter, read_gauge


class DeliveryMetrics(MetricTable):
    """Its counts.

    Args:
        registry: shows them.
        context: what is held there is read off it.
    """

    prefix = "weir_consumer_"

    banked_permits = read_gauge(
        "Permits that clients gave and that wait to be forwarded", of="context.banked"
    )
    held_frames = read_gauge("Frames for consumers that wait for a limit", of="context.held.frames")
    held_bytes = read_gauge("What they take", of="context.held.size")
    exempt = counter("Consumers that a dispatch rate leaves alone, by why", "why")
    holds = counter("Messages that had to wait with the proxy")
    lost_messages = counter("Messages of topics that are not stored, dropped for a limit")
    permit_questions = counter("Brokers asked for a consumer's permits, by what came", "result")
    full = counter("Times that a broker was not read, since too much was held")
    unreadable_messages = counter("Messages without metadata, counted as one each")

    def __init__(self, registry: CollectorRegistry, context: object) -> None:
        self.context = context
        super().__init__(registry)
