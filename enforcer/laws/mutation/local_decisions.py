"""Decides mutation requests where they are, from statement + own tail (docs/contract.md 3.1).

Pure: no clock, no I/O; all times are ms on the brokers' clock and come as arguments. One thread.

It decides requests whose quota is decided here, by `decide`: the answer's event is in the tail already, and
must carry the answer's time. None means that the job must be asked; that is noted as a question, which an
admission ends (`stated`) or its deadline (`unanswered`). All other events of ours are noted too: what the job
is asked for another reason (`asked`), refunds, and what will never stand on the topic after all (`withdraw`).
`stated` takes each admission that is read from `weir.decisions`, own or not, repeated or not, in the order of
its partition. The timeline must hold every change up to a request's time before that is decided.

A proxy that starts fills it by `ReadBack` before it lets clients in. Nothing here raises for anything that
stands on a topic.
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import compress, islice
from typing import Final

from enforcer.core.feeds.peers import Charge
from enforcer.core.metrics import DecisionAnomalies
from enforcer.laws.mutation.request import Answer, Decision, Request
from enforcer.laws.mutation.subject import (
    Balance,
    Kind,
    OwnEvent,
    Subject,
    beyond,
    charge_admitted,
    mark_full,
    move,
    note,
    settle,
    take,
)
from streaming.contract.client_answer import OUTCOMES
from streaming.laws.mutation.law import ALLOW, PERMISSIVE, REFUSED, REJECT, STRICT, charge_bucket, outcome_of
from streaming.laws.mutation.rates import FULL, bucket_wait_ms
from streaming.policy.policy_set import Algorithm, MutationQuota
from streaming.policy.timeline import PolicyTimeline

QUESTION_EVERY_MS: Final = 5_000
"""After an unanswered question one is asked so often."""
OWN_EVENTS_MAX: Final = 100_000
"""Own events and their items whose decision was not read, kept to decide by; the oldest are summed up."""
IDS_MAX: Final = 100_000
"""Ids of admissions that are known in all: the newest of each subject, and those applied at its time."""
_NAME_CHARS: Final = 256
_LOOKED_AT: Final = 8
"""Subjects among the oldest that are looked at for one that has nothing to say."""


class LocalDecisions:
    """What a proxy knows of all subjects.

    Attributes:
        blind: we hear too little to decide at once while there are others.
        proxies: alive, this one among them.
        tail: what stands in all tails, in events and their items.

    Args:
        subjects_max: bound on subjects; the ones that were quiet longest leave.
        tail_max: bound on all tails together, in events and their items; the oldest are folded into their
            statement, which takes no older one any more.
    """

    def __init__(self, timeline: PolicyTimeline, *, subjects_max: int, tail_max: int) -> None:
        self.counts = DecisionAnomalies()
        self._timeline = timeline
        self._subjects_max, self._tail_max = subjects_max, tail_max
        self._subjects: OrderedDict[str, Subject] = OrderedDict()
        self._names_weight = 0
        self._tails: OrderedDict[str, Subject] = OrderedDict()  # those with a tail, to be folded in turn
        self.tail = 0
        self.proxies, self.blind = 1, False
        self._walk = 0  # counts what makes every walk begin anew
        self._ids = 0
        self._newest = 0

    def decide(self, quota: MutationQuota, request: Request, ts: int) -> Answer | None:
        """What to answer at once; None: ask (a strict request, of several proxies' subject).

        Args:
            quota: the token bucket, not in shadow, under which the request came.
            request: the request, with its items as they are sent.
            ts: now, ms.
        """
        subject, now, in_force = self._at(quota.subject, ts)
        # Another one, or none any more, may have come into force since.
        quota = in_force or quota
        mutations = [float(count) for count in request.sent.values()]
        rejected = [False] * len(mutations)
        mode = STRICT if request.strict else PERMISSIVE
        tokens = charge_bucket(now.tokens, mutations, rejected, mode, request.dry_run)
        part, between = now.part, False
        if self.proxies > 1 and request.strict and not request.dry_run:
            if self._must_ask(subject, mutations, rejected):
                self._ask(subject, quota, request.id, mutations, rejected, tokens)
                return None
            if subject.silent:
                tokens, part, between = self._refuse_between(now, mutations, rejected)
        outcome = outcome_of(mode, tokens < 0.0, rejected)
        wait_ms = 0
        if tokens < 0.0 and outcome != ALLOW:
            wait_ms = bucket_wait_ms(tokens, quota.rate)
        elif between:
            wait_ms = self._between_ms(subject, part, quota)
        charged = mutations
        names: tuple[str, ...] = ()
        if outcome == REJECT:
            names = tuple(compress(request.sent, rejected))
            charged = [count for count, gone in zip(mutations, rejected, strict=True) if not gone]
        if request.dry_run:
            charged = []
        self._append(subject, quota, OwnEvent(request.id, subject.ts, Kind.CHARGE, charged), tokens, charged)
        # Of no bucket it is that of a full one.
        return Answer(OUTCOMES[outcome], names, wait_ms, min(tokens, quota.burst), subject.ts)

    def surely_admits(self, name: str) -> bool:
        """Whether any request of a subject is admitted that costs nothing, whatever it names; no: perhaps."""
        subject = self._subjects.get(name)
        # A balance is not below zero again before something is charged; nothing is moved, since the law's
        # steps are taken from event to event.
        return subject is None or (
            subject.now.tokens >= 0.0 and not subject.stale and subject.walk == self._walk
        )

    def asked(self, request: Request, ts: int) -> None:
        """A request was sent to be decided by the job, for another reason than `decide`."""
        mutations = () if request.dry_run else tuple(float(count) for count in request.sent.values())
        kind = Kind.UNDECIDED if request.strict else Kind.CHARGE
        self._send(request.subject, OwnEvent(request.id, ts, kind, mutations, timed=False))

    def refunded(self, name: str, refund_id: str, ts: int, mutations: int) -> int:
        """A refund is about to be sent; returns the time that it must carry, ms."""
        sent = OwnEvent(refund_id, ts, Kind.REFUND, (float(mutations),))
        sent.ts = self._send(name, sent)
        return sent.ts

    def read_back(self, charge: Charge) -> None:
        """An event was found on the topic that no admission holds; see `ReadBack`; a copy says nothing."""
        known = self._subjects.get(charge.subject)
        if known is not None and charge.id in known.tail:
            return
        kind = Kind.REFUND if charge.refund else Kind.CHARGE
        self._send(charge.subject, OwnEvent(charge.id, charge.ts, kind, tuple(map(float, charge.mutations))))

    def unanswered(self, name: str, event_id: str) -> None:
        """A question's deadline passed: without an answer it was refused, and the job will not charge it."""
        subject = self._subjects.get(name)
        sent = None if subject is None else subject.tail.get(event_id)
        if subject is not None and sent is not None and sent.question:
            subject.silent = True
            subject.give_up(sent)
            self._tail_changed(subject)

    def withdraw(self, name: str, event_id: str) -> None:
        """An event of ours will never stand on the topic."""
        subject = self._subjects.get(name)
        sent = None if subject is None else subject.tail.get(event_id)
        if subject is not None and sent is not None:
            subject.drop(sent)
            subject.stale = True
            self._tail_changed(subject)

    def stated(self, statement: Decision) -> None:
        """Take an admission, our own or another's; one that was read already is passed over."""
        if not statement.subject:
            # Our own event's quota was removed before it was decided: nobody was charged.
            name = next((one.name for one in self._tails.values() if statement.id in one.tail), "")
            self.withdraw(name, statement.id)
            return
        subject = self._subjects.get(statement.subject)
        balance = self._balance_of(statement)
        self._newest = max(self._newest, statement.at)
        if subject is None:
            if balance.tokens == FULL:
                # As a subject of which nothing is known.
                return
            subject = self._add(statement.subject, statement.at)
        own = subject.tail.get(statement.id)
        if own is None and self._passes_over(subject, statement):
            return
        if own is not None and not own.timed:
            subject.silent = False
        self.counts.lost += subject.state(balance, own, statement.refunds, self.proxies)
        self._tail_changed(subject)
        self._remember(subject, statement)
        self._subjects.move_to_end(subject.name)

    def set_proxies(self, count: int) -> None:
        """So many proxies are alive, this one among them."""
        if count != self.proxies:
            self.proxies = count
            self._walk += 1

    def policies_changed(self, ts: int) -> None:
        """A change in force from `ts` on was put into the timeline; a late one moves all walks."""
        if ts <= self._newest:
            self._walk += 1

    def sweep(self, horizon: int) -> None:
        """Settle what changes of policy up to `horizon` mean, before the timeline forgets them.

        Events that were sent under policies which are gone then are folded, subjects with nothing to say go.
        """
        for subject in list(self._subjects.values()):
            while subject.tail and self._timeline.changes(next(iter(subject.tail.values())).ts - 1, horizon):
                self._fold(subject)
            if subject.base.at >= horizon:
                continue
            settle(subject.base, subject.name, horizon, self._timeline, 1)
            subject.stale = True
            if subject.is_full(horizon, self._timeline):
                self._remove(subject)

    def _at(self, name: str, ts: int) -> tuple[Subject, Balance, MutationQuota | None]:
        """A subject, its balance at a time, or at its own time if that is later, and its bucket then."""
        subject = self._subjects.get(name)
        if subject is None:
            subject = self._add(name, ts)
        else:
            self._subjects.move_to_end(name)
        subject.ts = ts = max(subject.ts, ts)
        self._newest = max(self._newest, ts)
        now = subject.catch_up(self._walk, self._timeline, self.proxies)
        return subject, now, move(now, name, max(ts, now.at), self._timeline, self.proxies)

    def _must_ask(self, subject: Subject, mutations: Sequence[float], rejected: Sequence[bool]) -> bool:
        """Whether the job has to say: our part does not reach, or it was asked something before."""
        asks = self.blind or beyond(subject.now.part, mutations, rejected)
        if subject.silent:
            due = subject.ts - subject.asked_ts >= QUESTION_EVERY_MS
            return asks and due and not subject.open
        return asks or subject.open > 0

    def _ask(
        self, subject: Subject, quota: MutationQuota, event_id: str, mutations: Sequence[float],
        rejected: Sequence[bool], tokens: float,
    ) -> None:  # fmt: skip
        subject.asked_ts = subject.ts
        sent = OwnEvent(event_id, subject.ts, Kind.UNDECIDED, mutations, timed=False, question=True)
        admitted = [count for count, gone in zip(mutations, rejected, strict=True) if not gone]
        self._append(subject, quota, sent, tokens, admitted)

    def _refuse_between(
        self, now: Balance, mutations: Sequence[float], rejected: list[bool]
    ) -> tuple[float, float, bool]:
        """Decide items without asking: those that lie between what is ours and what is the law's are refused.

        Returns:
            The balance and our part of it afterwards, and whether anything lay between.
        """
        tokens, part, between = now.tokens, now.part, False
        for number, count in enumerate(mutations):
            lies_between = tokens >= 0.0 and (self.blind or part < 0.0)
            between = between or lies_between
            one = [False]
            tokens = charge_bucket(tokens, (count,), one, REFUSED if lies_between else STRICT, False)
            part = charge_admitted(part, (count,), one)
            rejected[number] = one[0]
        self.counts.between += between
        return tokens, part, between

    def _between_ms(self, subject: Subject, part: float, quota: MutationQuota) -> int:
        """How long who was refused between must wait: for the next question, or for a part of our own."""
        wait_ms = subject.asked_ts + QUESTION_EVERY_MS - subject.ts
        if part < 0.0 and not self.blind:
            wait_ms = min(wait_ms, bucket_wait_ms(part, quota.rate / self.proxies))
        return max(1, wait_ms)

    def _append(
        self, subject: Subject, quota: MutationQuota, sent: OwnEvent, tokens: float, charged: Sequence[float]
    ) -> None:
        """Put an event into the tail whose effect on the balance is known."""
        now = subject.now
        now.tokens = tokens
        if self.proxies > 1:
            now.part = charge_bucket(now.part, charged, [False] * len(charged), PERMISSIVE, False)
        mark_full(now, quota, 0, self.proxies)
        note(now, sent)
        self._put(subject, sent)

    def _send(self, name: str, sent: OwnEvent) -> int:
        """Put an event into the tail and take the balance through it; returns the subject's time."""
        subject, now, _ = self._at(name, sent.ts)
        take(now, sent, name, self._timeline, self.proxies)
        self._put(subject, sent)
        return subject.ts

    def _put(self, subject: Subject, sent: OwnEvent) -> None:
        subject.add(sent)
        self._tail_changed(subject)
        while self.tail > self._tail_max:
            oldest = next(iter(self._tails.values()))
            self._fold(oldest)
            if oldest.tail:
                self._tails.move_to_end(oldest.name)

    def _fold(self, subject: Subject) -> None:
        subject.fold(self._timeline)
        self.counts.folded += 1
        self._tail_changed(subject)

    def _tail_changed(self, subject: Subject) -> None:
        """A tail may weigh something else than before."""
        self.tail += subject.weight - subject.counted
        subject.counted = subject.weight
        if subject.tail:
            self._tails[subject.name] = subject
        else:
            self._tails.pop(subject.name, None)

    def _balance_of(self, statement: Decision) -> Balance:
        quota = self._timeline.at(statement.at).mutation_quota_of_subject(statement.subject)
        tokens = FULL if statement.tokens is None else statement.tokens
        if quota is not None and quota.algorithm == Algorithm.TOKEN_BUCKET and tokens >= quota.burst:
            tokens = FULL
        return Balance(tokens, FULL, statement.at)

    def _passes_over(self, subject: Subject, statement: Decision) -> bool:
        """Whether a statement was read already, or says nothing of events that were folded.

        A subject's time never goes back, so of those with an older applied time no id need be known.
        """
        if statement.at < subject.stated_at:
            return True
        if statement.at == subject.stated_at and statement.id in subject.stated_ids:
            return True
        if not subject.folded or statement.id == subject.folded or subject.folded in statement.refunds:
            return False
        if any(refund in subject.tail for refund in statement.refunds):
            return False
        # Full by what was folded at that very time, the statement may be of before.
        if statement.at > subject.base.at and subject.base_is_full(statement.at, self._timeline):
            return False
        self.counts.passed_over += 1
        return True

    def _remember(self, subject: Subject, statement: Decision) -> None:
        """Note that a statement was read."""
        if statement.at != subject.stated_at:
            self._ids -= len(subject.stated_ids)
            subject.stated_at, subject.stated_ids = statement.at, set()
        if self._ids < IDS_MAX:
            subject.stated_ids.add(statement.id)
            self._ids += 1
        else:
            self.counts.unnamed += 1

    def _add(self, name: str, ts: int) -> Subject:
        weight = _name_weight(name)
        while self._subjects and self._names_weight + weight > self._subjects_max:
            self._forget_one()
        subject = self._subjects[name] = Subject(name, ts, self._walk)
        self._names_weight += weight
        return subject

    def _forget_one(self) -> None:
        """Let a subject go, one of the quietest; one that has nothing to say if there is one among them."""
        oldest = list(islice(self._subjects.values(), _LOOKED_AT))
        full = (subject for subject in oldest if subject.is_full(self._newest, self._timeline))
        subject = next(full, oldest[0])
        self.counts.forgotten += not subject.is_full(self._newest, self._timeline)
        self._remove(subject)

    def _remove(self, subject: Subject) -> None:
        del self._subjects[subject.name]
        self._tails.pop(subject.name, None)
        self._names_weight -= _name_weight(subject.name)
        self.tail -= subject.counted
        self._ids -= len(subject.stated_ids)


def _name_weight(name: str) -> int:
    return 1 + len(name) // _NAME_CHARS
