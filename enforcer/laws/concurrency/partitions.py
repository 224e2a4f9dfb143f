"""All partitions whose requests in flight are limited at this enforcer (docs/contract.md 3.4)."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from prometheus_client import CollectorRegistry

from enforcer.core import bounds
from enforcer.core.law import Clock
from enforcer.laws.concurrency.in_force import LimitInForce
from enforcer.laws.concurrency.limiter import WAIT_BUCKETS_S, Limiter, Reservoir, own_part
from streaming.contract.broker_events import Sample
from streaming.contract.decisions import LimitDecision
from streaming.metrics import MetricTable, Row, read_counter, read_gauge
from streaming.metrics import Sample as Measured
from streaming.policy.concurrency_schema import EXEMPT
from streaming.policy.policy_set import PolicySet, Section, partition_entry

SAMPLE_LINGER_MS: Final = 100
"""How long round trips are gathered before they are sent: about a batch of the job."""
SAMPLES_MAX: Final = 200
"""Round trips of a partition that are sent a second, chosen evenly; the law's window is a second, and ten are
enough for it."""
INFLIGHT_QUEUE_MAX: Final = 1_000
"""Connections that wait for a slot of one partition; further requests fail at once."""
IDLE_MS: Final = 3_600_000.0
"""A partition without a request for so long is forgotten unless somebody is connected: brokers come and go
under new names, and the job says no more of them either."""
UNLIMITED: Final = 2**31 - 1
"""More than are ever in flight."""
_PREFIX: Final = f"{Section.PARTITIONS}."
SendSamples = Callable[[Mapping[str, list[Sample]]], None]
"""Sends what was kept of partitions' round trips; see SamplesOut."""

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Partition:
    """One partition at this enforcer.

    Attributes:
        limiter: its slots.
        in_force: the limit of all enforcers together.
        used_ms: when a request was under way last, on the steady clock.
        tracked: nobody is to wait: the mode is `track`.
    """

    limiter: Limiter
    in_force: LimitInForce
    used_ms: float
    tracked: bool

    def set_fraction(self, fraction: float) -> None:
        """Our part of the limit, or the limit itself, may have changed."""
        self.limiter.set_limit(UNLIMITED if self.tracked else own_part(self.in_force.limit, fraction))


