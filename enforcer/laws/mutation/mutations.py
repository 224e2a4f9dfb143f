"""Requests for partition mutations of protocols whose requests can be refused: decided by the quota, settled
by what the cluster did (docs/contract.md 3.1).

Whoever reads such a request decides it here, carries it out if it is allowed, settles it, waits until Kafka
has the event of what was decided at once, and only then answers the client. Each is carried out whole or not
at all. Where a short wait is kinder than a refusal, those of one subject wait in line.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Final

from enforcer.core import bounds
from enforcer.core.feeds.decisions import Decision
from enforcer.core.settings import OnLate
from enforcer.laws.mutation.coordinator import QuotaCoordinator, Uncharged
from enforcer.laws.mutation.free_questions import FreeQuestions
from enforcer.laws.mutation.gate import Action, MutationQuota, Verdict, explain
from enforcer.laws.mutation.ledger import Answered, Ask
from enforcer.laws.mutation.open_questions import line_of
from enforcer.laws.mutation.receipt import CallLater, Receipt
from enforcer.laws.mutation.request_events import Asked

_ASKS: Final = frozenset({Action.ASK, Action.DECIDE})
_WAITS: Final = frozenset({"reject", "not_before"})
"""Refusals that time alone ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of a request.

    Attributes:
        allowed: carry it out, then settle it.
        outcome: in a word (docs/metrics.md, `weir_proxy_requests_total`); `free`: it has no items.
        retry_ms: of a refusal: when it may be worth another try, whole ms from now on, at least 1.
        message: of a refusal: why, and when to retry, in a sentence.
        quota: that was in force for it; None if none was.
        tokens: balance of its subject after it; None if that is not known.
        ask: what was asked or decided; None if nothing was.
        receipt: of its event, if it was decided at once.
    """

    allowed: bool
    outcome: str
    retry_ms: int = 0
    message: str = ""
    quota: MutationQuota | None = None
    tokens: float | None = None
    ask: Ask | None = None
    receipt: Receipt | None = None


class Mutations:
    """Decides requests for partition mutations, in one event loop.

    Args:
        coordinator: of the quotas.
        call_later: calls a function after so many ms.
    """

    def __init__(self, coordinator: QuotaCoordinator, call_later: CallLater) -> None:
        self._coordinator = coordinator
        self._settings = coordinator.settings
        self._call_later = call_later
        self._now_ms = coordinator.clock.steady_ms
        self._free = FreeQuestions(
            self._settings.dry_run_factor,
            self._settings.refusal_factor,
            self._settings.subjects_max,
            self._now_ms,
        )
        # By subject; the first has its turn.
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        self._waiting = 0

    async def decide(self, asked: Asked, wait_ms: float = 0) -> Answer:
        """Decide a request; if this is cancelled, nothing stays charged.

        Args:
            asked: the request, strict; of no item its cluster is to say what is wrong with it.
            wait_ms: it is rather kept so long than refused.
        """
        if not asked.items:
            return Answer(allowed=True, outcome="free")
        quota = self._quota(asked)
        if quota is None or quota.shadow:
            answer = self._pass(asked, quota)
        elif wait_ms > 0 and not asked.validate_only and self._room_in_line(quota, wait_ms):
            answer = await self._decide_in_line(asked, quota.subject, self._now_ms() + wait_ms)
        else:
            answer = await self._decide_once(asked, quota)
        self._coordinator.metrics.requests.labels(asked.api, answer.outcome).inc()
        return answer

    def settle(self, answer: Answer, executed: Mapping[str, int]) -> None:
        """Give back what the cluster did not do, and charge what it did beyond.

        Args:
            answer: one that allowed its request.
            executed: name -> mutations that were made; what is missing was not.
        """
        if answer.allowed and answer.ask is not None:
            answer.ask.executed = executed
            self._coordinator.settle(answer.ask)

    def charge(self, asked: Asked) -> None:
        """Charge what was carried out without having been decided: it seemed to cost nothing."""
        self._coordinator.report(replace(asked, strict=False), self._quota(asked))

    async def acknowledged(self, answer: Answer) -> None:
        """Wait until Kafka has the event of a decision, for a limited time (`event_ack_ms`)."""
        if answer.receipt is None:
            return
        given = asyncio.get_running_loop().create_future()
        answer.receipt.answer(partial(_done, given))
        try:
            await given
        finally:
            answer.receipt.drop()

    @property
    def waiting(self) -> int:
        """Requests that wait in line."""
        return self._waiting

    def _quota(self, asked: Asked) -> MutationQuota | None:
        return self._coordinator.quota(asked.user, asked.client_id)

    def _pass(self, asked: Asked, quota: MutationQuota | None) -> Answer:
        """Nothing limits it, or only a shadow quota."""
        outcome = "unlimited" if quota is None else "shadow"
        ask = None if self._unreported(asked, quota) else self._coordinator.report(asked, quota)
        return Answer(allowed=True, outcome=outcome, quota=quota, ask=ask)

    def _unreported(self, asked: Asked, quota: MutationQuota | None) -> bool:
        """Whether it is a dry run of which nobody need know, or one more than may be asked about."""
        if not asked.validate_only or quota is None:
            return asked.validate_only
        if not self._free.dry_runs.take(quota, sum(asked.items.values())):
            return False
        self._coordinator.metrics.unreported.inc()
        return True

    def _room_in_line(self, quota: MutationQuota, wait_ms: float) -> bool:
        """Whether one more may wait, and may have its turn in time: each before it takes one at least."""
        waiting = len(self._lines.get(quota.subject, ()))
        return (
            waiting * 1000 <= wait_ms * quota.rate
            and waiting < bounds.OPEN_QUESTIONS_MAX
            and self._waiting < bounds.PENDING_REQUESTS_MAX
        )

    async def _decide_in_line(self, asked: Asked, subject: str, until_ms: float) -> Answer:
        """In its turn, when its subject need not wait any more, for a limited time."""
        line = self._lines.setdefault(subject, deque())
        turn = asyncio.get_running_loop().create_future()
        line.append(turn)
        self._waiting += 1
        try:
            if line[0] is not turn:
                await self._wait(turn, until_ms - self._now_ms())
            return await self._decide_in_turn(asked, until_ms)
        finally:
            self._waiting -= 1
            line.remove(turn)
            if line:
                _done(line[0])
            else:
                del self._lines[subject]

    async def _decide_in_turn(self, asked: Asked, until_ms: float) -> Answer:
        while True:
            quota = self._quota(asked)
            if quota is None or quota.shadow:
                return self._pass(asked, quota)
            left_ms = until_ms - self._now_ms()
            wait_ms = self._judge(quota).wait_ms
            if not 0 < wait_ms <= left_ms:
                answer = await self._decide_once(asked, quota)
                wait_ms = answer.retry_ms
                if answer.outcome not in _WAITS or wait_ms > until_ms - self._now_ms():
                    return answer
            await self._pause(quota.subject, wait_ms)

    def _judge(self, quota: MutationQuota) -> Verdict:
        return self._coordinator.judge(quota, strict=True, probing=False)

    async def _decide_once(self, asked: Asked, quota: MutationQuota) -> Answer:
        verdict = self._judge(quota)
        if verdict.action in _ASKS and self._coordinator.questions.full(quota.subject):
            if not await self._line_up(quota.subject):
                return self._late(None, quota, local=verdict.action is Action.DECIDE)
            verdict = self._judge(quota)
        refusal = self._refuse_at_once(asked, quota, verdict)
        if refusal is not None:
            return refusal
        if asked.validate_only:
            self._free.dry_runs.charge(quota, sum(asked.items.values()))
        return await self._ask(asked, quota, local=verdict.action is Action.DECIDE)

    def _refuse_at_once(self, asked: Asked, quota: MutationQuota, verdict: Verdict) -> Answer | None:
        """Refuse what need not, or may not, be asked about."""
        coordinator = self._coordinator
        asks = verdict.action in _ASKS
        if asks and asked.validate_only:
            wait_ms = ceil(self._free.dry_runs.wait_ms(quota))
            if not wait_ms:
                return None
            coordinator.metrics.unreported.inc()
            message = self._free.explain_dry_runs(quota, wait_ms)
            return Answer(
                allowed=False, outcome="dry_run", retry_ms=wait_ms, message=message, quota=quota
            )
        if not verdict.wait_ms:
            return None
        if self._free.refusals.take(quota, len(asked.items)):
            coordinator.metrics.unreported.inc()
        elif asks:
            return None
        else:
            coordinator.report_refused(asked, quota)
        return _refused("not_before", quota, verdict.wait_ms)

    async def _line_up(self, subject: str) -> bool:
        """Wait until one of the subject's questions is answered; False if that takes too long."""
        until_ms = self._now_ms() + self._settings.decision_timeout_ms
        while self._coordinator.questions.full(subject):
            left_ms = until_ms - self._now_ms()
            if left_ms <= 0:
                return False
            await self._pause(line_of(subject), left_ms)
        return True

    async def _ask(self, asked: Asked, quota: MutationQuota, *, local: bool) -> Answer:
        """Have it decided, here or by the job."""
        coordinator = self._coordinator
        over = asyncio.get_running_loop().create_future()
        refused: list[bool] = []

        def on_decision(_decision: Decision) -> None:
            _done(over)

        def on_refused() -> None:
            refused.append(True)
            _done(over)

        receipt = self._receipt() if local else None
        try:
            if receipt is None:
                ask = coordinator.ask(asked, quota, on_decision, on_refused)
            else:
                ask = coordinator.decide(asked, quota, receipt.arrived, on_decision, on_refused)
        except Uncharged:
            return self._too_large(asked, quota)
        if ask is None:
            return self._late(None, quota, local=local)
        try:
            if ask.answered is not Answered.DECIDED:
                receipt = None
                await self._await_decision(quota.subject, over)
            if refused:
                return self._too_large(asked, quota)
            if ask.decision is None:
                return self._late(ask, quota, local=local)
            return await self._decided(ask, ask.decision, quota, receipt)
        except asyncio.CancelledError:
            self._abandon(ask)
            raise

    async def _await_decision(self, subject: str, over: "asyncio.Future[None]") -> None:
        self._coordinator.questions.begin(subject)
        try:
            await self._wait(over, self._settings.decision_timeout_ms)
        finally:
            self._coordinator.questions.end(subject)

    async def _decided(
        self, ask: Ask, decision: Decision, quota: MutationQuota, receipt: Receipt | None
    ) -> Answer:
        if decision.rejected.isdisjoint(ask.items):
            return Answer(
                allowed=True, outcome="allow", quota=quota, tokens=decision.tokens, ask=ask, receipt=receipt
            )
        # Of several items some may have been charged; none is carried out.
        ask.executed = {}
        self._coordinator.settle(ask)
        left_ms = max(1, ceil(self._coordinator.remaining_ms(decision, ask.sent_ms)))
        answer = _refused("reject", quota, left_ms, decision, ask, receipt)
        await self.acknowledged(answer)
        return answer

    def _late(self, ask: Ask | None, quota: MutationQuota, *, local: bool) -> Answer:
        """The decision did not come in time, or cannot come."""
        # What lies between the parts of several is refused: too late, it is never charged.
        reject = local or self._settings.on_late_decision is OnLate.REJECT
        if ask is not None:
            if local:
                self._coordinator.local.unanswered(ask)
            if reject:
                ask.executed = {}
            self._coordinator.give_up(ask, Answered.REJECTED if reject else Answered.ALLOWED)
        if not reject:
            return Answer(allowed=True, outcome="late_allow", quota=quota, ask=ask)
        # The time limit itself is the only hint when it may be worth a retry.
        return _refused("late_reject", quota, self._settings.decision_timeout_ms)

    def _too_large(self, asked: Asked, quota: MutationQuota) -> Answer:
        return Answer(
            allowed=False,
            outcome="too_large",
            retry_ms=self._settings.decision_timeout_ms,
            message=f"A request that changes {len(asked.items)} topics, or one with so long a name, is too"
            " large to be decided under a quota on partition mutations.",
            quota=quota,
        )

    def _abandon(self, ask: Ask) -> None:
        """Nothing is done, as nobody waits for it: whatever is, or will be, charged is given back."""
        ask.executed = {}
        if ask.answered is Answered.WAITING:
            self._coordinator.give_up(ask, Answered.REJECTED)
        else:
            self._coordinator.settle(ask)

    def _receipt(self) -> Receipt:
        missed = self._coordinator.metrics.unacknowledged.inc
        return Receipt(self._call_later, self._settings.event_ack_ms, self._now_ms, missed)

    async def _pause(self, name: str, wait_ms: float) -> None:
        """Wait so long, or until whoever goes by this name may go on."""
        woken = asyncio.get_running_loop().create_future()
        wake = partial(_done, woken)
        self._coordinator.wait_for(name, wake)
        try:
            await self._wait(woken, wait_ms)
        finally:
            self._coordinator.stop_waiting(name, wake)

    async def _wait(self, future: "asyncio.Future[None]", limit_ms: float) -> None:
        timer = self._call_later(max(0.0, limit_ms), partial(_done, future))
        try:
            await future
        finally:
            timer.cancel()


def _done(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _refused(
    outcome: str,
    quota: MutationQuota,
    retry_ms: int,
    decision: Decision | None = None,
    ask: Ask | None = None,
    receipt: Receipt | None = None,
) -> Answer:
    return Answer(
        allowed=False,
        outcome=outcome,
        retry_ms=retry_ms,
        message=explain(quota, decision, retry_ms),
        quota=quota,
        tokens=None if decision is None else decision.tokens,
        ask=ask,
        receipt=receipt,
    )
