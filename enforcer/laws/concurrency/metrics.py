"""What an enforcer tells Prometheus of concurrency limits: Zeebe's names, and what Zeebe lacks.

Names and labels: docs/metrics.md, "Concurrency". Nothing is kept for the scrape.
"""

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from enforcer.laws.concurrency.limiter import WAIT_BUCKETS_S
from enforcer.laws.concurrency.partitions import Partition, Partitions

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

_COUNTERS: Final[tuple[tuple[str, str, Callable[[Partition], float]], ...]] = (
    ("zeebe_received_request_count", "Requests let through or refused", lambda p: p.limiter.received),
    ("zeebe_dropped_request_count", "Requests refused for want of a slot", lambda p: p.limiter.dropped),
    (
        "weir_concurrency_slots_expired",
        "Slots given back by their deadline",
        lambda p: p.limiter.expired,
    ),
)
_GAUGES: Final[tuple[tuple[str, str, Callable[[Partition], float]], ...]] = (
    (
        "zeebe_backpressure_inflight_requests_count",
        "Requests of this enforcer in flight",
        lambda p: p.limiter.in_flight,
    ),
    ("zeebe_backpressure_requests_limit", "This enforcer's limit", lambda p: p.limiter.limit),
    ("weir_concurrency_limit", "The limit of all enforcers together", lambda p: p.in_force.limit),
    ("weir_concurrency_queue_length", "Connections that wait for a slot", lambda p: p.limiter.waiting),
    ("weir_concurrency_queue_age_seconds", "How long the first of them has", lambda p: p.limiter.oldest_s),
    (
        "weir_concurrency_local",
        "1 while the limit is learned here, since the job is not heard",
        lambda p: p.in_force.local,
    ),
)
_LABELS: Final = ["partition"]


class ConcurrencyCollector(Collector):
    """Reads the limiters when it is asked.

    Args:
        partitions: holds them.
    """

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def collect(self) -> Iterator[Family]:
        """All families, without partitions too."""
        known = list(self._partitions.known.items())
        for name, text, value in _COUNTERS:
            counter = CounterMetricFamily(name, text, labels=_LABELS)
            for partition, found in known:
                counter.add_metric([partition], value(found))
            yield counter
        for name, text, value in _GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=_LABELS)
            for partition, found in known:
                gauge.add_metric([partition], value(found))
            yield gauge
        yield self._waits(known)
        yield from self._by_kind(known)

    @staticmethod
    def _waits(known: list[tuple[str, Partition]]) -> Family:
        family = HistogramMetricFamily(
            "zeebe_stream_processor_latency", "Wait for a slot, of requests that were sent", labels=_LABELS
        )
        bounds = [*map(str, WAIT_BUCKETS_S), "+Inf"]
        for name, partition in known:
            waits, limiter = partition.limiter.waits, partition.limiter
            # Nearly all do not wait, and are not noted one by one.
            at_once = max(0, limiter.received - limiter.dropped - sum(waits.counts))
            counts = [at_once + count for count in accumulate(waits.counts)]
            family.add_metric([name], list(zip(bounds, counts, strict=True)), waits.sum_s)
        return family

    @staticmethod
    def _by_kind(known: list[tuple[str, Partition]]) -> Iterator[Family]:
        changes = CounterMetricFamily(
            "weir_concurrency_limit_change", "Changes of the limit", labels=[*_LABELS, "reason"]
        )
        samples = CounterMetricFamily(
            "weir_concurrency_samples", "Round trips told to the job or not", labels=[*_LABELS, "what"]
        )
        exempt = CounterMetricFamily(
            "weir_concurrency_exempt_requests", "Requests that need no slot", labels=[*_LABELS, "class"]
        )
        for name, partition in known:
            for reason in ("increase", "decrease", "held"):
                changes.add_metric([name, reason], partition.in_force.changes[reason])
            reservoir = partition.limiter.samples
            samples.add_metric([name, "sent"], reservoir.sent)
            samples.add_metric([name, "discarded"], reservoir.discarded)
            for kind, count in sorted(partition.limiter.exempted.items()):
                exempt.add_metric([name, kind], count)
        yield from (changes, samples, exempt)
