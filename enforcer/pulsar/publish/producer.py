"""One producer of a connection: its SENDs go on in order, each when its turn has come."""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from enforcer.laws.concurrency.limiter import Limiter
from enforcer.laws.shares.line_up import LineUp
from enforcer.pulsar.publish.pending_sends import PendingSend, PendingSends, Send
from enforcer.pulsar.publish.room import UnsentReason
from enforcer.wire.pulsar.names import Topic

if TYPE_CHECKING:
    from enforcer.pulsar.publish.part import PublishingPart

SEND_CLASS: Final = "produce"
"""What SENDs are to concurrency limits; never exempt (docs/protocol_notes.md 3.7)."""
SYSTEM: Final = "pulsar/system"
"""The namespace of Pulsar's own topics: transactions would hang if its SENDs waited for a slot."""
_AGAIN_MS: Final = 1_000.0
"""How often a SEND that waits for a slot looks by itself, also where the line for one has no room."""


class Producer:
    """Its SENDs wait behind each other, and only the first one stands in line for accounts and slots.

    Attributes:
        producer_id: of its connection.
        topic: full name of where it sends to.
        namespace: of that.
        asked_ms: when the client asked for it last.
        parked: the broker has it wait for its topic (exclusive access), for however long.
        ready: the broker lets it send.
        gone: it is closed, and only answers to what it sent are to come.
        unfinished: what it sent and was not answered.

    Args:
        owner: its connection.
        producer_id: see there.
        topic: where it sends to.
    """

    def __init__(self, owner: "PublishingPart", producer_id: int, topic: Topic) -> None:
        self.producer_id = producer_id
        self.topic = topic.name
        self.namespace = topic.namespace
        self.asked_ms = owner.link.now_ms()
        self.parked = self.ready = self.gone = False
        self.unfinished = PendingSends(owner.window)
        self._owner = owner
        self._wait_ms = float(owner.context.pulsar.publish_wait_ms)
        self._needs_slot = topic.namespace != SYSTEM
        self._line_up = LineUp(owner.context.meter.lines, self, self._wait_ms, 0.0)
        # What waits, all of it, and since when.
        self._queue: deque[tuple[Send, bytes, float]] = deque()
        self._closings: list[bytes] = []
        self._limiter: Limiter | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self._limited = False

    @property
    def busy(self) -> bool:
        """Whether something waits."""
        return bool(self._queue or self._closings)

    def take(self, send: Send, frame: bytes) -> bool:
        """A SEND; whether it goes on at once. If not it is kept, or, after a CLOSE_PRODUCER, of no use."""
        owner = self._owner
        if self._closings:
            owner.context.metrics.unsent_sends.labels(UnsentReason.CLOSED).inc()
            return False
        if not self._queue and self._passes(send):
            return True
        self._queue.append((send, frame, owner.link.now_ms()))
        owner.context.room.take(owner.held, len(frame))
        return False

    def close(self, frame: bytes) -> bool:
        """The client closes it; whether the frame goes on at once. If not it does behind what waits.

        No broker takes SENDs of a producer that it has not made: such do not hold the close up.
        """
        if not self.ready:
            self._forget(UnsentReason.CLOSED)
        if not self._queue:
            self.gone = True
            return True
        if not self._closings:
            self._close_timer = self._owner.link.call_later(self._wait_ms, self.give_up)
        self._closings.append(frame)
        self._owner.context.room.take(self._owner.held, len(frame))
        return False

    def give_up(self) -> None:
        """Close it now, if it is to be closed; what still waits is not sent.

        Its client takes that as failed as soon as it hears that the producer is closed.
        """
        if self._closings:
            self._forget(UnsentReason.CLOSED)
            self._close()

    def cut(self) -> bool:
        """Send nothing more, since its topic is blocked; whether it is still to be closed."""
        if self._closings:
            self.give_up()
            return False
        self.gone = True
        self._forget(UnsentReason.BLOCKED)
        return True

    def refused(self) -> None:
        """The broker refused it, closed it, or said nothing for long."""
        closings = self._take_closings()
        self.drop(UnsentReason.BROKER)
        for frame in closings:
            self._owner.link.to_broker(frame)

    def drop(self, why: UnsentReason) -> None:
        """It is no more."""
        self.gone = True
        self._take_closings()
        self._forget(why)
        self.unfinished.clear()
        if self._close_timer is not None:
            self._close_timer.cancel()

    def pause(self, wait_ms: float) -> None:
        """Look again then, or when woken (lines.Pause)."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._owner.link.call_later(wait_ms, self.drain)

    def wake(self) -> None:
        """It may be its turn (lines.Pause, lines.Waiter)."""
        if self._queue or self._closings:
            self.pause(0.0)

    def drain(self) -> None:
        """Send on what may go on."""
        owner, queue = self._owner, self._queue
        while queue:
            send, frame, since_ms = queue[0]
            if not self._passes(send):
                return
            queue.popleft()
            owner.link.to_broker(frame)
            owner.context.metrics.wait_seconds.observe((owner.link.now_ms() - since_ms) / 1000)
            owner.context.room.give(owner.held, len(frame))
        if self._closings:
            self._close()

    def _close(self) -> None:
        self.gone = True
        if self._close_timer is not None:
            self._close_timer.cancel()
        for frame in self._take_closings():
            self._owner.link.to_broker(frame)

    def _take_closings(self) -> list[bytes]:
        closings, self._closings = self._closings, []
        for frame in closings:
            self._owner.context.room.give(self._owner.held, len(frame))
        return closings

    def _forget(self, why: UnsentReason) -> None:
        owner = self._owner
        queue, self._queue = list(self._queue), deque()
        if queue:
            owner.context.metrics.unsent_sends.labels(why).inc(len(queue))
        self._line_up.close()
        self._follow(None)
        owner.window.leave(self)
        if self._timer is not None:
            self._timer.cancel()
        for _, frame, _ in queue:
            owner.context.room.give(owner.held, len(frame))

    def _passes(self, send: Send) -> bool:
        """Whether the SEND at the head goes on; if so it is charged, if not it stands in line."""
        owner = self._owner
        if not self.ready or not owner.window.admits(self):
            # Nobody shall wait for one that could not go on even if it were its turn.
            self._line_up.step_aside()
            self._follow(None)
            return False
        limiter = self._follow(owner.link.limiter)
        if limiter is not None and self._needs_slot and not limiter.admits(self):
            self._line_up.step_aside()
            limiter.wait(self)
            self.pause(_AGAIN_MS)
            return False
        now_ms = owner.link.now_ms()
        bill = owner.context.bill(owner.link.user, self.namespace, send.messages, send.size)
        if not self._line_up.admits(bill.owed, now_ms):
            self._follow(None)
            if not self._limited:
                self._limited = True
                owner.context.metrics.limit(self.namespace)
            return False
        self._limited = False
        charged = owner.context.charge(bill, now_ms)
        ticket = None
        if limiter is not None:
            ticket = limiter.begin(SEND_CLASS, by=self, holds=self._needs_slot)
        pending = PendingSend(send, bill, charged, now_ms, limiter, ticket)
        self.unfinished.add(pending)
        return True

    def _follow(self, limiter: Limiter | None) -> Limiter | None:
        """Stand in this limiter's line, if in any; returns it."""
        before = self._limiter
        if before is not None and before is not limiter:
            before.leave(self)
        self._limiter = limiter
        return limiter
