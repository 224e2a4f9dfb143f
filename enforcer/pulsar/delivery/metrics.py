"""What the delivering side tells Prometheus (docs/metrics.md)."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

_GAUGES = (
    ("weir_consumer_banked_permits", "Permits that clients gave and that wait to be forwarded"),
    ("weir_consumer_held_frames", "Frames for consumers that wait for a limit"),
    ("weir_consumer_held_bytes", "What they take"),
)


class DeliveryMetrics(Collector):
    """Its counts.

    Args:
        registry: where they are shown.
        now: banked permits, held frames, bytes of these.
    """

    def __init__(self, registry: CollectorRegistry, now: Callable[[], tuple[int, int, int]]) -> None:
        self._now = now
        self.exempt = Counter(
            "weir_consumer_exempt", "Consumers that a dispatch rate leaves alone, by why", ["why"],
            registry=registry,
        )  # fmt: skip
        self.held = Counter(
            "weir_consumer_holds", "Messages that had to wait with the proxy", registry=registry
        )
        self.lost = Counter(
            "weir_consumer_lost_messages", "Messages of topics that are not stored, dropped for a limit",
            registry=registry,
        )  # fmt: skip
        self.asked = Counter(
            "weir_consumer_permit_questions", "Brokers asked for a consumer's permits, by what came",
            ["result"], registry=registry,
        )  # fmt: skip
        self.full = Counter(
            "weir_consumer_full", "Times that a broker was not read, since too much was held",
            registry=registry,
        )  # fmt: skip
        self.unreadable = Counter(
            "weir_consumer_unreadable_messages", "Messages without metadata, counted as one each",
            registry=registry,
        )  # fmt: skip
        registry.register(self)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """What there is now."""
        for (name, text), value in zip(_GAUGES, self._now(), strict=True):
            yield GaugeMetricFamily(name, text, value=value)
