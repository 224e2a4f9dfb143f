"""Concurrency limits without a job: partitions with clocks that a test sets."""

from collections.abc import Callable, Mapping
from typing import Any

from clock_kit import SteadyClock

from enforcer.core.law import Clock
from enforcer.laws.concurrency.limiter import Limiter, Reservoir
from enforcer.laws.concurrency.partitions import Partition, Partitions, SendSamples
from streaming.contract.decisions import LimitDecision
from streaming.policy.policy_set import PolicySet

MS = 1_000_000
FIXED_2 = {"algorithm": "fixed", "fixed": {"limit": 2}}
AIMD = {"algorithm": "aimd", "useWindowed": False, "aimd": {"initialLimit": 40}}


class Times(SteadyClock):
    """A steady clock in ns."""

    def __init__(self) -> None:
        super().__init__(1_000_000.0)

    @property
    def ns(self) -> int:
        """The time, ns."""
        return round(self.now_ms * MS)


def decided(
    limit: int, ts: int = 1_000, *, partition: str = "broker-1", algorithm: str = "aimd", ttl_ms: int = 60_000
) -> LimitDecision:
    """A limit that the job decided."""
    return LimitDecision(
        partition=partition, ts=ts, algorithm=algorithm, limit=limit, estimate=float(limit), ttl_ms=ttl_ms
    )


def limiter_at(times: Times, limit: int, queue_max: int = 1_000, deadline_ms: int = 30_000) -> Limiter:
    """A limiter of `broker-1` that keeps up to 1,000 samples."""
    return Limiter(
        "broker-1", limit, Reservoir(1_000), lambda: times.ns, queue_max=queue_max,
        deadline_ns=deadline_ms * MS,
    )  # fmt: skip


def policies_of(entries: Mapping[str, Any]) -> PolicySet:
    """Entries of `backpressure.partitions`."""
    return PolicySet({f"backpressure.partitions.{name}": value for name, value in entries.items()})


def partitions_at(
    times: Times, entries: Mapping[str, Any] | None = None,
    fraction_of: Callable[[str], float] = lambda _: 1.0, tell: SendSamples = lambda *_: None,
) -> Partitions:  # fmt: skip
    """Partitions under these entries."""
    clock = Clock(steady_ms=lambda: times.ns / MS, wall_ms=lambda: times.ns // MS)
    partitions = Partitions(clock, lambda: times.ns, fraction_of, tell)
    partitions.set_policies(policies_of(entries or {}))
    return partitions


def limited(partitions: Partitions, name: str = "broker-1") -> Partition:
    """One of them."""
    found = partitions.find(name)
    assert found is not None
    return found
