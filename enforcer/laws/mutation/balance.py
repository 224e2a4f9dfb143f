"""One subject's balance on its way through events, by the law's own steps (docs/contract.md 3.1).

Beside `tokens` goes `part`: what one of several proxies may admit without asking. Every step is the law's and
is done event by event: other steps would give other doubles than the job's, and with them other outcomes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from streaming.contract.names import DEFAULT_NAME
from streaming.laws.mutation.law import PERMISSIVE, STRICT, charge_bucket
from streaming.laws.mutation.rates import FULL, refill
from streaming.policy.policy_set import Algorithm, MutationQuota
from streaming.policy.timeline import PolicyTimeline

UNKNOWN: Final = -1
"""Version of the policies at a balance's time, where nobody has looked."""


@dataclass(slots=True)
class Balance:
    """What a subject has at one time.

    Attributes:
        tokens: balance; FULL: full, whatever the burst is now.
        part: this proxy's own part of it, counted only where there are several; FULL as well.
        at: the time, ms.
        version: of the policies in force then, UNKNOWN if nobody has looked.
    """

    tokens: float
    part: float
    at: int
    version: int = UNKNOWN

    def copy(self) -> "Balance":
        """The same, apart."""
        return Balance(self.tokens, self.part, self.at, self.version)


class Kind(Enum):
    """What an event in the tail does to a balance."""

    CHARGE = auto()
    """It was decided by us: these mutations are charged, whatever the law says."""
    UNDECIDED = auto()
    """The job will decide it: the law is asked here too, item by item."""
    REFUND = auto()
    """These mutations are given back."""


@dataclass(slots=True, eq=False)
class Sent:
    """An event of ours whose admission was not read, and the balance after it.

    Attributes:
        id: of the event.
        ts: its time, ms; of one that carries none, when it was sent.
        kind: what it does.
        mutations: of its items as far as they count; none if it was refused or a dry run.
        timed: it carries its time, so it is applied in the order sent.
        question: a client waits for its admission.
        tokens: balance after it, FULL if full.
        part: the same of the part.
        at: the time at which it was applied, ms.
    """

    id: str
    ts: int
    kind: Kind
    mutations: Sequence[float]
    timed: bool = True
    question: bool = False
    tokens: float = FULL
    part: float = FULL
    at: int = 0


@dataclass(slots=True)
class Counts:
    """What went past the ordinary, since the start.

    Attributes:
        folded: events that had to leave a tail before their admission was read.
        passed_over: statements that do not hold such events.
        forgotten: subjects that had to be forgotten while they had something to say.
        lost: events of which nothing will ever be said.
        between: requests refused since nobody answers questions.
        unnamed: admissions whose ids could not be kept: read again, they would count as new.
    """

    folded: int = 0
    passed_over: int = 0
    forgotten: int = 0
    lost: int = 0
    between: int = 0
    unnamed: int = 0


def move(
    balance: Balance, subject: str, at: int, timeline: PolicyTimeline, proxies: int
) -> MutationQuota | None:
    """Take a balance to a later time by the policies in force.

    Returns:
        The quota in force then; None: no token bucket, and the balance is full.
    """
    policies = timeline.at(at)
    quota = policies.mutation_quota_of_subject(subject)
    if policies.version != balance.version:
        settle(balance, subject, at, timeline, proxies)
        balance.version = policies.version
    elapsed_ms = at - balance.at
    balance.at = at
    if quota is None or quota.algorithm != Algorithm.TOKEN_BUCKET:
        balance.tokens = balance.part = FULL
        return None
    balance.tokens = refill(balance.tokens, quota.rate, quota.burst, elapsed_ms)
    if proxies > 1:
        balance.part = refill(balance.part, quota.rate / proxies, quota.burst / proxies, elapsed_ms)
    return quota


def settle(balance: Balance, subject: str, upto: int, timeline: PolicyTimeline, proxies: int) -> None:
    """What the changes of policy since a balance's time mean for it, as the job's table does.

    A bucket that was full at a change stays full, whatever its burst becomes, and one that had no quota, or
    another algorithm, starts afresh. Other changes leave it alone.
    """
    own = f"quotas[{subject}]"
    times = {ts for ts, path in timeline.changed(balance.at, upto) if path == own or DEFAULT_NAME in path}
    for change in sorted(times):
        before = timeline.at(change - 1).mutation_quota_of_subject(subject)
        after = timeline.at(change).mutation_quota_of_subject(subject)
        if before is not None and _is_bucket(before) and _is_bucket(after):
            mark_full(balance, before, change - balance.at, proxies)
        else:
            balance.tokens = balance.part = FULL


def _is_bucket(quota: MutationQuota | None) -> bool:
    return quota is not None and quota.algorithm == Algorithm.TOKEN_BUCKET


def mark_full(balance: Balance, quota: MutationQuota, elapsed_ms: int, proxies: int) -> None:
    """Mark what is full after this time as full; a full one stays so when a policy raises its burst."""
    if refill(balance.tokens, quota.rate, quota.burst, elapsed_ms) >= quota.burst:
        balance.tokens = FULL
    rate, burst = quota.rate / proxies, quota.burst / proxies
    if proxies > 1 and refill(balance.part, rate, burst, elapsed_ms) >= burst:
        balance.part = FULL


def take(balance: Balance, sent: Sent, subject: str, timeline: PolicyTimeline, proxies: int) -> None:
    """Take a balance through an event, and note there what it is afterwards.

    A subject's time never goes back: an event that is older than the balance is applied at its time.
    """
    quota = move(balance, subject, max(sent.ts, balance.at), timeline, proxies)
    if quota is not None:
        if sent.kind is Kind.REFUND:
            for mutations in sent.mutations:
                balance.tokens = min(quota.burst, balance.tokens + mutations)
                balance.part = min(quota.burst / proxies, balance.part + mutations)
        else:
            rejected = [False] * len(sent.mutations)
            mode = STRICT if sent.kind is Kind.UNDECIDED else PERMISSIVE
            balance.tokens = charge_bucket(balance.tokens, sent.mutations, rejected, mode, False)
            if proxies > 1:
                balance.part = charge_admitted(balance.part, sent.mutations, rejected)
        mark_full(balance, quota, 0, proxies)
    note(balance, sent)


def note(balance: Balance, sent: Sent) -> None:
    """Write down the balance after an event."""
    sent.tokens, sent.part, sent.at = balance.tokens, balance.part, balance.at


def charge_admitted(balance: float, mutations: Sequence[float], rejected: Sequence[bool]) -> float:
    """A balance after those items that were not rejected."""
    admitted = [count for count, gone in zip(mutations, rejected, strict=True) if not gone]
    return charge_bucket(balance, admitted, [False] * len(admitted), PERMISSIVE, False)


def beyond(part: float, mutations: Sequence[float], rejected: Sequence[bool]) -> bool:
    """Whether a part does not reach for the items that the law admits."""
    for count, gone in zip(mutations, rejected, strict=True):
        if not gone:
            if part < 0.0:
                return True
            part = charge_admitted(part, (count,), (False,))
    return False
