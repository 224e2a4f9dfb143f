"""Requests for partition mutations of protocols whose requests can be refused: decided by the quota, settled
by what the cluster did (docs/contract.md 3.1).

Whoever reads such a request decides it here, carries it out if it is allowed, settles it, waits until Kafka
has the event of what was decided at once, and only then answers the client. Each is carried out whole or not
at all. Where a short wait is kinder than a refusal, those of one subject wait in line.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

from enforcer.core import bounds
from enforcer.laws.mutation.admission import Admission, CallLater
from enforcer.laws.mutation.coordinator import QuotaCoordinator
from enforcer.laws.mutation.events import line_of
from enforcer.laws.mutation.request import MutationQuota, Progress, Reply, Request, Verdict

_WAITS: Final = frozenset({"reject", "not_before"})
"""Refusals that time alone ends."""


class Answer:
    """What becomes of a request: the shell of its admission.

    Attributes:
        allowed: carry it out, then settle it.
        outcome: in a word (docs/metrics.md, `weir_proxy_requests_total`); `free`: it has no items.
        retry_ms: of a refusal: when it may be worth another try, whole ms from now on, at least 1.
        message: of a refusal: why, and when to retry, in a sentence.
        quota: that was in force for it; None if none was.
        admission: None: it needed none.
        over: set once it is known what it comes to; afterwards, once the client may be answered.
    """

    too_large = (
        "A request that changes {} topics, or one with so long a name, is too large to be decided under a"
        " quota on partition mutations."
    )

    def __init__(self, call_later: CallLater, request: Request, quota: MutationQuota | None) -> None:
        self.call_later = call_later
        self.allowed, self.outcome = True, "free"
        self.retry_ms, self.message = 0, ""
        self.quota = quota
        self.admission: Admission | None = None
        self.over = asyncio.Event()
        self._request = request

    @property
    def tokens(self) -> float | None:
        """Balance of its subject after it; None if that is not known."""
        decision = self._request.decision
        return None if decision is None else decision.tokens

    def look_up(self) -> None:
        """See admission.Shell: it is counted already."""
        assert self.admission is not None
        self.admission.counted(self._request.items)

    def stated(self) -> Mapping[str, int]:
        """See admission.Shell."""
        return self._request.items

    def leaves(self, rejected: Collection[str]) -> bool:
        """See admission.Shell."""
        return not rejected

    def carry_out(self, rejected: Collection[str]) -> bool:
        """See admission.Shell: whoever asked does it."""
        self.over.set()
        return True

    def answer(self, told: Reply) -> Callable[[float], None]:
        """See admission.Shell."""
        self.allowed = not told.message
        self.retry_ms, self.message = told.left_ms, told.message
        return lambda _mute_ms: self.over.set()

    def note(self, outcome: str) -> None:
        """See admission.Shell."""
        self.outcome = outcome


class Mutations:
    """Decides requests for partition mutations, in one event loop.

    Attributes:
        waiting: requests that wait in line.
    """

    def __init__(self, coordinator: QuotaCoordinator, call_later: CallLater) -> None:
        self._coordinator = coordinator
        self._settings = coordinator.settings
        self._call_later = call_later
        self._now_ms = coordinator.clock.steady_ms
        # By subject; the first has its turn.
        self._lines: dict[str, deque[asyncio.Event]] = {}
        self.waiting = 0

    async def decide(self, request: Request, wait_ms: float = 0) -> Answer:
        """Decide a request; if this is cancelled, nothing stays charged.

        Args:
            request: the request, strict; of no item its cluster is to say what is wrong with it.
            wait_ms: it is rather kept so long than refused.
        """
        if not request.items:
            return Answer(self._call_later, request, None)
        quota = self._quota(request)
        if quota is None or quota.shadow or wait_ms <= 0 or request.dry_run or self._full(quota, wait_ms):
            answer = await self._decide_once(request, quota)
        else:
            answer = await self._decide_in_line(request, quota.subject, self._now_ms() + wait_ms)
        self._coordinator.metrics.requests.labels(request.api, answer.outcome).inc()
        return answer

    def settle(self, answer: Answer, executed: Mapping[str, int]) -> None:
        """Give back what the cluster did not do, and charge what it did beyond.

        Args:
            answer: one that allowed its request.
            executed: name -> mutations that were made; what is missing was not.
        """
        if answer.allowed and answer.admission is not None:
            answer.admission.carried_out(executed)

    def charge(self, request: Request, items: Mapping[str, int]) -> None:
        """Charge what was carried out without having been decided: it seemed to cost nothing."""
        self._coordinator.report(request.as_done(items), self._quota(request))

    async def acknowledged(self, answer: Answer) -> None:
        """Wait until Kafka has the event of a decision, for a limited time (EVENT_ACK_MS)."""
        if answer.allowed and answer.admission is not None:
            answer.over.clear()
            answer.admission.finish()
            try:
                await answer.over.wait()
            finally:
                answer.admission.gone()

    def _quota(self, request: Request) -> MutationQuota | None:
        return self._coordinator.quota(request.user, request.client_id)

    def _full(self, quota: MutationQuota, wait_ms: float) -> bool:
        """Whether no more may wait, or could have its turn in time: each before it takes one at least."""
        waiting = len(self._lines.get(quota.subject, ()))
        return (
            waiting * 1000 > wait_ms * quota.rate
            or waiting >= bounds.OPEN_QUESTIONS_MAX
            or self.waiting >= bounds.PENDING_REQUESTS_MAX
        )

    async def _decide_in_line(self, request: Request, subject: str, until_ms: float) -> Answer:
        """In its turn, when its subject need not wait any more, for a limited time."""
        line, turn = self._lines.setdefault(subject, deque()), asyncio.Event()
        line.append(turn)
        self.waiting += 1
        try:
            if line[0] is not turn:
                await self._wait(turn, until_ms - self._now_ms())
            return await self._decide_in_turn(request, until_ms)
        finally:
            self.waiting -= 1
            line.remove(turn)
            if line:
                line[0].set()
            else:
                del self._lines[subject]

    async def _decide_in_turn(self, request: Request, until_ms: float) -> Answer:
        while True:
            quota = self._quota(request)
            wait_ms = self._judge(request, quota).wait_ms
            if quota is None or not 0 < wait_ms <= until_ms - self._now_ms():
                answer = await self._decide_once(request, quota)
                wait_ms = answer.retry_ms
                if answer.outcome not in _WAITS or wait_ms > until_ms - self._now_ms():
                    return answer
            assert quota is not None
            await self._pause(quota.subject, wait_ms)

    def _judge(self, request: Request, quota: MutationQuota | None) -> Verdict:
        return self._coordinator.judge(quota, strict=True, dry_run=request.dry_run)

    async def _decide_once(self, request: Request, quota: MutationQuota | None) -> Answer:
        verdict, late = self._judge(request, quota), False
        if quota is not None and verdict.asks and self._coordinator.questions.full(quota.subject):
            late = not await self._line_up(quota.subject)
            verdict = verdict if late else self._judge(request, quota)
        request = replace(request)
        answer = Answer(self._call_later, request, quota)
        admission = Admission(self._coordinator, answer, request, quota, verdict, whole=True)
        answer.admission = admission
        try:
            if late:
                admission.late()
            else:
                admission.start()
            await answer.over.wait()
        except asyncio.CancelledError:
            admission.gone()
            if admission.done is Progress.SENT:
                # It might have been carried out, and will not be.
                admission.carried_out({})
            raise
        return answer

    async def _line_up(self, subject: str) -> bool:
        """Wait until one of the subject's questions is answered; False if that takes too long."""
        questions, name = self._coordinator.questions, line_of(subject)
        until_ms = self._now_ms() + self._settings.decision_timeout_ms
        turn = asyncio.Event()
        # Several are woken for one question: who does not get it keeps its place.
        questions.wait_for(name, turn.set)
        try:
            while questions.full(subject) and (left_ms := until_ms - self._now_ms()) > 0:
                turn.clear()
                await self._wait(turn, left_ms)
        finally:
            questions.stop_waiting(name, turn.set)
        return not questions.full(subject)

    async def _pause(self, name: str, wait_ms: float) -> None:
        """Wait so long, or until whoever goes by this name may go on."""
        woken = asyncio.Event()
        self._coordinator.questions.wait_for(name, woken.set)
        try:
            await self._wait(woken, wait_ms)
        finally:
            self._coordinator.questions.stop_waiting(name, woken.set)

    async def _wait(self, event: asyncio.Event, limit_ms: float) -> None:
        timer = self._call_later(max(0.0, limit_ms), event.set)
        try:
            await event.wait()
        finally:
            timer.cancel()
