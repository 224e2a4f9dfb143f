"""Requests of old versions, which know no rejection."""

from enforcer.kafka.mutations.admission import Deciding
from enforcer.laws.mutation.gate import explain
from enforcer.laws.mutation.ledger import Answered
from enforcer.wire.kafka.mutations import explain_throttle
from enforcer.wire.kafka.outcomes import patch_throttle


class Permissive(Deciding):
    """An old version that knows no rejection: carried out, then the client is made to wait."""

    _response: bytes | None = None
    _settled = False

    @property
    def waits_for_decision(self) -> bool:
        """The broker has carried it out."""
        return self._looked and self._response is not None

    def start(self) -> None:
        super().start()
        self._forwarded = self.link.forward(self.request.frame, self._answered)

    def gone(self) -> None:
        super().gone()
        if self.ask is not None and self.ask.answered is Answered.WAITING:
            self.coordinator.give_up(self.ask, Answered.ALLOWED)
        else:
            self._charge_stated()

    def _counted(self) -> None:
        if not self.items:
            self._settled = True
        elif not self._put_question():
            self._late()

    def _uncharged(self) -> None:
        # It is forwarded, and only a topic with a smaller bound than Kafka's own refuses a sum.
        self._late()

    def _decided(self) -> None:
        assert self.decision is not None
        self._count_outcome("throttle" if self.decision.throttle_time_ms > 0 else "allow")
        self._settle()

    def _late(self) -> None:
        self._count_outcome("late_allow")
        if self.ask is not None:
            self.coordinator.give_up(self.ask, Answered.ALLOWED)
        self._settle()

    def _settle(self) -> None:
        self._settled = True
        self._finish()

    def _answered(self, response: bytes) -> None:
        # First: what cannot be read ends the connection, and must not be there when the decision comes.
        self._note_executed(response)
        self._response = response
        self._finish()

    def _finish(self) -> None:
        if self._response is None or not self._settled:
            return
        response, left_ms = self._response, self._left_ms()
        if left_ms > 0:
            api, version = self.request.api, self.request.version
            response = patch_throttle(api, version, response, left_ms)
            response = explain_throttle(api, version, response, explain(self.quota, self.decision, left_ms))
        self._complete(response, left_ms)
