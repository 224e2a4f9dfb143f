"""What an enforcer tells Prometheus of concurrency limits: Zeebe's names, and what Zeebe lacks.

Names and labels: docs/metrics.md, "Concurrency". Nothing is kept for the scrape.
"""

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry

from enforcer.laws.concurrency.limiter import WAIT_BUCKETS_S
from enforcer.laws.concurrency.partitions import Partition, Partitions
from streaming.metrics import MetricTable, Row, Sample, read_counter, read_gauge


class ConcurrencyMetrics(MetricTable):
    """Reads the limiters when it is asked.

    Args:
        registry: shows them.
        partitions: holds them.
    """

    prefix = "weir_concurrency_"

    received = read_counter(
        "Requests let through or refused", "partition", "limiter.received", "zeebe_received_request_count"
    )
    dropped = read_counter(
        "Requests refused for want of a slot", "partition", "limiter.dropped", "zeebe_dropped_request_count"
    )
    slots_expired = read_counter("Slots given back by their deadline", "partition", "limiter.expired")
    in_flight = read_gauge(
        "Requests of this enforcer in flight", "partition", "limiter.in_flight",
        "zeebe_backpressure_inflight_requests_count",
    )  # fmt: skip
    own_limit = read_gauge(
        "This enforcer's limit", "partition", "limiter.limit", "zeebe_backpressure_requests_limit"
    )
    limit = read_gauge("The limit of all enforcers together", "partition", "in_force.limit")
    queue_length = read_gauge("Connections that wait for a slot", "partition", "limiter.waiting")
    queue_age_seconds = read_gauge("How long the first of them has", "partition", "limiter.oldest_s")
    local = read_gauge(
        "1 while the limit is learned here, since the job is not heard", "partition", "in_force.local"
    )
    waits = Row(
        "histogram", "Wait for a slot, of requests that were sent", "partition",
        "zeebe_stream_processor_latency", "",
    )  # fmt: skip
    limit_change = read_counter("Changes of the limit", "partition reason")
    samples = read_counter("Round trips told to the job or not", "partition what")
    exempt_requests = read_counter("Requests that need no slot", "partition class")

    def __init__(self, registry: CollectorRegistry, partitions: Partitions) -> None:
        self._partitions = partitions
        super().__init__(registry)

    def read_samples(self) -> Iterator[Sample]:
        """See there."""
        for name, partition in list(self._partitions.known.items()):
            yield from self.read_paths([name], partition)
            yield self._waits(name, partition)
            for reason in ("increase", "decrease", "held"):
                yield self.limit_change, [name, reason], partition.in_force.changes[reason]
            reservoir = partition.limiter.samples
            yield self.samples, [name, "sent"], reservoir.sent
            yield self.samples, [name, "discarded"], reservoir.discarded
            for kind, count in sorted(partition.limiter.exempted.items()):
                yield self.exempt_requests, [name, kind], count

    def _waits(self, name: str, partition: Partition) -> Sample:
        waits, limiter = partition.limiter.waits, partition.limiter
        # Nearly all do not wait, and are not noted one by one.
        at_once = max(0, limiter.received - limiter.dropped - sum(waits.counts))
        counts = [at_once + count for count in accumulate(waits.counts)]
        bounds = [*map(str, WAIT_BUCKETS_S), "+Inf"]
        return self.waits, [name], list(zip(bounds, counts, strict=True)), waits.sum_s
