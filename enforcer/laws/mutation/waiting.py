"""Requests that wait for their decisions.

What costs a quota nothing has a rate of its own: dry runs, and requests that are refused at once. Each takes
the broker's time and the job's, so without one a client could send them as fast as it likes.

No clock: times come as arguments, in ms of one steady clock. Every table has a bound; what falls out of one
costs accuracy (a question more, a correction less), never a wrong refusal.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from cachetools import LRUCache

from enforcer.core.bucket import Bucket
from enforcer.laws.mutation.events import in_own_names
from enforcer.laws.mutation.request import Decision, Request
from streaming.policy.policy_set import MutationQuota

LATE_BYTES_MAX: Final = 64 * 2**20
"""What requests may take that were answered and are not decided, while the job is away: each may have
thousands of names."""
LATE_RECORDS_MAX: Final = 10_000
"""Answered requests kept until their decision comes, to correct the balance; as many as may wait."""
LATE_RECORD_MS: Final = 600_000
"""How long they are kept: a job that was away so long tells each balance anew."""
REFUSAL_FACTOR: Final = 10
"""So many times the quota's rate, topics in requests that are refused while their subject must wait are
reported; beyond it the connection waits."""
_REQUEST_BYTES: Final = 1_024
_ITEM_BYTES: Final = 400  # an entry in each of two tables, and the objects of its name but for the letters


class PendingRequests:
    """Requests without their decision: those that wait for it, and those that were answered without it.

    Args:
        pending_max: bound on the former.
    """

    def __init__(self, pending_max: int) -> None:
        self._pending_max = pending_max
        self._pending: dict[str, Request] = {}
        self._late: OrderedDict[str, Request] = OrderedDict()
        self._late_bytes = 0

    @property
    def pending(self) -> list[Request]:
        """The requests that wait for their decision, oldest first."""
        return list(self._pending.values())

    @property
    def late(self) -> int:
        """Requests answered, or never waiting, whose balance may have to be corrected."""
        return len(self._late)

    def add(self, request: Request) -> bool:
        """Remember a request that waits for its decision; False if there are too many already."""
        if len(self._pending) >= self._pending_max:
            return False
        self._pending[request.id] = request
        return True

    def refused(self, request_id: str) -> Request | None:
        """Forget a request whose event nobody will ever read; returns it, None if it is not known."""
        return self._take_late(request_id) or self._pending.pop(request_id, None)

    def watch(self, request: Request) -> None:
        """Remember a request that does not wait, for the correction of its balance; the oldest make room."""
        self.refused(request.id)
        size = _bytes_of(request)
        while self._late and (
            len(self._late) >= LATE_RECORDS_MAX or self._late_bytes + size > LATE_BYTES_MAX
        ):
            self._take_late(next(iter(self._late)))
        self._late[request.id] = request
        self._late_bytes += size

    def decide(self, decision: Decision) -> Request | None:
        """Take a decision: the request it is for, None if that is unknown, settled or a repetition."""
        request = self._pending.pop(decision.id, None) or self._take_late(decision.id)
        if request is not None:
            request.decision = decision._replace(rejected=in_own_names(request.aliases, decision.rejected))
        return request

    def expire(self, now_ms: float) -> None:
        """Drop what is too old to be decided: it stays without its decision."""
        old = [name for name, late in self._late.items() if late.sent_ms + LATE_RECORD_MS <= now_ms]
        for name in old:
            self._take_late(name)

    def _take_late(self, request_id: str) -> Request | None:
        request = self._late.pop(request_id, None)
        if request is not None:
            self._late_bytes -= _bytes_of(request)
        return request


def _bytes_of(request: Request) -> int:
    """About what a request takes."""
    return _REQUEST_BYTES + _ITEM_BYTES * len(request.items) + 2 * sum(map(len, request.items))


class Allowance:
    """A balance by subject: of dry runs in mutations, each at least one, of refusals in topics.

    Args:
        factor: it is filled so many times as fast as the quota's.
        burst_factor: and its burst is so many times the quota's.
        subjects_max: balances kept; the one used longest ago goes first, and begins full again.
        steady_ms: tells the time.
    """

    def __init__(
        self, factor: float, burst_factor: float, subjects_max: int, steady_ms: Callable[[], float]
    ) -> None:
        self._factor = factor
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
            rate = quota.rate * self._factor
            bucket = Bucket(rate, quota.burst * self._burst_factor / rate, self._steady_ms())
            kept = self._buckets[quota.subject] = quota, bucket
        return kept[1]
