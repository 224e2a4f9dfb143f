"""The quota side of an enforcer, without sockets: has requests decided, here or by the job, and corrects.

Connections bring requests here; decisions and policies come in by the feeds. All of it runs in one loop.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import ceil
from typing import Any, Final

from enforcer.core import bounds
from enforcer.core.law import Context
from enforcer.core.reports import Acknowledged
from enforcer.core.settings import OnLate
from enforcer.laws.mutation.events import EventSender, OpenQuestions, ReadBack, RequestEvents, Uncharged
from enforcer.laws.mutation.local_decisions import OWN_EVENTS_MAX, LocalDecisions
from enforcer.laws.mutation.request import Action, Decision, NotBefore, Request, Verdict
from enforcer.laws.mutation.waiting import REFUSAL_FACTOR, Allowance, PendingRequests
from streaming.contract.names import PROBE_SUFFIX
from streaming.policy.policy_set import Algorithm, Decide, MutationQuota

logger = logging.getLogger(__name__)

_STOOD_STILL_MS: Final = 2_000
"""Who lives is looked at more often than that, unless the process stands still."""
_DUE_MAX: Final = 500
"""Requests told of at a time: the loop has other things to do."""
Acked = Callable[[bool], None]
Told = Callable[[Decision | None], None]
"""Gets the decision of a request; None: Kafka will never take its event."""


class QuotaCoordinator:
    """Decides by what is known, or asks for decisions, and acts on them."""

    def __init__(self, context: Context) -> None:
        settings, clock = context.settings, context.clock
        self.proxy_id, self.settings, self.clock = context.proxy_id, settings, clock
        self.metrics = context.metrics
        self.policies, self._membership = context.policies, context.membership
        self._brokers_ms, self._call_at, self._in_loop = context.brokers_ms, context.call_at, context.in_loop
        self.not_before = NotBefore(settings.subjects_max, clock.steady_ms)
        self.undecided = PendingRequests(bounds.PENDING_REQUESTS_MAX)
        self.questions = OpenQuestions(bounds.OPEN_QUESTIONS_MAX, bounds.PENDING_REQUESTS_MAX)
        kept = settings.subjects_max, clock.steady_ms
        self.dry_runs = Allowance(settings.dry_run_factor, settings.dry_run_factor, *kept)
        self.refusals = Allowance(REFUSAL_FACTOR, 1.0, *kept)
        self.local_decisions = LocalDecisions(
            self.policies.timeline, subjects_max=settings.subjects_max, tail_max=OWN_EVENTS_MAX
        )
        self.reading: ReadBack | None = ReadBack(self.local_decisions)
        """Takes what was decided before the start; None: all of that is known, and we decide at once."""
        self._membership.follow(self._looked)
        self.policies.follow(self._policies_changed, self.local_decisions.sweep)
        self.outgoing = EventSender(context.requests, context.soon)
        self._untold = deque[Request]()  # until the policies say whose quota it is, 10,000 at most
        # Events on their way to Kafka, as many as the sender holds; with the request, if decided here.
        self._unacknowledged: dict[str, Request | None] = {}
        self._events = RequestEvents(context)

    def quota(self, user: str, client_id: str) -> MutationQuota | None:
        """The mutation quota that applies to a client now."""
        if not self.policies.known():
            return None
        return self.policies.timeline.at(self._brokers_ms()).mutation_quota(user, client_id)

    def enforces(self, user: str, client_id: str) -> bool:
        """Whether a mutation quota that is acted on applies to a client now."""
        quota = self.quota(user, client_id)
        return quota is not None and not quota.shadow

    def judge(
        self, quota: MutationQuota | None, *, strict: bool, probing: bool = False, dry_run: bool = False
    ) -> Verdict:
        """What to do with a request of the quota's subject."""
        verdict = self.not_before.judge(quota, strict=strict, local=self.decides(quota), probing=probing)
        if not dry_run or quota is None or not verdict.asks:
            return verdict
        wait_ms = self.dry_runs.wait_ms(quota)
        action = Action.REFUSE if strict else Action.HOLD
        return Verdict(action, ceil(wait_ms), dry=True) if wait_ms else verdict

    def must_line_up(self, quota: MutationQuota, verdict: Verdict, *, strict: bool) -> bool:
        """Whether a request must wait for its turn among those of its subject."""
        if not verdict.asks:
            return False
        # One that is carried out before it is counted goes alone: else all that wait would pass at once.
        alone = verdict.action is Action.DECIDE and not strict
        return self.questions.full(quota.subject) or (alone and self.questions.busy(quota.subject))

    def decides(self, quota: MutationQuota | None) -> bool:
        """Whether requests under a quota are decided here."""
        return (
            self.reading is None
            and quota is not None
            and (quota.decide or self.settings.decide) == Decide.LOCAL
            and quota.algorithm == Algorithm.TOKEN_BUCKET
            and not quota.shadow
        )

    def begin(self) -> None:
        """All is read back: decide at once from now on."""
        self.reading = None
        self._membership.look()

    def ask(self, request: Request, quota: MutationQuota | None, told: Told) -> bool:
        """Send the event of a request, and call `told` when it is decided.

        Returns:
            False if it could not be sent or too many are open: treat it as late.

        Raises:
            Uncharged: it is too large to be ever sent.
        """
        return self._put_question(request, self._events.request(request, quota), told)

    def decide(self, request: Request, quota: MutationQuota, told: Told, acked: Acked) -> bool:
        """Decide a request at once and send its event; or ask, if it lies between.

        Args:
            request: it; has its decision afterwards if that was made at once.
            quota: of its subject, one that is decided here.
            told: see `ask`.
            acked: told whether Kafka has the event of what was decided, once that is known.

        Returns:
            False if it could not be sent or too many are open: treat it as late, nothing is charged. An old
            version's, which is carried out already, is decided all the same.

        Raises:
            Uncharged: it is too large to be ever sent.
        """
        event = self._events.request(request, quota, decided=True)
        if request.strict and not self.outgoing.room():
            return False
        if self._decide_here(request, quota, event):
            self._send_decided(request, event, acked)
            self._note_decided(request, quota)
            return True
        # What it gets in the end must be what we say: too late is never charged.
        request.on_late_reject = True
        # Others of its subject may have begun to ask while its topics were looked up.
        if not self.questions.full(request.subject) and self._put_question(request, event, told):
            return True
        self.local_decisions.withdraw(request.subject, request.id)
        return False

    def report(self, request: Request, quota: MutationQuota | None) -> None:
        """Send a request event that nobody waits for: no quota applies, or a shadow one, or it is done."""
        if quota is None:
            if not self.policies.known():
                self._tell_later(request)
                return
            quota = self.quota(request.user, request.client_id)
            # It has gone on without: it is told as what cannot be refused.
            request.strict = request.strict and quota is None
        try:
            event = self._events.request(request, quota)
        except Uncharged:
            # It would be refused under the quota in earnest: nothing is charged in shadow.
            return
        if quota is not None and not request.strict and self.decides(quota):
            self._decide_here(request, quota, event)
            self._send_decided(request, event, None)
        elif self._send_asked(event, request):
            self.undecided.watch(request)
            self._note_asked(request)

    def report_refused(self, request: Request, quota: MutationQuota) -> None:
        """Send the event of a request that was refused by its subject's not-before time."""
        with suppress(Uncharged):
            event = self._events.request(request, quota, together=True)
            self.outgoing.send({**event, "answered": "not_before"}, request.home)

    def refused(self, event_id: str) -> None:
        """Kafka never takes this event, it is too large: whoever waits for its decision need not wait on."""
        decided = self._unacknowledged.pop(event_id, None)
        if decided is not None:
            # It is carried out, and must be charged: by an event that names nothing.
            self.local_decisions.withdraw(decided.subject, decided.id)
            if any((charged := decided.charged).values()):
                self._charge(decided, "sum", {f"{len(charged)} items": sum(charged.values())})
            return
        request = self.undecided.refused(event_id)
        if request is not None:
            self.local_decisions.withdraw(request.subject, request.id)
            if request.told is not None:
                told, request.told = request.told, None
                told(None)

    def give_up(self, request: Request) -> None:
        """The client got its answer without the decision, or is gone; the decision will be reconciled."""
        # It may be kept for minutes, and who asked is held by this, with the connection.
        request.told = None
        self.undecided.watch(request)
        self.settle(request)

    def settle(self, request: Request) -> None:
        """Send what corrects the balance, once both the decision and what the cluster did are known."""
        if request.decision is None or request.executed is None or request.settled:
            return
        request.settled = True
        refund, charge = request.corrections()
        if refund:
            refund_id, mutations = self._events.next_id(), sum(refund.values())
            event = self._events.refund(refund_id, request, refund)
            if request.local:
                now_ms = self._brokers_ms()
                event["ts"] = self.local_decisions.refunded(request.subject, refund_id, now_ms, mutations)
            self.outgoing.send(event, request.home)
            self.metrics.corrected_mutations.labels("refunded").inc(mutations)
            self.not_before.give_back(request.subject, mutations)
            self.questions.wake(request.subject)
        if charge:
            self._charge(request, "late", charge)
            self.metrics.corrected_mutations.labels("charged").inc(sum(charge.values()))

    def take(self, decisions: Sequence[Decision]) -> None:
        """Act on decisions read from Kafka: our own and those of other proxies."""
        for decision in decisions:
            request = None
            if decision.proxy == self.proxy_id:
                request = self.undecided.decide(decision)
                self._unacknowledged.pop(decision.id, None)  # its acknowledgement may come later
                self._membership.decided(decision.id)
            if self.reading is not None:
                self.reading.admission(decision)
            elif decision.subject or (decision.proxy == self.proxy_id and (not request or request.subject)):
                self.local_decisions.stated(decision)
            # Before the client is told: its next request may come at once.
            self._note_wait(decision, request)
            if request is not None and request.decision is not None:
                try:
                    self._decided(request, request.decision)
                except Exception:  # one client's trouble must not be everybody's
                    logger.exception("the decision of %s met a mistake in the proxy", decision.id)

    def tick(self) -> None:
        """Once a second: drop what is old, refresh the gauges."""
        now_ms = self.clock.steady_ms()
        self.not_before.expire(now_ms)
        self.undecided.expire(now_ms)
        self._membership.look()
        for _ in range(min(len(self._untold), _DUE_MAX) if self.policies.known() else 0):
            self.report(self._untold.popleft(), None)
        traffic = self.metrics.traffic
        traffic.subjects = len(self.not_before)
        traffic.pending = len(self.undecided.pending)
        traffic.policy_version = self.policies.now.version

    def remaining_ms(self, decision: Decision, sent_ms: float | None) -> float:
        """How much of a decision's throttle time is left now.

        The event's time is a broker's; where that clock and ours disagree, what has surely passed here is the
        least, and nothing the most, that can be taken off.

        Args:
            sent_ms: when we sent the event, steady clock; None if another proxy did.
        """
        throttle_ms = float(decision.throttle_time_ms)
        by_brokers_ms = min(throttle_ms, decision.ts + throttle_ms - self._brokers_ms())
        if sent_ms is None:
            return max(0.0, by_brokers_ms)
        return max(0.0, throttle_ms - (self.clock.steady_ms() - sent_ms), by_brokers_ms)

    def _tell_later(self, request: Request) -> None:
        """Whose quota it is must not be left to the job: one of its other shards would charge it."""
        if len(self._untold) < bounds.PENDING_REQUESTS_MAX:
            self._untold.append(request)
        else:
            self.metrics.events.labels("dropped").inc()

    def _note_wait(self, decision: Decision, request: Request | None) -> None:
        if not decision.subject or decision.shadow:
            if decision.shadow:
                self.metrics.shadow_decisions.inc()
            return
        quota = self.policies.at(decision.ts).mutation_quota_of_subject(decision.subject)
        if request is None and decision.proxy == self.proxy_id and self.decides(quota):
            # Decided here, and noted then; more may have been since.
            return
        if decision.throttle_time_ms > 0:
            left_ms = self.remaining_ms(decision, None if request is None else request.sent_ms)
            # Of a subject without a quota nobody asks how long it must wait.
            if left_ms > 0 and quota is not None:
                self.not_before.postpone(decision.subject, self.clock.steady_ms() + left_ms, quota)
        elif not decision.late:
            # It was let through after all, so whoever waits may ask again.
            self._drop(decision.subject)

    def _drop(self, subject: str) -> None:
        """A subject need not wait any more."""
        self.not_before.drop(subject)
        self.questions.wake(subject)

    def _decided(self, request: Request, decision: Decision) -> None:
        if not request.id.endswith(PROBE_SUFFIX):
            # A probe may wait for the job's start; clients do not.
            self.metrics.decision_wait_seconds.observe((self.clock.steady_ms() - request.sent_ms) / 1000)
        if decision.subject:
            self.metrics.decided(decision.subject, decision.tokens, decision.rate, decision.throttle_time_ms)
        told, request.told = request.told, None
        if told is not None:
            told(decision)
        elif request.subject and not request.shadow:
            self.metrics.late_decisions.inc()
        # The broker may have been quicker than the decision.
        self.settle(request)

    def _put_question(self, request: Request, event: dict[str, Any], told: Told) -> bool:
        """Send an event whose decision is waited for; False if that cannot be."""
        if request.strict:
            event["asked_ts"], event["deadline_ms"] = self._brokers_ms(), self.settings.decision_timeout_ms
            event["on_late"] = OnLate.REJECT if request.on_late_reject else OnLate.ALLOW
        if not (self.undecided.add(request) and self._send_asked(event, request)):
            self.undecided.refused(request.id)
            return False
        request.told = told
        if not request.local:
            self._note_asked(request)
        return True

    def _note_asked(self, request: Request) -> None:
        """Note what the job is to decide: before it has, its quota may be one that is decided here."""
        if self.reading is None and request.subject:
            self.local_decisions.asked(request, self._brokers_ms())

    def _decide_here(self, request: Request, quota: MutationQuota, event: dict[str, Any]) -> bool:
        """Decide a request by what is known here; False: the job must be asked, and its question is noted."""
        request.local = True
        ts = self._brokers_ms()
        if ts - self._membership.looked_ms > _STOOD_STILL_MS:
            # Nobody knows who lives.
            self._membership.look()
        answer = self.local_decisions.decide(quota, request, ts)
        if answer is None:
            return False
        self._events.decided(event, request, answer, quota)
        return True

    def _charge(self, request: Request, why: str, items: Mapping[str, int]) -> None:
        """Charge what was carried out, whatever the balance is."""
        charge, event = self._events.charge(request, why, items)
        at = self.policies.at
        quota = at(self._brokers_ms()).mutation_quota_of_subject(request.subject) if request.local else None
        if quota is not None and self.decides(quota):
            self._decide_here(charge, quota, event)
        self.outgoing.send(event, charge.home)

    def _send_decided(self, request: Request, event: Mapping[str, Any], acked: Acked | None) -> None:
        """Send the event of what was decided here; `acked` is told what came of it, in the loop."""
        self._unacknowledged[request.id] = request
        self.outgoing.send_soon(event, request.subject, self._watched(request.id, acked))

    def _send_asked(self, event: Mapping[str, Any], request: Request) -> bool:
        """Send the event of what the job decides; False if that cannot be."""
        self._unacknowledged[request.id] = None
        sent = self.outgoing.send(event, request.home, acked=self._watched(request.id, None))
        if not sent:
            del self._unacknowledged[request.id]
        return sent

    def _watched(self, event_id: str, acked: Acked | None) -> Acknowledged:
        """What an event's acknowledgement is told to, in a thread."""

        def told(record_ms: int | None) -> None:
            undecided = self._unacknowledged.pop(event_id, False) is not False
            if undecided and record_ms is not None:
                self._membership.stands(event_id, record_ms)
            if acked is not None:
                acked(record_ms is not None)

        return lambda record_ms: self._in_loop(partial(told, record_ms))

    def _note_decided(self, request: Request, quota: MutationQuota) -> None:
        """Remember of a decision made here who must wait, and show it."""
        decision = request.decision
        assert decision is not None
        if not request.dry_run:
            if decision.throttle_time_ms > 0:
                self.not_before.postpone(request.subject, request.sent_ms + decision.throttle_time_ms, quota)
            elif request.subject in self.not_before:
                self._drop(request.subject)
        shown = request.subject, decision.tokens, None, decision.throttle_time_ms
        self.outgoing.later(partial(self.metrics.decided, *shown))

    def _looked(self) -> None:
        """It was looked who lives."""
        local, shown = self.local_decisions, self.metrics.local
        local.set_proxies(self._membership.count)
        local.blind = self._membership.blind
        shown.proxies, shown.own_events, shown.counts = local.proxies, local.tail, local.counts

    def _policies_changed(self, ts: int) -> None:
        self.local_decisions.policies_changed(ts)
        # Waits that were decided under the old quota end when the new one comes into force.
        self._call_at(ts, self.questions.wake_all)
