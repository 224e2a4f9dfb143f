"""A bound on dry runs: they cost nothing, and are not free (docs/contract.md 3.1).

Pure; times are ms on the brokers' clock. In both ways of deciding each subject has a bucket at each proxy, of
a multiple of its quota; beyond it a dry run is refused without an event.
"""

from collections import OrderedDict

from streaming.laws.mutation.law import STRICT, charge_bucket
from streaming.laws.mutation.rates import FULL, refill
from streaming.policy.policy_set import MutationQuota


class DryRuns:
    """The buckets of all subjects.

    Args:
        factor: `proxy.dry_run_factor`: so many times rate and burst.
        subjects_max: bound on subjects; the ones that were quiet longest leave, and begin afresh.
    """

    def __init__(self, factor: float, subjects_max: int) -> None:
        self._factor, self._subjects_max = factor, subjects_max
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def admits(self, quota: MutationQuota, mutations: int, ts: int) -> bool:
        """Whether a dry run may go on, and charge it if so.

        Args:
            quota: of its subject.
            mutations: of all its items; each dry run counts for at least one.
            ts: now, ms.
        """
        tokens, last = self._buckets.pop(quota.subject, (FULL, ts))
        burst = quota.burst * self._factor
        at = max(ts, last)
        tokens = refill(tokens, quota.rate * self._factor, burst, at - last)
        rejected = [False]
        tokens = charge_bucket(tokens, (float(max(1, mutations)),), rejected, STRICT, False)
        self._buckets[quota.subject] = tokens, at
        if len(self._buckets) > self._subjects_max:
            self._buckets.popitem(last=False)
        return not rejected[0]
