"""The quota side of an enforcer, without sockets: asks, remembers, corrects.

Connections bring requests here; decisions and policies come in by the feeds. All of it runs in one loop.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cachetools import TTLCache

from enforcer.core.clock import Clock
from enforcer.core.feeds.decisions import Decision
from enforcer.core.feeds.policies import Policies
from enforcer.core.gate import Verdict, judge
from enforcer.core.ledger import Answered, Ask, Ledger, correct
from enforcer.core.metrics import Metrics
from enforcer.core.questions.open_questions import OpenQuestions
from enforcer.core.questions.sizes import put_items
from enforcer.core.settings import OnLate, ProxySettings
from streaming.contract.errors import WeirError
from streaming.contract.events import ANONYMOUS
from streaming.contract.names import PROBE_SUFFIX, encode_name
from streaming.policy.policy_set import MutationQuota

logger = logging.getLogger(__name__)

PROBE_CLIENT_ID = "weir-probe"
_PROBE_API = "Probe"


class Sender(Protocol):
    """Where events go; see reports.Reports."""

    def send(self, event: Mapping[str, Any], key: str) -> bool:
        """Hand an event over; False if it was dropped."""
        ...


class Uncharged(WeirError):
    """A request that no event can hold: nobody could decide it, and nobody would be charged for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a request event says about its request.

    Attributes:
        user: principal.
        client_id: what the client calls itself.
        api: name of the API.
        api_version: its version.
        strict: can be rejected.
        validate_only: a dry run.
        items: name -> mutations, in the request's order.
    """

    user: str
    client_id: str
    api: str
    api_version: int
    strict: bool
    validate_only: bool
    items: Mapping[str, int]


class QuotaCoordinator:
    """Asks for decisions and acts on what is known.

    Args:
        proxy_id: name of this proxy.
        settings: time limits and bounds.
        metrics: counts.
        sender: takes events.
        clock: tells the time.
    """

    def __init__(
        self, proxy_id: str, settings: ProxySettings, metrics: Metrics, sender: Sender, clock: Clock
    ) -> None:
        self.proxy_id = proxy_id
        self.settings = settings
        self.metrics = metrics
        self.clock = clock
        self.policies = Policies(self._policies_changed, clock.wall_ms)
        self.ledger = Ledger(
            subjects_max=settings.subjects_max,
            pending_max=settings.pending_requests_max,
            late_max=settings.late_records_max,
            late_keep_ms=settings.late_record_ms,
        )
        self.call_at: Callable[[int, Callable[[], None]], object] = lambda _ts, _function: None
        """Calls a function at a wall-clock time; set by whoever owns the loop."""
        self._sender = sender
        self._probed: TTLCache[str, None] = TTLCache(
            settings.subjects_max, settings.mute_split_ms, clock.steady_ms
        )
        # The start time keeps the ids of a restarted proxy apart from those of the one before.
        self._id_head = f"{proxy_id}-{clock.wall_ms()}"
        self._count = 0
        self.questions = OpenQuestions(settings.open_questions_max, settings.pending_requests_max)

    def quota(self, user: str, client_id: str) -> MutationQuota | None:
        """The mutation quota that applies to a client now."""
        return self.policies.quota(user, client_id, self.clock.wall_ms())

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
            if probing and until_ms is not None:
                # One for all its connections: a hundred muted ones would be a way to go on.
                probing = quota.subject not in self._probed
                if probing:
                    self._probed[quota.subject] = None
        return judge(quota, until_ms, now_ms, strict=strict, probing=probing)

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
        ask = self._new_ask(asked, quota)
        ask.on_decision, ask.on_refused = on_decision, on_refused
        event = self._request_event(ask, asked)
        if asked.strict:
            event["deadline_ms"] = self.settings.decision_timeout_ms
            event["on_late"] = self.settings.on_late_decision
        if not self._put_items(event, ask, ask.items):
            raise Uncharged(f"{len(ask.items)} items are too many for one event")
        if not self.ledger.add(ask):
            return None
        if not self._sender.send(event, self._home(ask)):
            self.ledger.forget(ask)
            return None
        return ask

    def report(self, asked: Asked, quota: MutationQuota | None) -> Ask:
        """Send a request event that nobody waits for: no quota applies, or a shadow one."""
        ask = self._new_ask(asked, quota)
        ask.answered = Answered.ALLOWED
        event = self._request_event(ask, asked)
        # One that is too large would be refused under the quota in earnest: nothing is charged in shadow.
        if self._put_items(event, ask, ask.items) and self._sender.send(event, self._home(ask)):
            self.ledger.watch(ask)
        return ask

    def report_refused(self, asked: Asked, quota: MutationQuota) -> None:
        """Send the event of a request that was refused by its subject's not-before time."""
        ask = self._new_ask(asked, quota)
        event = self._request_event(ask, asked)
        event["answered"] = "not_before"
        if self._put_items(event, ask, ask.items, together=True):
            self._sender.send(event, self._home(ask))

    def refused(self, event_id: str) -> None:
        """Kafka will never take this event: whoever waits for its decision need not wait on."""
        ask = self.ledger.refused(event_id)
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
            refund = {
                "type": "refund",
                "id": self._next_id(),
                "proxy": self.proxy_id,
                "of": ask.id,
                "of_ts": ask.decision.ts,
                "user": ask.user,
                "client_id": ask.client_id,
                "subject": ask.subject,
            }
            self._put_items(refund, ask, correction.refund, together=True)
            self._sender.send(refund, self._home(ask))
            self.metrics.corrections.labels("refunded").inc(sum(correction.refund.values()))
            self.ledger.drop(ask.subject)
            self.questions.wake(ask.subject)
        if correction.charge:
            charge = {**self._request_event(ask, None), "id": f"{ask.id}-late", "strict": False}
            self._put_items(charge, ask, correction.charge, together=True)
            self._sender.send(charge, self._home(ask))
            self.metrics.corrections.labels("charged").inc(sum(correction.charge.values()))

    def take(self, decisions: list[Decision]) -> None:
        """Act on decisions read from Kafka: our own and those of other proxies."""
        for decision in decisions:
            ask = self.ledger.decide(decision) if decision.proxy == self.proxy_id else None
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
        traffic = self.metrics.traffic
        traffic.subjects = self.ledger.subjects
        traffic.pending = self.ledger.pending
        traffic.policy_version = self.policies.at(self.clock.wall_ms()).version

    def remaining_ms(self, decision: Decision, sent_ms: float | None) -> float:
        """How much of a decision's throttle time is left now.

        The event's time is a broker's; where that clock and ours disagree, what has surely passed here is
        the least, and nothing the most, that can be taken off.

        Args:
            sent_ms: when we sent the event, steady clock; None if another proxy did.
        """
        throttle_ms = float(decision.throttle_time_ms)
        by_wall_ms = decision.ts + throttle_ms - self.clock.wall_ms()
        if sent_ms is None:
            return max(0.0, min(throttle_ms, by_wall_ms))
        passed_ms = self.clock.steady_ms() - sent_ms
        return max(0.0, throttle_ms - passed_ms, min(throttle_ms, by_wall_ms))

    def _note_wait(self, decision: Decision, ask: Ask | None) -> None:
        if not decision.subject or decision.shadow:
            if decision.shadow:
                self.metrics.shadow_decisions.inc()
            return
        if decision.throttle_time_ms > 0:
            left_ms = self.remaining_ms(decision, None if ask is None else ask.sent_ms)
            quota = self.policies.quota_of_subject(decision.subject, decision.ts)
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

    def _policies_changed(self, ts: int) -> None:
        # Waits that were decided under the old quota end when the new one comes into force.
        self.call_at(ts, self.questions.wake_all)

    def _new_ask(self, asked: Asked, quota: MutationQuota | None) -> Ask:
        return Ask(
            # Not told by the client-id: anybody may call himself so.
            id=self._next_id() + (PROBE_SUFFIX if asked.api == _PROBE_API else ""),
            subject="" if quota is None else quota.subject,
            user=asked.user,
            client_id=asked.client_id,
            strict=asked.strict,
            dry_run=asked.validate_only,
            shadow=quota is not None and quota.shadow,
            on_late_reject=self.settings.on_late_decision == OnLate.REJECT,
            items=asked.items,
            sent_ms=self.clock.steady_ms(),
        )

    def _put_items(
        self, event: dict[str, Any], ask: Ask, counts: Mapping[str, int], *, together: bool = False
    ) -> bool:
        """Put items into an event of a request; False if none can hold them.

        Args:
            together: nothing is decided about each of them.
        """
        may_sum = together or not ask.strict or ask.dry_run or not ask.subject
        aliases = put_items(event, self._home(ask), counts, may_sum=may_sum)
        if aliases is None:
            self.metrics.events.labels("too_large").inc()
            return False
        if counts is ask.items:
            ask.aliases = aliases
        return True

    def _request_event(self, ask: Ask, asked: Asked | None) -> dict[str, Any]:
        event: dict[str, Any] = {
            "type": "request",
            "id": ask.id,
            "proxy": self.proxy_id,
            "user": ask.user,
            "client_id": ask.client_id,
        }
        if asked is not None:
            event |= {"api": asked.api, "api_version": asked.api_version}
        return event | {
            "strict": ask.strict,
            "validate_only": ask.dry_run,
            "subject": ask.subject,
        }

    def _home(self, ask: Ask) -> str:
        return ask.subject or f"user={encode_name(ask.user)}"

    def _next_id(self) -> str:
        self._count += 1
        return f"{self._id_head}-{self._count}"


def probe() -> Asked:
    """A request that costs nothing: its decision shows that events and decisions flow."""
    return Asked(
        user=ANONYMOUS,
        client_id=PROBE_CLIENT_ID,
        api=_PROBE_API,
        api_version=0,
        strict=True,
        validate_only=True,
        items={PROBE_CLIENT_ID: 0},
    )
