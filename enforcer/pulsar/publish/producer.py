"""One producer of a connection: its SENDs go on in order, each when its turn has come."""

import asyncio
from collections import deque
from typing import Final, NamedTuple

from enforcer.laws.concurrency.limiter import Limiter
from enforcer.laws.shares.line_up import LineUp
from enforcer.pulsar.link import Link
from enforcer.pulsar.publish.context import PublishContext
from enforcer.pulsar.publish.pending_sends import PendingSend, PendingSends, Send, Window
from enforcer.pulsar.publish.room import HeldBytes, UnsentReason
from enforcer.wire.pulsar.names import Topic

SEND_CLASS: Final = "produce"
"""What SENDs are to concurrency limits; never exempt (docs/protocol_notes.md 3.7)."""
SYSTEM: Final = "pulsar/system"
"""The namespace of Pulsar's own topics: transactions would hang if its SENDs waited for a slot."""
_AGAIN_MS: Final = 1_000.0
"""How often a SEND that waits for a slot looks by itself, also where the line for one has no room."""


class Lane(NamedTuple):
    """What the producers of one connection share.

    Attributes:
        link: the connection.
        context: what all connections share.
        window: how much may be unfinished.
        held: what waits.
    """

    link: Link
    context: PublishContext
    window: Window
    held: HeldBytes


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
        lane: of its connection.
        producer_id: see there.
        topic: where it sends to.
    """

    def __init__(self, lane: Lane, producer_id: int, topic: Topic) -> None:
        self.producer_id = producer_id
        self.topic = topic.name
        self.namespace = topic.namespace
        self.asked_ms = lane.link.now_ms()
        self.parked = self.ready = self.gone = False
        self.unfinished = PendingSends(lane.window)
        self._lane = lane
        self._wait_ms = float(lane.context.pulsar.publish_wait_ms)
        self._needs_slot = topic.namespace != SYSTEM
        self._line_up = LineUp(lane.context.meter.lines, self, self._wait_ms, 0.0)
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
        lane = self._lane
        if self._closings:
            lane.context.metrics.unsent_sends.labels(UnsentReason.CLOSED).inc()
            return False
        if not self._queue and self._passes(send):
            return True
        self._queue.append((send, frame, lane.link.now_ms()))
        lane.context.room.take(lane.held, len(frame))
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
            self._close_timer = self._lane.link.call_later(self._wait_ms, self.give_up)
        self._closings.append(frame)
        self._lane.context.room.take(self._lane.held, len(frame))
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
            self._lane.link.to_broker(frame)

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
        self._timer = self._lane.link.call_later(wait_ms, self.drain)

    def wake(self) -> None:
        """It may be its turn (lines.Pause, lines.Waiter)."""
        if self._queue or self._closings:
            self.pause(0.0)

    def drain(self) -> None:
        """Send on what may go on."""
        lane, queue = self._lane, self._queue
        while queue:
            send, frame, since_ms = queue[0]
            if not self._passes(send):
                return
            queue.popleft()
            lane.link.to_broker(frame)
            lane.context.metrics.wait_seconds.observe((lane.link.now_ms() - since_ms) / 1000)
            lane.context.room.give(lane.held, len(frame))
        if self._closings:
            self._close()

    def _close(self) -> None:
        self.gone = True
        if self._close_timer is not None:
            self._close_timer.cancel()
        for frame in self._take_closings():
            self._lane.link.to_broker(frame)

    def _take_closings(self) -> list[bytes]:
        closings, self._closings = self._closings, []
        for frame in closings:
            self._lane.context.room.give(self._lane.held, len(frame))
        return closings

    def _forget(self, why: UnsentReason) -> None:
        lane = self._lane
        queue, self._queue = list(self._queue), deque()
        if queue:
            lane.context.metrics.unsent_sends.labels(why).inc(len(queue))
        self._line_up.close()
        self._follow(None)
        lane.window.leave(self)
        if self._timer is not None:
            self._timer.cancel()
        for _, frame, _ in queue:
            lane.context.room.give(lane.held, len(frame))

    def _passes(self, send: Send) -> bool:
        """Whether the SEND at the head goes on; if so it is charged, if not it stands in line."""
        lane = self._lane
        if not self.ready or not lane.window.admits(self):
            # Nobody shall wait for one that could not go on even if it were its turn.
            self._line_up.step_aside()
            self._follow(None)
            return False
        limiter = self._follow(lane.link.limiter)
        if limiter is not None and self._needs_slot and not limiter.admits(self):
            self._line_up.step_aside()
            limiter.wait(self)
            self.pause(_AGAIN_MS)
            return False
        now_ms = lane.link.now_ms()
        bill = lane.context.bill(lane.link.user, self.namespace, send.messages, send.size)
        if not self._line_up.admits(bill.owed, now_ms):
            self._follow(None)
            if not self._limited:
                self._limited = True
                lane.context.metrics.limit(self.namespace)
            return False
        self._limited = False
        charged = lane.context.charge(bill, now_ms)
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
