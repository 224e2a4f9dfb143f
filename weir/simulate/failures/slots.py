"""Requests in flight under a concurrency limit that all proxies share (docs/contract.md 3.4)."""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Final

from enforcer.core.law import EnforcerLaw
from enforcer.laws.concurrency.limiter import Ticket
from enforcer.laws.concurrency.limits import ConcurrencyLimits
from enforcer.laws.concurrency.partitions import SAMPLE_LINGER_MS
from enforcer.laws.mutation.law import MutationQuotas
from enforcer.laws.shares.groups import Groups
from enforcer.laws.shares.newcomers import JOINING_FRACTION
from streaming.contract.broker_events import Latency
from streaming.policy.timeline import PolicyTimeline
from weir.simulate.failures.excess import Found
from weir.simulate.failures.proxy import Proxy
from weir.simulate.failures.scenario import Facts
from weir.simulate.failures.world import Traffic

INFLIGHT_MAX: Final = 10_000
"""Of a sample; what was more is left out."""
_KIND: Final = "produce"
_NS_PER_MS: Final = 1_000_000


class Slots(Traffic):
    """What is in flight: as many as were recorded to want it, where there is room.

    A recorded sample tells how many requests were under way. So many are wanted until the next one, an even
    part of them at each proxy; those beyond the limit are refused. Its round trip is measured at one of the
    proxies, with what is in flight there, so that the law learns of as many as were recorded.
    """

    job = ("concurrency", "shares", "mutation")

    def __init__(self, recorded: Sequence[Latency], found: Found, timeline: PolicyTimeline) -> None:
        super().__init__(recorded, found, timeline)
        self._laws: dict[str, ConcurrencyLimits] = {}
        self._groups: dict[str, Groups] = {}
        self._held: dict[tuple[str, str], list[Ticket]] = defaultdict(list)

    def enforce(self, proxy: Proxy) -> list[EnforcerLaw]:
        """See world.Traffic."""
        groups = self._groups[proxy.name] = Groups(proxy.context, proxy.meter)
        clock = proxy.context.clock
        law = ConcurrencyLimits(
            proxy.context, proxy.meter, now_ns=lambda: round(clock.steady_ms() * _NS_PER_MS)
        )
        self._laws[proxy.name] = law
        # By a probe of partition mutations the job is asked for a sign of life.
        return [groups, law, MutationQuotas(proxy.context)]

    def opened(self, proxy: Proxy) -> None:
        """See world.Traffic: from now on it reports each round."""
        proxy.each_round(self._groups[proxy.name].reports.report)

    def bound(self, name: str, facts: Facts) -> float:
        """See world.Traffic: docs/laws.md, "concurrency", several enforcers."""
        fraction = JOINING_FRACTION if facts.joins else 0.0
        return facts.proxies + self.found[name].limit * (1.0 if facts.cut_s else fraction)

    def _come(self, number: int, event: Latency) -> None:
        """Requests come to all proxies in the place of those before."""
        world, (sample,) = self.world, event.samples
        assert sample is not None
        there, measures = [proxy for proxy in world.proxies if proxy.open], world.home(number)
        whole, limit, used = min(sample.inflight, INFLIGHT_MAX), 0, 0
        for place, proxy in enumerate(there):
            wanted = whole * (place + 1) // len(there) - whole * place // len(there)
            partition = self._laws[proxy.name].partitions.find(event.partition)
            if partition is None or partition.tracked:
                return
            limiter, held = partition.limiter, self._held[proxy.name, event.partition]
            while held:
                limiter.end(held.pop())
            # What goes on all the time is not measured, and what is measured takes no slot besides.
            held += (limiter.begin(_KIND, sampled=False) for _ in range(min(wanted, limiter.limit)))
            if proxy is measures and held:
                ticket = limiter.begin(_KIND, holds=False)
                took_ms = sample.rtt_ns / _NS_PER_MS
                proxy.after(took_ms, partial(limiter.end, ticket))
                proxy.after(took_ms + SAMPLE_LINGER_MS, self._laws[proxy.name].look)
            used += limiter.in_flight
            limit = max(limit, partition.in_force.limit)
        if used:
            self.found.of(event.partition).stand(world.now, used, limit)
