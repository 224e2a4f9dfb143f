"""What costs a quota nothing: dry runs, and requests that are refused at once. They have a rate of their own.

Each takes the broker's time and the job's, so without one a client could send them as fast as it likes.
"""

from collections.abc import Callable
from typing import Final

from cachetools import LRUCache

from enforcer.core.gate import MutationQuota
from enforcer.metering.bucket import Bucket


class FreeQuestions:
    """A balance by subject, in topics instead of partitions: what may be made at once may be tried at once.

    Args:
        factor: it is filled so many times as fast as the quota's; its burst is the quota's.
        subjects_max: balances kept; the one used longest ago goes first, and begins full again.
        steady_ms: tells the time.
    """

    def __init__(self, factor: float, subjects_max: int, steady_ms: Callable[[], float]) -> None:
        self.factor: Final = factor
        self._steady_ms = steady_ms
        self._buckets: LRUCache[str, tuple[MutationQuota, Bucket]] = LRUCache(subjects_max)

    def wait_ms(self, quota: MutationQuota) -> float:
        """How long the subject has asked too much; 0: it may ask."""
        return self._bucket(quota).wait_ms(self._steady_ms())

    def charge(self, quota: MutationQuota, topics: int) -> None:
        """The subject asks about so many topics."""
        self._bucket(quota).charge(topics, self._steady_ms())

    def take(self, quota: MutationQuota, topics: int) -> float:
        """Charge them if the subject may ask; returns how long it may not, 0 if it was charged."""
        wait_ms = self.wait_ms(quota)
        if not wait_ms:
            self.charge(quota, topics)
        return wait_ms

    def _bucket(self, quota: MutationQuota) -> Bucket:
        kept = self._buckets.get(quota.subject)
        # Under another quota another balance; that changes seldom.
        if kept is None or kept[0] != quota:
            rate = quota.rate * self.factor
            bucket = Bucket(rate, quota.burst / rate, self._steady_ms())
            kept = self._buckets[quota.subject] = quota, bucket
        return kept[1]
