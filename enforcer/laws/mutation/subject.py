"""What a proxy knows of one subject: its newest statement, the own tail, and the balance at its end.

The balance moves by the law's own steps (docs/contract.md 3.1), event by event: other steps would give other
doubles than the job's, and with them other outcomes. Beside `tokens` goes `part`: what one of several proxies
may admit without asking.

It is walked on with every event that is added, never again from the start for each request. A new
statement makes another walk necessary only where it says something else than the walk did; of a long tail
that is put off until it is paid for (`CREDIT`), so that a job that comes back after an hour with many
thousands of admissions costs each of them the same.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from streaming.laws.mutation.law import PERMISSIVE, STRICT, charge_bucket
from streaming.laws.mutation.rates import FULL, refill
from streaming.policy.policy_set import Algorithm, MutationQuota, paths_of
from streaming.policy.timeline import PolicyTimeline

SHORT: Final = 64
"""A tail of so many events is walked again at once: about 0.1 ms."""
CREDIT: Final = 8
"""Events of a longer one that each statement and each request pays for."""
LOST_MS: Final = 60_000
"""A question without an admission is lost once later events are decided so long after it."""
SAID_MS: Final = 3_660_000
"""Of an event so much older than a statement nothing is said any more: the job lists a refund for an hour,
and what stands on the topic is applied within a minute of its time."""
_ID_CHARS: Final = 256


@dataclass(slots=True)
class Balance:
    """What a subject has at one time.

    Attributes:
        tokens: balance; FULL: full, whatever the burst is now.
        part: this proxy's own part of it, counted only where there are several; FULL as well.
        at: the time, ms.
    """

    tokens: float
    part: float
    at: int

    def copy(self) -> "Balance":
        """The same, apart."""
        return Balance(self.tokens, self.part, self.at)


class Kind(Enum):
    """What an event in the tail does to a balance."""

    CHARGE = auto()
    """It was decided by us: these mutations are charged, whatever the law says."""
    UNDECIDED = auto()
    """The job will decide it: the law is asked here too, item by item."""
    REFUND = auto()
    """These mutations are given back."""


@dataclass(slots=True, eq=False)
class OwnEvent:
    """An event of ours whose admission was not read, and the balance after it.

    Attributes:
        id: of the event.
        ts: its time, ms; of one that carries none, when it was sent.
        kind: what it does.
        mutations: of its items as far as they count; none if it was refused or a dry run.
        timed: it carries its time, so it is applied in the order sent.
        question: a client waits for its admission.
        tokens: balance after it, FULL if full.
        at: the time at which it was applied, ms.
    """

    id: str
    ts: int
    kind: Kind
    mutations: Sequence[float]
    timed: bool = True
    question: bool = False
    tokens: float = FULL
    at: int = 0


def move(
    balance: Balance, subject: str, at: int, timeline: PolicyTimeline, proxies: int
) -> MutationQuota | None:
    """Take a balance to a later time by the policies in force.

    Returns:
        The quota in force then; None: no token bucket, and the balance is full.
    """
    quota = timeline.at(at).mutation_quota_of_subject(subject)
    if timeline.since(at) > balance.at:
        settle(balance, subject, at, timeline, proxies)
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
    own, changes = paths_of(subject), timeline.changed(balance.at, upto)
    for change in sorted({ts for ts, path in changes if path in own}):
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


def take(balance: Balance, sent: OwnEvent, subject: str, timeline: PolicyTimeline, proxies: int) -> None:
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


def note(balance: Balance, sent: OwnEvent) -> None:
    """Write down the balance after an event."""
    sent.tokens, sent.at = balance.tokens, balance.at


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


def weight_of(sent: OwnEvent) -> int:
    """What an event counts in the bound of all tails: itself, its items, and a name that is very long."""
    return 1 + len(sent.mutations) + len(sent.id) // _ID_CHARS


class Subject:
    """Statement and own tail of one subject.

    Attributes:
        name: the quota entity.
        base: the statement, with the events that had to be folded into it.
        now: the balance after the whole tail, as far as it was walked.
        tail: own events whose admission was not read, by id, in the order sent.
        weight: of the tail,
        counted: and what of it stands in the sum over all tails.
        ts: time of the newest own event, ms: the next one is not older.
        stated_at: applied time of the statement, ms; -1: there is none.
        stated_ids: the admissions read with that applied time.
        folded: id of the newest own event that was folded into the statement; "" if none was.
        silent: the last question got no answer in time.
        asked_ts: time of the last question, ms.
        open: questions without an answer.
        walk: number of the proxies' count and the policies by which the tail was walked.
    """

    __slots__ = (
        "asked_ts", "base", "counted", "credit", "folded", "name", "now", "open", "silent", "stale",
        "stated_at", "stated_ids", "tail", "ts", "walk", "weight",
    )  # fmt: skip

    def __init__(self, name: str, ts: int, walk: int) -> None:
        self.name = name
        self.base = Balance(FULL, FULL, ts)
        self.now = self.base.copy()
        self.tail: OrderedDict[str, OwnEvent] = OrderedDict()
        self.weight = self.counted = 0
        self.ts = ts
        self.stated_at = -1
        self.stated_ids: set[str] = set()
        self.folded = ""
        self.silent = False
        self.asked_ts = 0
        self.open = 0
        self.walk = walk
        self.stale = False
        self.credit = 0

    def add(self, sent: OwnEvent) -> None:
        """Put an event at the end of the tail; the caller has taken `now` through it."""
        self.tail[sent.id] = sent
        self.weight += weight_of(sent)
        self.open += sent.question

    def drop(self, sent: OwnEvent) -> None:
        """Take an event out of the tail."""
        del self.tail[sent.id]
        self.weight -= weight_of(sent)
        self.open -= sent.question

    def give_up(self, sent: OwnEvent) -> None:
        """A question was not answered in time, and is not charged any more."""
        self.weight -= weight_of(sent)
        self.open -= sent.question
        sent.kind, sent.mutations, sent.question = Kind.CHARGE, (), False
        self.weight += weight_of(sent)
        self.stale = True

    def catch_up(self, walk: int, timeline: PolicyTimeline, proxies: int) -> Balance:
        """The balance after the whole tail; walked anew where that is due."""
        self.credit += CREDIT
        due = self.stale and len(self.tail) <= max(SHORT, self.credit)
        if due or self.walk != walk:
            self.walk, self.stale, self.credit = walk, False, 0
            now = self.base.copy()
            # FULL / P is FULL.
            now.part = now.tokens / proxies
            for sent in self.tail.values():
                take(now, sent, self.name, timeline, proxies)
            self.now = now
        return self.now

    def state(self, statement: Balance, own: OwnEvent | None, refunds: Iterable[str], proxies: int) -> int:
        """Take a statement, and what it holds out of the tail.

        Args:
            statement: balance at its applied time.
            own: the event that it is for, if that is in the tail.
            refunds: ids of the refunds that it lists.

        Returns:
            How many events were given up: nothing will ever be said of them.
        """
        self.credit += CREDIT
        lost, in_order = self._drop_older(statement.at)
        if own is not None and own.id in self.tail:
            before, own_in_order = self._drop_before(own, statement.at)
            lost, in_order = lost + before, in_order and own_in_order
        for refund in refunds:
            given_back = self.tail.get(refund)
            if given_back is not None:
                self.drop(given_back)
                in_order = False
        # Nearly always, where we are alone, it says what the walk said; then the walk goes on.
        said = Balance(own.tokens, FULL, own.at) if own is not None else self.base
        agrees = proxies == 1 and in_order and said.tokens == statement.tokens and said.at == statement.at
        self.base = statement
        self.folded = ""
        self.stale = self.stale or not agrees
        return lost

    def fold(self, timeline: PolicyTimeline) -> None:
        """Make the oldest event of the tail part of the statement."""
        sent = next(iter(self.tail.values()))
        take(self.base, sent, self.name, timeline, 1)
        self.drop(sent)
        self.folded = sent.id

    def is_full(self, ts: int, timeline: PolicyTimeline) -> bool:
        """Whether it has nothing to say at a time: no tail, and its bucket is full."""
        return not self.tail and self.base_is_full(ts, timeline)

    def base_is_full(self, ts: int, timeline: PolicyTimeline) -> bool:
        """Whether the statement says no more at a time than that the bucket is full."""
        base = self.base
        quota = timeline.at(max(ts, base.at)).mutation_quota_of_subject(self.name)
        if quota is None or base.tokens == FULL:
            return True
        return refill(base.tokens, quota.rate, quota.burst, max(0, ts - base.at)) >= quota.burst

    def _drop_older(self, at: int) -> tuple[int, bool]:
        """Drop events of which nothing will be said any more.

        Without it a refund that no admission lists would be given again with each statement of others.

        Returns:
            How many were lost, and whether there was none.
        """
        lost, none = 0, True
        while self.tail:
            oldest = next(iter(self.tail.values()))
            if oldest.ts + SAID_MS >= at:
                break
            lost, none = lost + (oldest.kind is not Kind.REFUND), False
            self.drop(oldest)
        return lost, none

    def _drop_before(self, own: OwnEvent, at: int) -> tuple[int, bool]:
        """Drop an own event that was decided, and those before it: they are in its statement, or lost.

        Events that carry their time are applied in the order sent. A question carries none, and may be
        decided after events that were sent after it.

        Returns:
            How many were lost, and whether nothing was left before it.
        """
        before = []
        for sent in self.tail.values():
            if sent is own:
                break
            before.append(sent)
        lost = left = 0
        for sent in before:
            if not sent.timed and at < sent.ts + LOST_MS:
                left += 1
                continue
            lost += sent.kind is not Kind.REFUND
            self.drop(sent)
        self.drop(own)
        return lost, not left and not lost
