"""What costs a quota nothing: dry runs, and requests that are refused at once. Each has a rate of its own.

Each takes the broker's time and the job's, so without one a client could send them as fast as it likes.
"""

from collections.abc import Callable
from typing import Final

from cachetools import LRUCache

from enforcer.core.bucket import Bucket
from enforcer.laws.mutation.gate import MutationQuota


class Allowance:
    """A balance by subject.

    Args:
        factor: it is filled so many times as fast as the quota's.
        burst_factor: and its burst is so many times the quota's.
        subjects_max: balances kept; the one used longest ago goes first, and begins full again.
        steady_ms: tells the time.
    """

    def __init__(
        self, factor: float, burst_factor: float, subjects_max: int, steady_ms: Callable[[], float]
    ) -> None:
        self.factor: Final = factor
        self._burst_factor = burst_factor
        self._steady_ms = steady_ms
        self._buckets: LRUCache[str, tuple[MutationQuota, Bucket]] = LRUCache(subjects_max)

    def wait_ms(self, quota: MutationQuota) -> float:
        """How long the subject has asked too much; 0: it may ask."""
        return self._bucket(quota).wait_ms(self._steady_ms())

    def charge(self, quota: MutationQuota, count: int) -> None:
        """The subject asks about so much."""
        self._bucket(quota).charge(count, self._steady_ms())

    def take(self, quota: MutationQuota, count: int) -> float:
        """Charge it if the subject may ask; returns how long it may not, 0 if it was charged."""
        wait_ms = self.wait_ms(quota)
        if not wait_ms:
            self.charge(quota, count)
        return wait_ms

    def _bucket(self, quota: MutationQuota) -> Bucket:
        kept = self._buckets.get(quota.subject)
        # Under another quota another balance; that changes seldom.
        if kept is None or kept[0] != quota:
            rate = quota.rate * self.factor
            bucket = Bucket(rate, quota.burst * self._burst_factor / rate, self._steady_ms())
            kept = self._buckets[quota.subject] = quota, bucket
        return kept[1]


class FreeQuestions:
    """The two allowances of all subjects.

    Attributes:
        dry_runs: in mutations, each dry run at least one.
        refusals: in topics: what may be made at once may be refused at once.

    Args:
        dry_run_factor: of the quota's rate and burst.
        refusal_factor: of the quota's rate.
        subjects_max: see Allowance.
        steady_ms: tells the time.
    """

    def __init__(
        self,
        dry_run_factor: float,
        refusal_factor: float,
        subjects_max: int,
        steady_ms: Callable[[], float],
    ) -> None:
        self.dry_runs: Final = Allowance(dry_run_factor, dry_run_factor, subjects_max, steady_ms)
        self.refusals: Final = Allowance(refusal_factor, 1.0, subjects_max, steady_ms)

    def explain_dry_runs(self, quota: MutationQuota, wait_ms: int) -> str:
        """What a client is told whose dry run is one too many."""
        return (
            f"Dry runs of {quota.subject} are beyond {self.dry_runs.factor:g} times its quota on"
            f" partition mutations; retry after {wait_ms} ms."
        )
