"""Concurrency limits of the brokers: ties policies, limits, shares, samples and connections together."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from math import inf
from typing import Any, Final, Protocol

import pyarrow as pa

from enforcer.core import bounds
from enforcer.core.law import Accounts, Context, DecisionReader, EnforcerLaw
from enforcer.core.membership import Membership
from enforcer.laws.concurrency.limiter import Limiter
from enforcer.laws.concurrency.partitions import SAMPLE_LINGER_MS, ConcurrencyMetrics, Partition, Partitions
from streaming.columns.packed import pack
from streaming.contract.broker_events import Sample
from streaming.contract.decisions import LimitDecision, limit_of
from streaming.contract.names import INFLIGHT_GROUP_PREFIX
from streaming.policy.groups import INFLIGHT_PARTS

_DIMENSION: Final = 0
_NS_PER_MS: Final = 1_000_000
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


class InflightShares:
    """Tells this enforcer's part of each limit, and reports what it used of it.

    The limit is a whole of 1,000,000 parts, of which the share law gives each enforcer some, whatever the
    limit is at the moment. What an enforcer used of them is the greatest number in flight of a round.
    """

    def __init__(self, accounts: Accounts, membership: Membership) -> None:
        self._accounts = accounts
        self._membership = membership
        self._count = 1

    def of(self, partition: str) -> float:
        """The fraction, above 0 and at most 1: its share, or what may be used without one (contract 3.2)."""
        membership = self._membership
        alive = None if membership.blind else membership.peers
        account = self._accounts.of_group(f"{INFLIGHT_GROUP_PREFIX}{partition}")
        self._count = max(1, alive or self._count)
        if account is not None and (alive is not None or account.share[_DIMENSION] is not None):
            rate = account.rate(_DIMENSION)
            if rate is not None:
                return max(1 / INFLIGHT_PARTS, min(1.0, rate / INFLIGHT_PARTS))
        # When it is not known any more how many are alive, as many as there were: who hears nothing for a
        # moment, since all is slow, must not make it slower still.
        return 1.0 / self._count

    def fill(self, partitions: Iterable[Partition], period_ms: float) -> None:
        """Put into the accounts what was used in the round that ends now."""
        for partition in partitions:
            limiter = partition.limiter
            peak, full_ns = limiter.take_use()
            account = self._accounts.of_group(f"{INFLIGHT_GROUP_PREFIX}{limiter.partition}")
            if account is not None:
                parts = peak * INFLIGHT_PARTS / partition.in_force.limit
                account.note(_DIMENSION, round(parts * period_ms / 1000), full_ns / _NS_PER_MS)


class SamplesOut:
    """Writes samples to the job: `latency` events of several each.

    Args:
        now_ns: the steady clock of the samples.
    """

    def __init__(self, context: Context, now_ns: Callable[[], int]) -> None:
        self._context = context
        self._now_ns = now_ns
        self._id_head = f"{context.proxy_id}-latency-{context.brokers_ms()}"
        self._count = count(1)

    def __call__(self, samples: Mapping[str, list[Sample]]) -> None:
        """Send what was kept of partitions' round trips, by partition, in order."""
        ts = self._context.brokers_ms()
        # All enforcers before one partition tell its starts on one clock.
        ahead_ns = ts * _NS_PER_MS - self._now_ns()
        rows: list[dict[str, Any]] = [
            {
                "id": f"{self._id_head}-{next(self._count)}",
                "ts": ts,
                "partition": name,
                "samples": [[s.start_ns + ahead_ns, s.rtt_ns, s.inflight, s.did_drop] for s in kept],
            }
            for name, kept in samples.items()
        ]
        if len(rows) < bounds.PACK_MIN:
            for row in rows:
                self._context.send_usage({"type": "latency", **row}, row["partition"])
            return
        for row in rows:
            row["samples"] = [[int(part) for part in sample] for sample in row["samples"]]
        for value in pack("latency", pa.RecordBatch.from_pylist(rows)):
            self._context.send_usage_pack(value, self._context.proxy_id)


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
        accounts.before_report(lambda ms: self._shares.fill(self.partitions.known.values(), ms))
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
            for connection in list(context.connections()):
                connection.count_by(self._limiter_of(connection.address))
            # Not before: a mistake at one of them leaves the others to the next look.
            self._seen = now
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
