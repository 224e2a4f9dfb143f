"""Concurrency limits of the brokers: ties policies, limits, shares, samples and connections together."""

import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Final, Protocol

from enforcer.core import bounds
from enforcer.core.law import Accounts, Context, DecisionReader, EnforcerLaw
from enforcer.laws.concurrency.limiter import Limiter
from enforcer.laws.concurrency.metrics import ConcurrencyMetrics
from enforcer.laws.concurrency.partitions import SAMPLE_LINGER_MS, Partitions
from enforcer.laws.concurrency.samples_out import SamplesOut
from enforcer.laws.concurrency.shares import InflightShares
from streaming.contract.decisions import LimitDecision, limit_of

_ASKED: Final = 3
"""So often a job is asked for a sign before it counts as away; it has at least as long to answer the last."""


class ClientConnection(Protocol):
    """A client connection.

    Attributes:
        address: of its broker.
    """

    address: tuple[str, int]

    def count_by(self, limiter: Limiter | None) -> None:
        """From now on its requests in flight count here; None: nowhere."""


class ConcurrencyLimits(EnforcerLaw):
    """Keeps each connection before the limiter of its broker, if that has one.

    Attributes:
        partitions: the limiters.

    Args:
        context: its connections are ClientConnections.
        accounts: hold this enforcer's shares of the limits.
        now_ns: the steady clock that round trips are measured by.
    """

    reads = DecisionReader(type="limit", parse=limit_of, timely=True)

    def __init__(
        self, context: Context, accounts: Accounts, now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._context = context
        self._accounts = accounts
        self.look_s = SAMPLE_LINGER_MS / 1000
        self._ask_ms = bounds.BRAIN_AWAY_MS / _ASKED
        self._asked_ms = -inf
        self._seen = (0, 0)
        self._shares = InflightShares(accounts, context.membership)
        out = SamplesOut(context, now_ns)
        self.partitions = Partitions(context.clock, now_ns, self._shares.of, out)
        accounts.before_report(self._fill)
        ConcurrencyMetrics(context.metrics.registry, self.partitions)

    @property
    def standing_ms(self) -> int:
        """As long as a share stands, where a partition may be limited."""
        return self._accounts.share_life_ms if self.partitions.active else 0

    def look(self) -> None:
        """Follow the time: policies come into force, brokers become known, samples leave."""
        partitions, context = self.partitions, self._context
        policies, at = context.policies, context.brokers_ms()
        partitions.set_policies(policies.at(at), policies.timeline.since(at))
        now = (partitions.generation, context.upstreams.changes)
        if now != self._seen:
            self._seen = now
            for connection in list(context.connections()):
                connection.count_by(self._limiter_of(connection.address))
        partitions.look()
        partitions.forget_idle(
            lambda: {context.upstreams.partition_at(each.address) for each in context.connections()}
        )
        now_ms = context.clock.steady_ms()
        if partitions.unheard_ms >= self._ask_ms and now_ms - self._asked_ms >= self._ask_ms:
            # A limit that does not change is not said, so that silence alone says nothing.
            self._asked_ms = now_ms
            context.ask_for_a_sign()

    def take(self, limits: Sequence[LimitDecision]) -> None:
        """Limits were decided, or something else was heard of the job."""
        self.partitions.take(limits)

    def came(self, connection: ClientConnection) -> None:
        """A client came."""
        if self.partitions.active:
            connection.count_by(self._limiter_of(connection.address))

    def _limiter_of(self, address: tuple[str, int]) -> Limiter | None:
        if not self.partitions.active:
            return None
        name = self._context.upstreams.partition_at(address)
        # The bootstrap address may be a balancer's, or name its broker otherwise: then nobody knows which.
        found = None if name is None else self.partitions.find(name)
        return None if found is None else found.limiter

    def _fill(self, period_ms: float) -> None:
        self._shares.fill(self.partitions.known.values(), period_ms)
