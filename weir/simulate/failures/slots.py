"""Requests in flight under a concurrency limit that all proxies share (docs/contract.md 3.4)."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from enforcer.core.law import EnforcerLaw
from enforcer.laws.concurrency.limits import ConcurrencyLimits
from enforcer.laws.concurrency.partitions import SAMPLE_LINGER_MS
from enforcer.laws.mutation.law import MutationQuotas
from enforcer.laws.shares.groups import Groups
from streaming.contract.broker_events import Latency
from weir.simulate.failures.excess import Found
from weir.simulate.failures.proxy import Proxy
from weir.simulate.failures.scenario import Facts
from weir.simulate.failures.world import Traffic, World

_KIND: Final = "produce"
_NS_PER_MS: Final = 1_000_000


class Slots(Traffic):
    """What is in flight: as many as were recorded to want it, where there is room.

    A recorded sample tells how many requests were under way, and how long one of them took. So many are
    wanted then, an even part of them at each proxy, and each takes so long; those beyond the limit are
    refused.


    Args:
        recorded: the samples, in order.
        found: see Traffic.
    """

    job = ("concurrency", "shares", "mutation")

    def __init__(self, recorded: Sequence[Latency], found: Found) -> None:
        super().__init__(found)
        self._recorded = recorded
        self._laws: dict[str, ConcurrencyLimits] = {}
        self._groups: dict[str, Groups] = {}
        self._joining_fraction = 0.0

    def enforce(self, proxy: Proxy) -> list[EnforcerLaw]:
        """See world.Traffic."""
        groups = self._groups[proxy.name] = Groups(proxy.context, proxy.meter)
        clock = proxy.context.clock
        law = ConcurrencyLimits(
            proxy.context, proxy.meter, now_ns=lambda: round(clock.steady_ms() * _NS_PER_MS)
        )
        self._laws[proxy.name] = law
        self._joining_fraction = proxy.context.settings.joining_fraction
        # By a probe of partition mutations the job is asked for a sign of life.
        return [groups, law, MutationQuotas(proxy.context)]

    def opened(self, proxy: Proxy) -> None:
        """See world.Traffic: from now on it reports each round."""
        proxy.after(proxy.meter.interval_ms, partial(self._end_round, proxy))

    def begin(self, world: World) -> None:
        """See world.Traffic."""
        super().begin(world)
        for sample in self._recorded:
            world.at(sample.ts, partial(self._come, sample))

    def bound(self, name: str, facts: Facts) -> float:
        """See world.Traffic: docs/laws.md, "concurrency", several enforcers."""
        fraction = self._joining_fraction if facts.joins else 0.0
        return facts.proxies + self.found[name].limit * (1.0 if facts.cut_s else fraction)

    def _end_round(self, proxy: Proxy) -> None:
        self._groups[proxy.name].reports.report()
        proxy.after(proxy.meter.interval_ms, partial(self._end_round, proxy))

    def _come(self, sample: Latency) -> None:
        """Requests come to all proxies."""
        world = self.world
        there = [proxy for proxy in world.proxies if proxy.open]
        limit, used, began = 0, 0, False
        for number, proxy in enumerate(there):
            wanted = sample.inflight * (number + 1) // len(there) - sample.inflight * number // len(there)
            partition = self._laws[proxy.name].partitions.find(sample.partition)
            if partition is None or partition.tracked:
                return
            limiter = partition.limiter
            while limiter.in_flight < min(wanted, limiter.limit):
                began = True
                ticket = limiter.begin(_KIND)
                proxy.after(sample.rtt_ns / _NS_PER_MS, partial(limiter.end, ticket))
            proxy.after(SAMPLE_LINGER_MS + sample.rtt_ns / _NS_PER_MS, self._laws[proxy.name].look)
            used += limiter.in_flight
            limit = max(limit, partition.in_force.limit)
        if began:
            found = self.found.of(sample.partition)
            found.stand(world.now, used, limit)