class Partitions:
    """The limiters, by partition.

    Attributes:
        active: some partition may be limited.
        generation: goes up when a partition may be limited otherwise than before.
        known: partition -> what is known of it.

    Args:
        now_ns: the steady clock that round trips are measured by.
        fraction_of: tells our part of a limit, above 0 and at most 1; see InflightShares.
    """

    def __init__(
        self,
        clock: Clock,
        now_ns: Callable[[], int],
        fraction_of: Callable[[str], float],
        tell: SendSamples,
    ) -> None:
        self.active = False
        self.generation = 0
        self.known: dict[str, Partition] = {}
        self._clock = clock
        self._now_ns = now_ns
        self._fraction_of = fraction_of
        self._tell = tell
        self._policies: PolicySet | None = None
        self._heard = False
        self._early: dict[str, tuple[LimitDecision, float]] = {}

    def set_policies(self, policies: PolicySet, since_ts: int = 0) -> None:
        """These policies are in force now, and since a time (ms since the epoch).

        Limits go on where their settings are the same.
        """
        if policies is self._policies:
            return
        self._policies = policies
        active = any(path.startswith(_PREFIX) for path in policies.entries)
        if not active and not self.active:
            return
        self.active = active
        self.generation += 1
        for name, partition in list(self.known.items()):
            entry = partition_entry(policies, name)
            if entry is None:
                del self.known[name]
                partition.limiter.close()
            else:
                partition.in_force.set_entry(entry, since_ts)
                partition.limiter.exempt = exempt_of(entry)
                partition.tracked = policies.tracks

    def find(self, name: str) -> Partition | None:
        """A partition by its name; None: no policy limits it."""
        partition = self.known.get(name)
        if partition is not None or not self.active or self._policies is None:
            return partition
        entry = partition_entry(self._policies, name)
        if entry is None:
            return None
        kept = max(1, SAMPLES_MAX * SAMPLE_LINGER_MS // 1000)
        in_force = LimitInForce(entry)
        limiter = Limiter(
            name,
            in_force.limit,
            Reservoir(kept, len(self.known) + 1),
            self._now_ns,
            queue_max=INFLIGHT_QUEUE_MAX,
            deadline_ns=bounds.SLOT_DEADLINE_MS * 1_000_000,
        )
        limiter.exempt = exempt_of(entry)
        now_ms, tracks = self._clock.steady_ms(), self._policies.tracks
        partition = self.known[name] = Partition(limiter, in_force, now_ms, tracks)
        early = self._early.pop(name, None)
        if early is not None:
            in_force.take(*early)
            # It may have ended already, and counts from when it was read.
            in_force.look(self._clock.steady_ms())
        partition.set_fraction(self._fraction_of(name))
        return partition

    def take(self, decisions: Iterable[LimitDecision]) -> None:
        """Limits were decided or repeated; none: something else was heard of the job."""
        self._heard = True
        now_ms = self._clock.steady_ms()
        for decision in decisions:
            partition = self.known.get(decision.partition)
            if partition is None:
                # As a proxy reads at its start, before any client has come.
                self._early.pop(decision.partition, None)
                if len(self._early) >= bounds.BROKERS_MAX:
                    del self._early[next(iter(self._early))]
                self._early[decision.partition] = decision, now_ms
            else:
                was_local = partition.in_force.local
                partition.in_force.take(decision, now_ms)
                if was_local and not partition.in_force.local:
                    logger.info("partition %s: its limit is decided by the job again", decision.partition)

    @property
    def unheard_ms(self) -> float:
        """For how long at most the job could have said something of samples, and did not."""
        now_ms = self._clock.steady_ms()
        return max((each.in_force.unheard_ms(now_ms) for each in self.known.values()), default=0.0)

    def look(self) -> None:
        """Called once in every `SAMPLE_LINGER_MS`: samples leave, deadlines and the job's silence count."""
        if not self.active:
            return
        now_ms = self._clock.steady_ms()
        samples: dict[str, list[Sample]] = {}
        for name, partition in self.known.items():
            limiter, in_force, fraction = partition.limiter, partition.in_force, self._fraction_of(name)
            limiter.expire()
            kept = limiter.samples.take()
            taken = [each._replace(inflight=of_all(each.inflight, fraction)) for each in kept]
            if taken:
                samples[name] = taken
            if taken or limiter.in_flight:
                partition.used_ms = now_ms
            if self._heard:
                in_force.heard(now_ms)
            in_force.feed(taken, now_ms)
            if in_force.look(now_ms):
                logger.warning("partition %s: the job is not heard; its limit is learned here", name)
            partition.set_fraction(fraction)
        self._heard = False
        if samples:
            self._tell(samples)

    def forget_idle(self, connected: Callable[[], Collection[str | None]]) -> None:
        """Forget whom nobody uses; `connected`, rarely asked, tells which have connections."""
        now_ms = self._clock.steady_ms()
        idle = [name for name, each in self.known.items() if now_ms - each.used_ms >= IDLE_MS]
        if not idle:
            return
        there = connected()
        for name in idle:
            if name in there:
                # Its connections count by this limiter.
                self.known[name].used_ms = now_ms
            else:
                del self.known[name]


def exempt_of(entry: Mapping[str, Any]) -> frozenset[str]:
    """The classes that an entry lets pass."""
    return frozenset(map(str, entry.get("exempt", EXEMPT)))


def of_all(inflight: int, fraction: float) -> int:
    """What the requests in flight at one enforcer are of all, by its fraction of the limit; at least 1.

    >>> of_all(3, 0.5), of_all(3, 1.0), of_all(1, 1 / 3)
    (6, 3, 3)
    """
    return max(1, round(inflight / fraction))


class ConcurrencyMetrics(MetricTable):
    """What is told of partitions (docs/metrics.md, "Concurrency"), by Zeebe's names, and what Zeebe lacks.

    It reads the limiters when it is asked; nothing is kept for the scrape.
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

    def read_samples(self) -> Iterator[Measured]:
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

    def _waits(self, name: str, partition: Partition) -> Measured:
        waits, limiter = partition.limiter.waits, partition.limiter
        # Nearly all do not wait, and are not noted one by one.
        at_once = max(0, limiter.received - limiter.dropped - sum(waits.counts))
        counts = [at_once + count for count in accumulate(waits.counts)]
        ends = [*map(str, WAIT_BUCKETS_S), "+Inf"]
        return self.waits, [name], list(zip(ends, counts, strict=True)), waits.sum_s
