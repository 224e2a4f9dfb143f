"""Who waits: subjects until a time, requests for their decisions, connections for the turn of a question.

What costs a quota nothing has a rate of its own: dry runs, and requests that are refused at once. Each takes
the broker's time and the job's, so without one a client could send them as fast as it likes.

No clock: times come as arguments, in ms of one steady clock. Every table has a bound; what falls out of one
costs accuracy (a question more, a correction less), never a wrong refusal.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
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
_REQUEST_BYTES: Final = 1_024
_ITEM_BYTES: Final = 400  # an entry in each of two tables, and the objects of its name but for the letters
Wake = Callable[[], None]
_LINE: Final = "line "
_WOKEN_MAX: Final = 8
"""Called at a time: each may handle a request, and the loop has other things to do."""


class NotBefore:
    """Until when subjects must wait.

    Args:
        subjects_max: bound on them; who waits longest already leaves.
    """

    def __init__(self, subjects_max: int) -> None:
        self._subjects_max = subjects_max
        # The oldest leave when it is full; a plain dict would step over all that left before it.
        self._waits: OrderedDict[str, tuple[float, MutationQuota | None]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waits)

    def __contains__(self, subject: str) -> bool:
        """Whether a subject has a not-before time, passed or not."""
        return subject in self._waits

    def postpone(self, subject: str, until_ms: float, quota: MutationQuota | None) -> None:
        """Note that a subject must wait; the newest decision counts, even if it is the shorter one.

        Args:
            quota: the quota under which that was decided: under another one it says nothing.
        """
        self._waits.pop(subject, None)
        if len(self._waits) >= self._subjects_max:
            self._waits.popitem(last=False)
        self._waits[subject] = until_ms, quota

    def until_ms(self, subject: str, quota: MutationQuota | None, now_ms: float) -> float | None:
        """Until when a subject must wait; None if it need not. A changed quota drops the wait."""
        wait = self._waits.get(subject)
        if wait is None:
            return None
        # Most times it is the very same object; comparing every field costs more than the rest.
        if wait[0] <= now_ms or (wait[1] is not quota and wait[1] != quota):
            del self._waits[subject]
            return None
        return wait[0]

    def give_back(self, subject: str, mutations: int) -> None:
        """So much of what a subject was charged is given back: so much shorter is its wait, and no more.

        Else who cannot be refused would go on for ever by what fails.
        """
        until_ms, quota = self._waits.get(subject, (0.0, None))
        if quota is not None:
            self._waits[subject] = until_ms - mutations * 1000 / quota.rate, quota

    def drop(self, subject: str) -> None:
        """Forget a subject's wait: it was let through after all."""
        self._waits.pop(subject, None)

    def expire(self, now_ms: float) -> None:
        """Drop the waits that have passed."""
        for subject in [name for name, (until_ms, _) in self._waits.items() if until_ms <= now_ms]:
            del self._waits[subject]


class PendingRequests:
    """Requests without their decision: those that wait for it, and those that were answered without it.

    Args:
        pending_max: bound on the former.
        late_max: bound on the latter; all together are bound by LATE_BYTES_MAX too.
        late_keep_ms: how long the latter are kept.
    """

    def __init__(
        self, *, pending_max: int, late_max: int = LATE_RECORDS_MAX, late_keep_ms: float = LATE_RECORD_MS
    ) -> None:
        self._pending_max = pending_max
        self._late_max = late_max
        self._late_keep_ms = late_keep_ms
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
        while self._late and (len(self._late) >= self._late_max or self._late_bytes + size > LATE_BYTES_MAX):
            self._take_late(next(iter(self._late)))
        self._late[request.id] = request
        self._late_bytes += size

    def decide(self, decision: Decision) -> Request | None:
        """Take a decision: the request it is for, None if that is unknown, settled or a repetition."""
        request = self._pending.pop(decision.id, None) or self._take_late(decision.id)
        if request is not None:
            request.decision = replace(decision, rejected=in_own_names(request.aliases, decision.rejected))
        return request

    def expire(self, now_ms: float) -> None:
        """Drop what is too old to be decided: it stays without its decision."""
        old = [name for name, late in self._late.items() if late.sent_ms + self._late_keep_ms <= now_ms]
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


class OpenQuestions:
    """Open questions by subject, and whom to call when somebody may go on.

    A question takes the job's time, and a subject that asks very many at once would make everybody else wait
    for theirs. So each has so many open at a time, and its next ones stand in line, first come, first served.

    Args:
        per_subject: questions that one subject may have open,
        in_all: and all of them together.
    """

    def __init__(self, per_subject: int, in_all: int) -> None:
        self._per_subject = per_subject
        self._in_all = in_all
        self._open: dict[str, int] = {}
        self._open_in_all = 0
        # In order of arrival; as many as there are connections, each is in one line at most.
        self._waiting: dict[str, dict[Wake, None]] = {}

    def full(self, subject: str) -> bool:
        """Whether a further question of the subject has to wait."""
        return self._open_in_all >= self._in_all or self._open.get(subject, 0) >= self._per_subject

    def busy(self, subject: str) -> bool:
        """Whether any question of the subject is open."""
        return subject in self._open

    def begin(self, subject: str) -> None:
        """A question of the subject is open from now on."""
        self._open[subject] = self._open.get(subject, 0) + 1
        self._open_in_all += 1

    def end(self, subject: str) -> None:
        """One is not open any more: call those that stand in line for it."""
        left = self._open.pop(subject) - 1
        if left:
            self._open[subject] = left
        was_full = self._open_in_all >= self._in_all
        self._open_in_all -= 1
        own = line_of(subject)
        if was_full:
            # The place is everybody's: who has waited longest may be of a subject that has none open. One
            # that has all it may have would not take it, and those behind it would not hear of it.
            lines = (name for name in self._waiting if name.startswith(_LINE) and name != own)
            other = next((name for name in lines if not self.full(name.removeprefix(_LINE))), None)
            for wake in list(self._waiting.get(other or "", ()))[:1]:
                wake()
        for wake in list(self._waiting.get(own, ()))[:_WOKEN_MAX]:
            if self.full(subject):
                break
            wake()

    def wait_for(self, name: str, wake: Wake) -> None:
        """Call `wake` when it is time; it stays until `stop_waiting`.

        Args:
            name: a subject whose not-before time is waited for, or the `line_of` one.
        """
        self._waiting.setdefault(name, {})[wake] = None

    def stop_waiting(self, name: str, wake: Wake) -> None:
        """Undo `wait_for`."""
        waiting = self._waiting.get(name, {})
        waiting.pop(wake, None)
        if not waiting:
            self._waiting.pop(name, None)

    def wake(self, name: str) -> None:
        """Call all who wait for this."""
        for wake in list(self._waiting.get(name, ())):
            wake()

    def wake_all(self) -> None:
        """Call everybody."""
        for name in list(self._waiting):
            self.wake(name)


def line_of(subject: str) -> str:
    """The name under which one stands in line for a subject's open questions; no subject begins so."""
    return f"{_LINE}{subject}"


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
