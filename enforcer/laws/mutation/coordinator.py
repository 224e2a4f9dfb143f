"""The quota side of an enforcer, without sockets: decides or asks, remembers, corrects.

Connections bring requests here; decisions and policies come in by the feeds. All of it runs in one loop.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from cachetools import TTLCache

from enforcer.core import bounds
from enforcer.core.clock import Clock
from enforcer.core.feeds.decisions import Decision
from enforcer.core.feeds.policies import Policies
from enforcer.core.metrics import Metrics
from enforcer.core.reports import Acknowledged
from enforcer.core.settings import OnLate, ProxySettings
from enforcer.laws.mutation.gate import Verdict, judge, remaining_ms
from enforcer.laws.mutation.ledger import (
    LATE_RECORD_MS,
    LATE_RECORDS_MAX,
    Answered,
    Ask,
    Ledger,
    charged_sum,
    correct,
)
from enforcer.laws.mutation.local_decisions import LocalDecisions
from enforcer.laws.mutation.open_questions import OpenQuestions
from enforcer.laws.mutation.outgoing import Outgoing, Sender
from enforcer.laws.mutation.request_events import Asked, RequestEvents, home_of
from streaming.contract.errors import WeirError
from streaming.contract.names import PROBE_SUFFIX
from streaming.policy.policy_set import MutationQuota

logger = logging.getLogger(__name__)

Called = Callable[[], None]
Acked = Callable[[bool], None]


class Uncharged(WeirError):
    """A request that no event can hold: nobody could decide it, and nobody would be charged for it."""


class QuotaCoordinator:
    """Decides by what is known, or asks for decisions, and acts on them.

    Args:
        proxy_id: name of this proxy.
        settings: time limits and bounds.
        metrics: counts.
        sender: takes events.
        clock: tells the time.
        brokers_ms: the same as the brokers count it; None: by our own clock.
    """

    def __init__(
        self,
        proxy_id: str,
        settings: ProxySettings,
        metrics: Metrics,
        sender: Sender,
        clock: Clock,
        brokers_ms: Callable[[], int] | None = None,
    ) -> None:
        self.proxy_id = proxy_id
        self.settings = settings
        self.metrics = metrics
        self.clock = clock
        self._brokers_ms = brokers_ms or clock.wall_ms
        self.policies = Policies(self._policies_changed, self._brokers_ms)
        self.ledger = Ledger(
            subjects_max=settings.subjects_max,
            pending_max=bounds.PENDING_REQUESTS_MAX,
            late_max=LATE_RECORDS_MAX,
            late_keep_ms=LATE_RECORD_MS,
        )
        self.local = LocalDecisions(proxy_id, settings, metrics, self.policies.timeline, self._brokers_ms)
        self.policies.forgetting = self.local.book.sweep
        self.call_at: Callable[[int, Called], object] = lambda _ts, _function: None
        """Calls a function at a time of the brokers' clock; set by whoever owns the loop."""
        self.in_loop: Callable[[Called], object] = lambda function: function()
        """Calls a function in the loop, from any thread; set by whoever owns it."""
        self.outgoing = Outgoing(sender)
        # Decided here, and on their way to Kafka: as many as the sender holds.
        self._unacknowledged: dict[str, Ask] = {}
        self._probed: TTLCache[str, None] = TTLCache(
            settings.subjects_max, bounds.MUTE_SPLIT_MS, clock.steady_ms
        )
        self._events = RequestEvents(
            proxy_id, metrics, clock, on_late_reject=settings.on_late_decision is OnLate.REJECT
        )
        self.questions = OpenQuestions(bounds.OPEN_QUESTIONS_MAX, bounds.PENDING_REQUESTS_MAX)

    def quota(self, user: str, client_id: str) -> MutationQuota | None:
        """The mutation quota that applies to a client now."""
        return self.policies.quota(user, client_id, self._brokers_ms())

    def enforces(self, user: str, client_id: str) -> bool:
        """Whether a mutation quota that is acted on applies to a client now."""
        quota = self.quota(user, client_id)
        return quota is not None and not quota.shadow

    def judge(self, quota: MutationQuota | None, *, strict: bool, probing: bool) -> Verdict:
        """What to do with a request of the quota's subject."""
        until_ms, now_ms = None, 0.0
        # Few subjects must wait; for the others the time does not matter, and asking for it does.
        if quota is not None and quota.subject in self.ledger:
            now_ms = self.clock.steady_ms()
            until_ms = self.ledger.not_before(quota.subject, quota, now_ms)
            # A strict one is refused all the same, and must not take the turn of an old client.
            if probing and not strict and until_ms is not None:
                # One for all its connections: a hundred muted ones would be a way to go on.
                probing = quota.subject not in self._probed
                if probing:
                    self._probed[quota.subject] = None
        local = self.local.decides(quota)
        return judge(quota, until_ms, now_ms, strict=strict, local=local, probing=probing)

    def ask(
        self,
        asked: Asked,
        quota: MutationQuota | None,
        on_decision: Callable[[Decision], None],
        on_refused: Callable[[], None] | None = None,
    ) -> Ask | None:
        """Send a request event and tell `on_decision` when it is decided.

        Args:
            on_refused: told if Kafka says afterwards that it will never take the event.

        Returns:
            The question; None if it could not be sent or too many are open: treat it as late.

        Raises:
            Uncharged: it is too large to be ever sent.
        """
        ask = self._events.new_ask(asked, quota)
        event = self._events.event(ask, asked)
        if not self._events.put_items(event, ask, ask.items):
            raise Uncharged(f"{len(ask.items)} items are too many for one event")
        return ask if self._put_question(ask, event, on_decision, on_refused) else None

    def decide(
        self,
        asked: Asked,
        quota: MutationQuota,
        on_acked: Acked,
        on_decision: Callable[[Decision], None],
        on_refused: Called | None = None,
    ) -> Ask | None:
        """Decide a request at once and send its event; or ask, if it lies between.

        Args:
            asked: the request.
            quota: of its subject, one that is decided here.
            on_acked: told whether Kafka has the event of what was decided, once that is known.
            on_decision: see `ask`, as `on_refused`.

        Returns:
            The request, with its decision if that was made at once; else it is a question. None if it could
            not be sent or too many are open: treat it as late, nothing is charged. An old version's, which is
            carried out already, is decided all the same.

        Raises:
            Uncharged: it is too large to be ever sent.
        """
        ask = self._events.new_ask(asked, quota)
        event = self._events.event(ask, asked)
        if not self._events.put_items(event, ask, ask.items, decided=True):
            raise Uncharged(f"{len(ask.items)} items are too many for one event")
        if ask.strict and not self.outgoing.room():
            return None
        if self.local.decide(ask, quota, event):
            ask.answered = Answered.DECIDED
            self._send_decided(ask, event, on_acked)
            self._note_decided(ask, quota)
            return ask
        # What it gets in the end must be what we say: too late is never charged.
        ask.on_late_reject = True
        # Others of its subject may have begun to ask while its topics were looked up.
        room = not self.questions.full(ask.subject)
        if room and self._put_question(ask, event, on_decision, on_refused):
            return ask
        self.local.withdraw(ask)
        return None

    def report(self, asked: Asked, quota: MutationQuota | None) -> Ask:
        """Send a request event that nobody waits for: no quota applies, or a shadow one, or it is done."""
        ask = self._events.new_ask(asked, quota)
        ask.answered = Answered.ALLOWED
        event = self._events.event(ask, asked)
        # One that is too large would be refused under the quota in earnest: nothing is charged in shadow.
        if not self._events.put_items(event, ask, ask.items):
            return ask
        if quota is not None and not ask.strict and self.local.decides(quota):
            self.local.charge(ask, quota, event)
            self._send_decided(ask, event, None)
        elif self.outgoing.send(event, home_of(ask), acked=self._watched(ask.id, None)):
            self.ledger.watch(ask)
            self.local.asked(ask, event)
        return ask

    def report_refused(self, asked: Asked, quota: MutationQuota) -> None:
        """Send the event of a request that was refused by its subject's not-before time."""
        ask = self._events.new_ask(asked, quota)
        event = self._events.event(ask, asked)
        event["answered"] = "not_before"
        if self._events.put_items(event, ask, ask.items, together=True):
            self.outgoing.send(event, home_of(ask))

    def refused(self, event_id: str) -> None:
        """Kafka never takes this event, it is too large: whoever waits for its decision need not wait on."""
        decided = self._unacknowledged.pop(event_id, None)
        if decided is not None:
            # It is carried out, and must be charged: by an event that names nothing.
            self.local.withdraw(decided)
            charged = charged_sum(decided)
            if any(charged.values()):
                self._charge(decided, "sum", charged)
            return
        ask = self.ledger.refused(event_id)
        if ask is not None:
            self.local.withdraw(ask)
        if ask is not None and ask.on_refused is not None:
            ask.on_decision = None
            ask.on_refused()

    def give_up(self, ask: Ask, answered: Answered) -> None:
        """The client got its answer without the decision, or is gone; the decision will be reconciled."""
        ask.answered = answered
        # It may be kept for minutes, and who asked is held by these, with the request and the connection.
        ask.on_decision = ask.on_refused = None
        self.ledger.watch(ask)
        self.settle(ask)

    def settle(self, ask: Ask) -> None:
        """Send what corrects the balance, once both the decision and what the cluster did are known."""
        if ask.decision is None or ask.executed is None or ask.settled:
            return
        ask.settled = True
        correction = correct(ask)
        if correction.refund:
            refund = self._events.refund(ask, correction.refund)
            mutations = sum(correction.refund.values())
            if ask.local:
                self.local.refund(ask, refund, mutations)
            self.outgoing.send(refund, home_of(ask))
            self.metrics.corrections.labels("refunded").inc(mutations)
            self.ledger.drop(ask.subject)
            self.questions.wake(ask.subject)
        if correction.charge:
            self._charge(ask, "late", correction.charge)
            self.metrics.corrections.labels("charged").inc(sum(correction.charge.values()))

    def take(self, decisions: list[Decision]) -> None:
        """Act on decisions read from Kafka: our own and those of other proxies."""
        for decision in decisions:
            own = decision.proxy == self.proxy_id
            ask = self.ledger.decide(decision) if own else None
            self.local.take(decision)
            # Before the client is told: its next request may come at once.
            self._note_wait(decision, ask)
            if ask is not None and ask.decision is not None:
                try:
                    self._decided(ask, ask.decision)
                except Exception:  # one client's trouble must not be everybody's
                    logger.exception("the decision of %s met a mistake in the proxy", decision.id)

    def wait_for(self, subject: str, wake: Callable[[], None]) -> None:
        """Call `wake` when the subject may go on; see `OpenQuestions`."""
        self.questions.wait_for(subject, wake)

    def stop_waiting(self, subject: str, wake: Callable[[], None]) -> None:
        """Undo `wait_for`."""
        self.questions.stop_waiting(subject, wake)

    def tick(self) -> None:
        """Once a second: drop what is old, refresh the gauges."""
        now_ms = self.clock.steady_ms()
        self.ledger.expire(now_ms)
        self.local.look()
        traffic = self.metrics.traffic
        traffic.subjects = self.ledger.subjects
        traffic.pending = self.ledger.pending
        traffic.policy_version = self.policies.now.version

    def remaining_ms(self, decision: Decision, sent_ms: float | None) -> float:
        """How much of a decision's throttle time is left now; see `gate.remaining_ms`."""
        return remaining_ms(decision, sent_ms, self.clock.steady_ms(), self._brokers_ms())

    def _note_wait(self, decision: Decision, ask: Ask | None) -> None:
        if not decision.subject or decision.shadow:
            if decision.shadow:
                self.metrics.shadow_decisions.inc()
            return
        quota = self.policies.quota_of_subject(decision.subject, decision.ts)
        if ask is None and decision.proxy == self.proxy_id and self.local.decides(quota):
            # Decided here, and noted then; more may have been since.
            return
        if decision.throttle_time_ms > 0:
            left_ms = self.remaining_ms(decision, None if ask is None else ask.sent_ms)
            # Of a subject without a quota nobody asks how long it must wait.
            if left_ms > 0 and quota is not None:
                self.ledger.postpone(decision.subject, self.clock.steady_ms() + left_ms, quota)
        elif not decision.late:
            # It was let through after all, so whoever waits may ask again.
            self.ledger.drop(decision.subject)
            self.questions.wake(decision.subject)

    def _decided(self, ask: Ask, decision: Decision) -> None:
        waited_ms = self.clock.steady_ms() - ask.sent_ms
        if not ask.id.endswith(PROBE_SUFFIX):
            # A probe may wait for the job's start; clients do not.
            self.metrics.decision_wait.observe(waited_ms / 1000)
        if decision.subject:
            self.metrics.decided(decision.subject, decision.tokens, decision.rate, decision.throttle_time_ms)
        on_decision, ask.on_decision = ask.on_decision, None
        if on_decision is not None:
            ask.answered = Answered.DECIDED
            on_decision(decision)
            # The broker may have been quicker than the decision.
            self.settle(ask)
            return
        if ask.subject and not ask.shadow:
            self.metrics.late_decisions.inc()
        self.settle(ask)

    def _put_question(
        self,
        ask: Ask,
        event: dict[str, Any],
        on_decision: Callable[[Decision], None],
        on_refused: Called | None,
    ) -> bool:
        """Send an event whose decision is waited for; False if that cannot be."""
        ask.on_decision, ask.on_refused = on_decision, on_refused
        if ask.strict:
            event["deadline_ms"] = self.settings.decision_timeout_ms
            event["on_late"] = OnLate.REJECT if ask.on_late_reject else OnLate.ALLOW
        if not self.ledger.add(ask):
            return False
        if not self.outgoing.send(event, home_of(ask), acked=self._watched(ask.id, None)):
            self.ledger.forget(ask)
            return False
        if not ask.local:
            self.local.asked(ask, event)
        return True

    def _charge(self, ask: Ask, why: str, counts: Mapping[str, int]) -> None:
        """Charge what was carried out, whatever the balance is."""
        charge = {**self._events.event(ask, None), "id": f"{ask.id}-{why}", "strict": False}
        self._events.put_items(charge, ask, counts, together=True)
        quota = self.policies.quota_of_subject(ask.subject, self._brokers_ms()) if ask.local else None
        if quota is not None and self.local.decides(quota):
            self.local.charge(ask, quota, charge)
        self.outgoing.send(charge, home_of(ask))

    def _send_decided(self, ask: Ask, event: Mapping[str, Any], on_acked: Acked | None) -> None:
        """Send the event of what was decided here; `on_acked` is told what came of it, in the loop."""
        self._unacknowledged[ask.id] = ask
        self.outgoing.send_soon(event, event["subject"], self._watched(ask.id, on_acked))

    def _watched(self, event_id: str, on_acked: Acked | None) -> Acknowledged:
        """What an event's acknowledgement is told to, in a thread."""

        def told(record_ms: int | None) -> None:
            self._unacknowledged.pop(event_id, None)
            if record_ms is not None:
                self.local.stands(event_id, record_ms)
            if on_acked is not None:
                on_acked(record_ms is not None)

        def from_thread(record_ms: int | None) -> None:
            self.in_loop(partial(told, record_ms))

        return from_thread

    def _note_decided(self, ask: Ask, quota: MutationQuota) -> None:
        """Remember of a decision made here who must wait, and show it."""
        decision = ask.decision
        assert decision is not None
        if not ask.dry_run:
            if decision.throttle_time_ms > 0:
                until_ms = ask.sent_ms + decision.throttle_time_ms
                self.ledger.postpone(ask.subject, until_ms, quota)
            elif ask.subject in self.ledger:
                self.ledger.drop(ask.subject)
                self.questions.wake(ask.subject)
        shown = ask.subject, decision.tokens, None, decision.throttle_time_ms
        self.outgoing.later(partial(self.metrics.decided, *shown))

    def _policies_changed(self, ts: int) -> None:
        self.local.book.policies_changed(ts)
        # Waits that were decided under the old quota end when the new one comes into force.
        self.call_at(ts, self.questions.wake_all)
