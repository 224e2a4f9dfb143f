"""Concurrency limits of the brokers: ties policies, limits, shares, samples and connections together."""

import asyncio
import time
from collections.abc import Callable, Iterable
from math import inf
from typing import Final, Protocol

from enforcer.core import bounds
from enforcer.core.brain import Brain
from enforcer.core.feeds.limits import LimitDecision
from enforcer.core.metrics import Metrics
from enforcer.laws.concurrency.limiter import Limiter
from enforcer.laws.concurrency.metrics import ConcurrencyCollector
from enforcer.laws.concurrency.partitions import SAMPLE_LINGER_MS, Partitions
from enforcer.laws.concurrency.samples_out import SamplesOut
from enforcer.laws.concurrency.shares import InflightShares
from enforcer.laws.shares.groups import Groups

_ASKED: Final = 3
"""So often a job is asked for a sign before it counts as away; it has at least as long to answer the last."""


class Counted(Protocol):
    """A client connection.

    Attributes:
        address: of its broker.
    """

    address: tuple[str, int]

    def count_by(self, limiter: Limiter | None) -> None:
        """From now on its requests in flight count here; None: nowhere."""
        ...


class Upstreams(Protocol):
    """What is known of the brokers behind us.

    Attributes:
        changes: goes up when an address may belong to another one than before.
    """

    @property
    def changes(self) -> int:
        """See there."""
        ...

    def partition_at(self, address: tuple[str, int]) -> str | None:
        """The partition (docs/contract.md 3.4) of the broker at an address; None: nobody knows which."""
        ...


class Measuring:
    """Keeps each connection before the limiter of its broker, if that has one.

    Attributes:
        partitions: the limiters.

    Args:
        proxy_id: name of this proxy.
        metrics: gets the numbers too.
        brain: sends samples, brings limits and policies.
        groups: brings shares, reports use.
        upstreams: tell whose an address is.
        connections: all that are open.
    """

    def __init__(
        self,
        proxy_id: str,
        metrics: Metrics,
        brain: Brain,
        groups: Groups,
        upstreams: Upstreams,
        connections: Callable[[], Iterable[Counted]],
    ) -> None:
        self._brain = brain
        self._upstreams = upstreams
        self._connections = connections
        self._linger_s = SAMPLE_LINGER_MS / 1000
        self._ask_ms = bounds.BRAIN_AWAY_MS / _ASKED
        self._asked_ms = -inf
        self._seen = (0, 0)
        now_ns = time.monotonic_ns
        out = SamplesOut(
            proxy_id, brain.send_usage, brain.send_usage_pack, brain.brokers_ms, now_ns, bounds.PACK_MIN
        )
        members = brain.coordinator.members
        shares = InflightShares(groups.meter, lambda: None if members.count is None else members.peers)
        self.partitions = Partitions(brain.clock, now_ns, shares, out)
        brain.take_limits = self._take
        groups.reports.before = lambda period_ms: shares.fill(self.partitions.known.values(), period_ms)
        metrics.registry.register(ConcurrencyCollector(self.partitions))

    async def run(self) -> None:
        """Look every `SAMPLE_LINGER_MS`, until cancelled."""
        while True:
            await asyncio.sleep(self._linger_s)
            self.look()

    def look(self) -> None:
        """Follow the time: policies come into force, brokers become known, samples leave."""
        partitions, brain = self.partitions, self._brain
        policies, at = brain.coordinator.policies, brain.brokers_ms()
        partitions.set_policies(policies.at(at), policies.timeline.since(at))
        now = (partitions.generation, self._upstreams.changes)
        if now != self._seen:
            self._seen = now
            for connection in list(self._connections()):
                connection.count_by(self._limiter_of(connection.address))
        partitions.look()
        now_ms = brain.clock.steady_ms()
        if partitions.unheard_ms >= self._ask_ms and now_ms - self._asked_ms >= self._ask_ms:
            # A limit that does not change is not said, so that silence alone says nothing.
            self._asked_ms = now_ms
            brain.ask_for_a_sign()

    def came(self, connection: Counted) -> None:
        """A client came."""
        if self.partitions.active:
            connection.count_by(self._limiter_of(connection.address))

    def _limiter_of(self, address: tuple[str, int]) -> Limiter | None:
        if not self.partitions.active:
            return None
        name = self._upstreams.partition_at(address)
        # The bootstrap address may be a balancer's, or name its broker otherwise: then nobody knows which.
        found = None if name is None else self.partitions.find(name)
        return None if found is None else found.limiter

    def _take(self, limits: list[LimitDecision]) -> None:
        self.partitions.heard()
        self.partitions.take(limits)
