"""A concurrency limit shared by the enforcers before one partition, as a group (docs/contract.md 3.4).

The limit is a whole of 1,000,000 parts, of which the share law gives each enforcer some, whatever the limit
is at the moment. What an enforcer used of them is the greatest number in flight of a round.
"""

from collections.abc import Iterable
from typing import Final

from enforcer.core.law import Accounts
from enforcer.core.membership import Membership
from enforcer.laws.concurrency.partitions import Partition
from streaming.contract.names import INFLIGHT_GROUP_PREFIX
from streaming.policy.groups import INFLIGHT_PARTS

_DIMENSION: Final = 0
_NS_PER_MS: Final = 1_000_000


class InflightShares:
    """Tells this enforcer's part of each limit, and reports what it used of it.

    Args:
        accounts: of the groups.
        membership: tells how many enforcers are alive.
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
