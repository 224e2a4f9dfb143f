"""The quota side of an enforcer, without sockets: asks, remembers, corrects.

Connections bring requests here; decisions and policies come in by the feeds. All of it runs in one loop.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from enforcer.core.clock import Clock
from enforcer.core.feeds.decisions import Decision
from enforcer.core.feeds.policies import Policies
from enforcer.core.gate import Verdict, judge
from enforcer.core.ledger import Answered, Ask, Ledger, correct
from enforcer.core.metrics import Metrics
from enforcer.core.settings import OnLate, ProxySettings
from streaming.contract.events import ANONYMOUS
from streaming.contract.names import encode_name
from streaming.policy.policy_set import MutationQuota

logger = logging.getLogger(__name__)

PROBE_CLIENT_ID = "weir-probe"


class Sender(Protocol):
    """Where events go; see reports.Reports."""

    def send(self, event: Mapping[str, Any], key: str) -> bool:
        """Hand an event over; False if it was dropped."""
        ...


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
        # The start time keeps the ids of a restarted proxy apart from those of the one before.
        self._id_head = f"{proxy_id}-{clock.wall_ms()}"
        self._count = 0
        self._waiting: dict[str, set[Callable[[], None]]] = {}

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
        return judge(quota, until_ms, now_ms, strict=strict, probing=probing)

    def ask(
        self, asked: Asked, quota: MutationQuota | None, on_decision: Callable[[Decision], None]
    ) -> Ask | None:
        """Send a request event and tell `on_decision` when it is decided.

        Returns:
            The question; None if it could not be sent or too many are open: treat it as late.
        """
        ask = self._new_ask(asked, quota)
        ask.on_decision = on_decision
        if not self.ledger.add(ask):
            return None
        if not self._send_request(ask, asked, waits=True):
            self.ledger.forget(ask)
            return None
        return ask

    def report(self, asked: Asked, quota: MutationQuota | None) -> Ask:
        """Send a request event that nobody waits for: no quota applies, or a shadow one."""
        ask = self._new_ask(asked, quota)
        ask.answered = Answered.ALLOWED
        if self._send_request(ask, asked, waits=False):
            self.ledger.watch(ask)
        return ask

    def report_refused(self, asked: Asked, quota: MutationQuota) -> None:
        """Send the event of a request that was refused by its subject's not-before time."""
        ask = self._new_ask(asked, quota)
        event = self._request_event(ask, asked)
        event["answered"] = "not_before"
        self._sender.send(event, self._home(ask))

    def give_up(self, ask: Ask, answered: Answered) -> None:
        """The client got its answer without the decision, or is gone; the decision will be reconciled."""
        ask.answered = answered
        ask.on_decision = None
        self.ledger.watch(ask)
        self.settle(ask)

    def settle(self, ask: Ask) -> None:
        """Send what corrects the balance, once both the decision and what the cluster did are known."""
        if ask.decision is None or ask.executed is None:
            return
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
                "items": _items(correction.refund),
            }
            self._sender.send(refund, self._home(ask))
            self.metrics.corrections.labels("refunded").inc(sum(correction.refund.values()))
            self.ledger.drop(ask.subject)
            self._wake(ask.subject)
        if correction.charge:
            charge = {
                **self._request_event(ask, None),
                "id": f"{ask.id}-late",
                "items": _items(correction.charge),
                "strict": False,
            }
            self._sender.send(charge, self._home(ask))
            self.metrics.corrections.labels("charged").inc(sum(correction.charge.values()))

    def take(self, decisions: list[Decision]) -> None:
        """Act on decisions read from Kafka: our own and those of other proxies."""
        for decision in decisions:
            ask = self.ledger.decide(decision) if decision.proxy == self.proxy_id else None
            # Before the client is told: its next request may come at once.
            self._note_wait(decision, ask)
            if ask is not None:
                self._decided(ask, decision)

    def wait_for(self, subject: str, wake: Callable[[], None]) -> None:
        """Call `wake` when the subject's not-before time is dropped."""
        self._waiting.setdefault(subject, set()).add(wake)

    def stop_waiting(self, subject: str, wake: Callable[[], None]) -> None:
        """Undo `wait_for`."""
        waiting = self._waiting.get(subject, set())
        waiting.discard(wake)
        if not waiting:
            self._waiting.pop(subject, None)

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
            if left_ms > 0:
                self.ledger.postpone(decision.subject, self.clock.steady_ms() + left_ms, quota)
        elif not decision.late:
            # It was let through after all, so whoever waits may ask again.
            self.ledger.drop(decision.subject)
            self._wake(decision.subject)

    def _decided(self, ask: Ask, decision: Decision) -> None:
        waited_ms = self.clock.steady_ms() - ask.sent_ms
        if ask.client_id != PROBE_CLIENT_ID:
            # A probe may wait for the job's start; clients do not.
            self.metrics.decision_wait.observe(waited_ms / 1000)
        if decision.subject:
            self.metrics.decided(decision.subject, decision.tokens, decision.rate, decision.throttle_time_ms)
        on_decision, ask.on_decision = ask.on_decision, None
        if on_decision is not None:
            ask.answered = Answered.DECIDED
            on_decision(decision)
            return
        if ask.subject and not ask.shadow:
            self.metrics.late_decisions.inc()
        self.settle(ask)

    def _policies_changed(self, ts: int) -> None:
        # Waits that were decided under the old quota end when the new one comes into force.
        self.call_at(ts, self._wake_all)

    def _wake_all(self) -> None:
        for subject in list(self._waiting):
            self._wake(subject)

    def _wake(self, subject: str) -> None:
        for wake in list(self._waiting.get(subject, ())):
            wake()

    def _new_ask(self, asked: Asked, quota: MutationQuota | None) -> Ask:
        return Ask(
            id=self._next_id(),
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

    def _send_request(self, ask: Ask, asked: Asked, *, waits: bool) -> bool:
        event = self._request_event(ask, asked)
        if waits and asked.strict:
            event["deadline_ms"] = self.settings.decision_timeout_ms
            event["on_late"] = self.settings.on_late_decision
        return self._sender.send(event, self._home(ask))

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
            "items": _items(ask.items),
            "subject": ask.subject,
        }

    def _home(self, ask: Ask) -> str:
        return ask.subject or f"user={encode_name(ask.user)}"

    def _next_id(self) -> str:
        self._count += 1
        return f"{self._id_head}-{self._count}"


def _items(counts: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"name": name, "mutations": count} for name, count in counts.items()]


def probe() -> Asked:
    """A request that costs nothing: its decision shows that events and decisions flow."""
    return Asked(
        user=ANONYMOUS,
        client_id=PROBE_CLIENT_ID,
        api="Probe",
        api_version=0,
        strict=True,
        validate_only=True,
        items={PROBE_CLIENT_ID: 0},
    )
