"""Where the requests in flight of a connection count (docs/protocol_notes.md 3.7)."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from enforcer.core.settings import ProxySettings
from enforcer.kafka.part import Concern, Link, Part, Request, Slot
from enforcer.kafka.slots.flow import Flow
from enforcer.laws.concurrency.limiter import Limiter
from enforcer.wire.kafka.mutations import MUTATION_KEYS, TooManyItems, decode_request


class ConnectionAnswers(Protocol):
    """The answers of a connection (responses.Responses).

    Attributes:
        due: what the broker has to answer, in the order in which it was asked.
    """

    due: deque[Slot]


class Slots(Concern):
    """Concurrency limits of brokers. All requests count; of those that are read, it may refuse mutations."""

    keys = MUTATION_KEYS
    from_the_beginning = True

    def part(self, link: Link) -> Part:
        return link.slots


class SlotsPart(Part):
    """Where the requests in flight of a connection count, which may change while it is open.

    Attributes:
        flow: before the limiter of its broker; None: nowhere, as of most connections.

    Args:
        link: the connection.
        sent: its answers; `due` of these is counted.
        settings: see Flow.
        coming: see Flow.
    """

    def __init__(
        self, link: Link, sent: ConnectionAnswers, settings: ProxySettings, coming: Callable[[], Slot | None]
    ) -> None:
        self.flow: Flow | None = None
        self._link = link
        self._sent = sent
        self._coming = coming
        self._settings = settings

    def take(self, request: Request) -> bool:
        """Refuse mutations that find no slot: those are neither judged nor charged."""
        flow = self.flow
        if flow is None or not flow.refuses_mutations:
            return True
        try:
            asked = decode_request(request.frame, request.header, self._settings.max_items)
        except TooManyItems:
            return True
        if asked.strict:
            self._link.answer(request, flow.refuse_mutations(asked))
        return not asked.strict

    def count_by(self, limiter: Limiter | None) -> None:
        """From now on its requests in flight count here; None: nowhere (limits.ClientConnection)."""
        before, sent = self.flow, self._sent
        if limiter is (None if before is None else before.limiter):
            return
        self.flow = None
        if before is not None:
            before.close()
            # Whoever waited for the old one asks again.
            self._link.pacer.wake()
        if limiter is None:
            sent.due = deque(sent.due)
            return
        self.flow = Flow(limiter, self._link.pacer, sent.due, self._settings, self._coming)
        sent.due = self.flow.due

    def step_aside(self) -> None:
        if self.flow is not None:
            self.flow.step_aside()

    def waits(self, held: bool) -> bool:
        """Whether its next request waits for a slot and for nothing else, given whether it is held at all.

        If not, it has none to wait for: one that waits for something else, as for its account's debt or for
        the rest of its bytes, would keep a free slot from those behind it.
        """
        flow = self.flow
        if flow is None:
            return False
        if held and flow.waits:
            return True
        flow.step_aside()
        return False

    def forget(self) -> None:
        """The client takes no answers for now: those that the broker gives are not seen, however soon."""
        if self.flow is not None:
            self.flow.due.forget()

    def check(self) -> None:
        """Called once a second."""
        if self.flow is not None:
            self.flow.due.check()

    def close(self) -> None:
        if self.flow is not None:
            self.flow.close()
