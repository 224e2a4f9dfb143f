"""Requests that are decided here, at once (docs/contract.md 3.1, "Where it is decided").

Nothing that a client was told may be forgotten: the event of the decision goes to Kafka beside the request,
and the answer waits until Kafka has it, for a limited time.
"""

from collections.abc import Collection
from functools import partial
from math import ceil

from enforcer.kafka.mutations.admission import Deciding, Strict
from enforcer.kafka.mutations.counting import charged_items
from enforcer.kafka.mutations.permissive import Permissive
from enforcer.laws.mutation.coordinator import Uncharged
from enforcer.laws.mutation.gate import explain
from enforcer.laws.mutation.ledger import Answered
from enforcer.laws.mutation.receipt import Receipt
from enforcer.wire.kafka.messages import NOTHING_KNOWN
from enforcer.wire.kafka.mutations import MutationApi


class _Receipted(Deciding):
    """Its answer waits until Kafka has the event of what was decided here."""

    _receipt: Receipt | None = None

    def gone(self) -> None:
        if self._receipt is not None:
            self._receipt.drop()
        super().gone()

    def _decide(self) -> bool:
        """Have it decided, or asked about; False: its event would be too large, and it was told so."""
        assert self.quota is not None
        coordinator = self.coordinator
        receipt = Receipt(
            self.link.call_later,
            coordinator.settings.event_ack_ms,
            coordinator.clock.steady_ms,
            coordinator.metrics.unacknowledged.inc,
        )
        try:
            self.ask = coordinator.decide(
                self._asked(), self.quota, receipt.arrived, self._on_decision, self._on_refused
            )
        except Uncharged:
            self._uncharged()
            return False
        if self.ask is not None and self.ask.answered is Answered.DECIDED:
            self._receipt, self.decision = receipt, self.ask.decision
        return True

    def _complete(self, response: bytes, left_ms: int) -> None:
        if self._receipt is None:
            super()._complete(response, left_ms)
        else:
            self._receipt.answer(partial(super()._complete, response, left_ms))


class AtOnce(_Receipted, Strict):
    """Decided here; only what was admitted reaches the broker.

    What lies between this proxy's part and the law's balance is asked about, as a strict request is.
    """

    _asks = False
    _waited = False
    _excess_ms = 0.0

    def start(self) -> None:
        if self._speaks_for_itself():
            self.items = charged_items(self.request, NOTHING_KNOWN, self.recent.default_partitions)
            self._counted()
        else:
            super().start()

    def _speaks_for_itself(self) -> bool:
        """Whether the decision is the same whatever the broker says of the topics, and costs nothing.

        Creations say how many partitions they make. Of a dry run that is admitted the look-up would only
        tell which of its topics are there already, as the broker's own check does.
        """
        return (
            self.request.validate_only
            and self.request.api is MutationApi.CREATE_TOPICS
            and self.quota is not None
            and self.coordinator.local.book.surely_admits(self.quota.subject)
        )

    def _counted(self) -> None:
        if self._dropped:
            return
        if not self.items or self.quota is None:
            # All of it is bound to fail, each with its own error: that is the broker's to say.
            self._carry_out(())
            return
        if self.request.validate_only:
            self.free.dry_runs.charge(self.quota, self._mutations())
        elif self._floods():
            return
        if not self._decide():
            return
        if self.ask is None:
            self._late()
        elif self._receipt is not None:
            self._decided()
        else:
            self.coordinator.questions.begin(self.quota.subject)
            self._in_turn = True
            self._timer = self.link.call_later(
                self.coordinator.settings.decision_timeout_ms, self._on_timeout
            )

    def _floods(self) -> bool:
        """Refuse it without a decision if its subject goes on too often while it must wait."""
        assert self.quota is not None
        self._waited = self.until_ms > self.coordinator.clock.steady_ms()
        if not self._waited:
            return False
        self._excess_ms = self.free.refusals.take(self.quota, len(self.items))
        if not self._excess_ms:
            return False
        self.coordinator.metrics.unreported.inc()
        self._count_outcome("not_before")
        self._carry_out([item.position for item, _ in self.items.values()])
        return True

    def _verdict(self, rejected: Collection[int]) -> tuple[int, str]:
        if not self._excess_ms:
            return super()._verdict(rejected)
        left_ms = max(1, ceil(self.until_ms - self.coordinator.clock.steady_ms()))
        return left_ms, explain(self.quota, None, left_ms)

    def _mute_ms(self, left_ms: int) -> int:
        # Its subject was told to wait before: it need only not go too far.
        return min(left_ms, ceil(self._excess_ms)) if self._waited else left_ms

    def _on_timeout(self) -> None:
        if self.ask is not None:
            self.coordinator.local.unanswered(self.ask)
        super()._on_timeout()

    def _rejects_late(self) -> bool:
        return True

    def _note_executed(self, response: bytes) -> None:
        if not self.request.validate_only:
            super()._note_executed(response)
        elif self.ask is not None:
            # Whatever the broker says of it, nothing was charged and nothing was done.
            self.ask.executed = {}
            self.coordinator.settle(self.ask)

    def _count_outcome(self, outcome: str) -> None:
        self.coordinator.outgoing.later(partial(super()._count_outcome, outcome))


class PermissiveAtOnce(_Receipted, Permissive):
    """An old version that knows no rejection: carried out and charged; then the client is made to wait.

    Until it is charged nobody knows that its subject must wait, so it has its subject's turn till then.
    """

    def _counted(self) -> None:
        if not self.items or self.quota is None:
            self._settled = True
            return
        if self.request.validate_only:
            self.free.dry_runs.charge(self.quota, self._mutations())
        if self._decide():
            assert self._receipt is not None, "only strict requests are asked about"
            self._decided()
