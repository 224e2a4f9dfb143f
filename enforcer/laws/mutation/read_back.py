"""What a proxy reads back before it lets clients in (docs/contract.md 3.1), and what went on without."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from enforcer.core import bounds
from enforcer.core.feeds.peers import Charge
from enforcer.core.feeds.policies import Policies
from enforcer.laws.mutation.local_decisions import LocalDecisions
from enforcer.laws.mutation.request import Decision, Request
from streaming.policy.policy_set import PolicySet, refill_times

BACK_MS: Final = 60_000
"""The least that is read back."""
BACK_MAX_MS: Final = 600_000
"""The most: one slow quota must not make each start read days. Debts are repeated meanwhile."""
INCLUDED_MAX: Final = 500_000
"""Ids of events that admissions hold; the oldest leave."""
_DUE_MAX: Final = 500
"""Told at a time: the loop has other things to do."""


def back_ms(policies: PolicySet) -> int:
    """R: how long an empty bucket takes to be full under any quota, from one minute to ten."""
    longest_s = max((seconds for _, seconds in refill_times(policies.entries)), default=0.0)
    return max(BACK_MS, int(min(longest_s * 1000.0, BACK_MAX_MS)))


class ReadBack:
    """Fills local decisions with what stands on the topics, before a proxy lets clients in.

    1. `back_ms(policies)` is R. Read `weir.decisions` from R before its newest record on, each partition in
       order; give every admission to `ReadBack.admission`.
    2. Read `weir.requests` from R before the newest of these admissions on (none: before the newest record of
       `weir.decisions`; none: before now), each partition in order; give every event with `decided`, and
       every refund, to `ReadBack.event`, whoever sent it.
    3. Follow both topics' decisions from where 1. ended, by `LocalDecisions.stated`.

    Attributes:
        newest_ts: applied time of the newest admission, ms; None: there was none.

    Args:
        local_decisions: still empty.
    """

    def __init__(self, local_decisions: LocalDecisions) -> None:
        self.newest_ts: int | None = None
        self._local_decisions = local_decisions
        self._included: dict[str, int] = {}  # id -> applied time of the admission that holds it
        self._dropped_ts = -1

    def admission(self, statement: Decision) -> None:
        """Take an admission, in order."""
        self.newest_ts = max(self.newest_ts or 0, statement.at)
        for name in (statement.id, *statement.refunds):
            self._included[name] = statement.at
        if len(self._included) > INCLUDED_MAX:
            # Many at once: a dict steps over all that left before the first.
            for name in list(self._included)[: INCLUDED_MAX // 2]:
                self._dropped_ts = max(self._dropped_ts, self._included.pop(name))
        if statement.subject:
            self._local_decisions.stated(statement)

    def event(self, charge: Charge) -> None:
        """Take a decided request, or a refund, in order; one that an admission holds is passed over."""
        # Where ids had to be let go, what is as old as they are is held by one of them.
        if charge.id not in self._included and charge.ts > self._dropped_ts:
            self._local_decisions.read_back(charge)


class UntoldRequests:
    """Keeps what has gone on until the policies are read and say whose quota it is, 10,000 at most.

    An event that leaves that to the job would be charged by the wrong one of several shards.

    Args:
        policies: see there.
        dropped: told of each beyond the bound.
    """

    def __init__(self, policies: Policies, dropped: Callable[[], None]) -> None:
        self._policies, self._dropped = policies, dropped
        self._kept = deque[Request]()

    def keeps(self, request: Request) -> bool:
        """Whether it must wait: the policies are not read."""
        if self._policies.known():
            return False
        if len(self._kept) < bounds.PENDING_REQUESTS_MAX:
            self._kept.append(request)
        else:
            self._dropped()
        return True

    def due(self) -> Iterator[Request]:
        """Some that need not wait any more."""
        for _ in range(min(len(self._kept), _DUE_MAX) if self._policies.known() else 0):
            yield self._kept.popleft()
