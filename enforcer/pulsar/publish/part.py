"""SENDs under limits of groups, byte rates and concurrency (docs/pulsar/publishing.md).

What may not go on yet waits here, in a queue for each producer, while the connection is read on, so that its
other producers, its consumers and their acks are not touched. No SEND is refused, and none overtakes another
one of its producer. Producers whose topic is blocked are closed, and not made (producer_closures).
"""

from functools import partial
from typing import Any, Final

from enforcer.core import bounds
from enforcer.core.account import PUBLISH
from enforcer.laws.concurrency.limiter import Limiter
from enforcer.pulsar.link import Link
from enforcer.pulsar.publish.context import PublishContext
from enforcer.pulsar.publish.pending_sends import Window, read_send
from enforcer.pulsar.publish.producer import Producer
from enforcer.pulsar.publish.producer_closures import ProducerClosures
from enforcer.pulsar.publish.room import HeldBytes, UnsentReason
from enforcer.wire.pulsar.commands import TEXT_MAX, ServerError, error, parse
from enforcer.wire.pulsar.frames import (
    CLOSE_PRODUCER,
    ERROR,
    PRODUCER,
    PRODUCER_SUCCESS,
    SEND,
    SEND_ERROR,
    SEND_RECEIPT,
    SUCCESS,
    BadFrame,
    Reason,
)
from enforcer.wire.pulsar.names import BadName, read_topic

PENDING_SENDS_MAX: Final = 1_000
"""Limited SENDs of one connection without a receipt, as many as a broker reads
(maxPendingPublishRequestsPerConnection)."""
PRODUCERS_MAX: Final = 10_000
"""Producers of one connection; further ones are refused (NotAllowed)."""

_UP: Final = frozenset({PRODUCER, CLOSE_PRODUCER})
_DOWN: Final = frozenset({PRODUCER_SUCCESS, ERROR, CLOSE_PRODUCER})
_ANSWERS: Final = frozenset({SEND_RECEIPT, SEND_ERROR})
_DONE: Final = frozenset({SUCCESS, ERROR})
_GRACE_MS: Final = 5_000.0
"""After the deadline of slots: what nobody answers is found by the limiter first."""
_ASKED_MS: Final = 120_000.0
"""After so long a PRODUCER is not answered any more; clients ask again after 30 s."""
_SWEEP_MS: Final = 10_000.0
"""How often what is over is forgotten."""
_PRODUCER_BYTES: Final = 2_048
"""What a producer takes."""


class PublishingPart:
    """The part of one connection that looks after its producers (link.Part).

    Which producers there are is followed always, and SENDs and their answers are looked at only while
    somebody is charged for them or slots are counted, or a producer is closed for a block. Else they pass as
    bytes.

    Attributes:
        up: kinds from the client that it wants to see.
        down: the same from the broker.
        window: how many of its SENDs may be unfinished.
        held: what waits.

    Args:
        link: the connection.
        context: what all connections share.
    """

    def __init__(self, link: Link, context: PublishContext) -> None:
        self.up, self.down = _UP, _DOWN
        self.link = link
        self.context = context
        self.held = HeldBytes(partial(link.pause, self), partial(link.resume, self))
        self.window = Window(PENDING_SENDS_MAX)
        self._exempt = frozenset(context.pulsar.exempt_users)
        self._by_id: dict[int, Producer] = {}
        # By request, until it is answered; and the last one by the producer's own id.
        self._asked: dict[int, Producer] = {}
        self._coming: dict[int, Producer] = {}
        # Requests that came though there was a producer of that id.
        self._doubled: set[int] = set()
        # What decides whether it is limited, and whether it is.
        self._state: tuple[int, Limiter | None, str] | None = None
        self._limited = False
        # SENDs and their answers are looked at.
        self._looks = False
        self._shutting = ProducerClosures(link, context.closer, self._set_kinds)
        self._sweep_ms = 0.0

    @property
    def held_bytes(self) -> int:
        """What waits, and producers at that: there may be very many of them."""
        producers = len(self._asked) + len(self._by_id) + len(self._shutting)
        return self.held.size + _PRODUCER_BYTES * producers

    def take_up(self, kind: int, frame: bytes) -> bytes | None:
        """See link.Part.

        Raises:
            BadFrame: it cannot be read, or no client of Pulsar's would send it.
        """
        if kind == SEND:
            return self._take(frame)
        body = parse(frame)
        if kind == PRODUCER:
            return self._ask(body, frame)
        return None if self._shutting.closes(body) else self._close_one(body.producer_id, frame)

    def take_down(self, kind: int, frame: bytes) -> bytes | None:
        """See link.Part.

        Raises:
            BadFrame: it cannot be read, or answers what was not asked.
        """
        body = parse(frame)
        if kind in _ANSWERS:
            self._answer(kind, body)
            return frame
        if kind == PRODUCER_SUCCESS:
            self._succeed(body)
        elif kind in _DONE:
            if self._shutting.answered(body.request_id):
                return None
            if kind == ERROR:
                self._fail(body.request_id)
        else:
            self._shutting.broker_closes(body.producer_id)
            producer = self._by_id.pop(body.producer_id, None)
            if producer is not None:
                producer.refused()
        return frame

    def check(self, now_ms: float) -> None:
        """See link.Part."""
        self._shutting.look(self._by_id.values(), now_ms)
        self._watch()
        if self._looks:
            self._look_at_unfinished(now_ms)
        if now_ms >= self._sweep_ms:
            self._sweep_ms = now_ms + _SWEEP_MS
            self._sweep(now_ms)

    def close(self) -> None:
        """See link.Part."""
        for producer in self._producers():
            producer.drop(UnsentReason.CONNECTION)

    def _take(self, frame: bytes) -> bytes | None:
        """A SEND of the client's."""
        if self._shutting and self._shutting.drops(parse(frame).producer_id):
            self.context.metrics.unsent_sends.labels(UnsentReason.BLOCKED).inc()
            return None
        if not self._looks:
            return frame
        send = read_send(frame)
        producer = self._find(send.producer_id)
        # One that is not known the broker does not know either.
        return frame if producer is None or producer.take(send, frame) else None

    def _ask(self, body: Any, frame: bytes) -> bytes | None:
        """The client asks for a producer."""
        try:
            if len(body.topic) > TEXT_MAX:
                raise BadName(f"names of topics have at most {TEXT_MAX} characters here")
            topic = read_topic(body.topic)
        except BadName as wrong:
            # The broker might read it as a name after all, and nobody would be charged.
            self.link.to_client(error(body.request_id, ServerError.INVALID_TOPIC_NAME, str(wrong)))
            return None
        if body.request_id in self._asked:
            raise BadFrame(Reason.UNEXPECTED)
        blocked = self._shutting.refusal(body.producer_id, topic.name)
        if blocked is not None:
            self.link.to_client(error(body.request_id, *blocked))
            return None
        if len(self._asked) + len(self._by_id) >= PRODUCERS_MAX:
            text = f"a connection may have {PRODUCERS_MAX} producers"
            self.link.to_client(error(body.request_id, ServerError.NOT_ALLOWED, text))
            return None
        producer = self._by_id.get(body.producer_id)
        if producer is not None:
            producer.give_up()
        if producer is not None and not producer.gone:
            # The broker keeps to the one that it has, whatever this one asks for.
            self._doubled.add(body.request_id)
            producer.asked_ms = self.link.now_ms()
        else:
            producer = self._coming[body.producer_id] = Producer(self, body.producer_id, topic)
        self._asked[body.request_id] = producer
        if not self._limited and self._limits(topic.namespace):
            self._limited = True
            self._watch()
        return frame

    def _succeed(self, body: Any) -> None:
        """The broker has made a producer, or has it wait."""
        producer = self._asked.get(body.request_id)
        if producer is None:
            # A request id that was used twice: it is not known any more what belongs to whom.
            raise BadFrame(Reason.UNEXPECTED)
        if body.HasField("producer_ready") and not body.producer_ready:
            producer.parked = True
            return
        del self._asked[body.request_id]
        if body.request_id in self._doubled:
            self._doubled.discard(body.request_id)
            if producer.gone:
                # The broker has closed that one meanwhile, and made this one for whatever topic it asked for.
                raise BadFrame(Reason.UNEXPECTED)
        self._came(producer)
        standing = self._by_id.get(producer.producer_id)
        if standing is not None and not standing.gone:
            if standing is not producer:
                producer.refused()
            return
        if standing is not None:
            standing.unfinished.clear()
        if not producer.gone:
            self._by_id[producer.producer_id] = producer
            producer.ready = True
            producer.wake()
            self._shutting.came(producer)

    def _fail(self, request_id: int) -> None:
        """The broker refused a request, which may be for a producer."""
        producer = self._asked.pop(request_id, None)
        self._doubled.discard(request_id)
        if producer is not None and not producer.ready:
            self._came(producer)
            producer.refused()

    def _came(self, producer: Producer) -> None:
        """It is waited for no more."""
        if self._coming.get(producer.producer_id) is producer:
            del self._coming[producer.producer_id]

    def _close_one(self, producer_id: int, frame: bytes) -> bytes | None:
        """The client closes a producer."""
        producer = self._find(producer_id)
        if producer is not None and not producer.close(frame):
            return None
        self._coming.pop(producer_id, None)
        return frame

    def _find(self, producer_id: int) -> Producer | None:
        """The producer that is called so now, or the one that will be."""
        producer = self._by_id.get(producer_id)
        return self._coming.get(producer_id) if producer is None or producer.gone else producer

    def _answer(self, kind: int, body: Any) -> None:
        """The broker has done with a SEND."""
        producer = self._by_id.get(body.producer_id)
        if producer is None:
            return
        sure = False
        if kind == SEND_RECEIPT:
            pending = producer.unfinished.take(body.sequence_id)
        else:
            pending, sure = producer.unfinished.take_refused(body.sequence_id)
        if pending is None:
            return
        pending.answered()
        if sure:
            send = pending.send
            pending.bill.refund(PUBLISH, producer.namespace, send.messages, send.size, pending.charged)

    def _sweep(self, now_ms: float) -> None:
        """Forget producers that are closed, and requests that nobody answers."""
        for producer_id, producer in list(self._by_id.items()):
            if producer.gone and not producer.unfinished:
                del self._by_id[producer_id]
                # It may have been the only one that is limited.
                self._state = None
        for request_id, producer in list(self._asked.items()):
            if now_ms - producer.asked_ms >= _ASKED_MS and (producer.gone or not producer.parked):
                self._fail(request_id)

    def _look_at_unfinished(self, now_ms: float) -> None:
        """What is not answered for long never will be, and while the broker is not read no answer is seen."""
        late_ms = now_ms - bounds.SLOT_DEADLINE_MS - _GRACE_MS
        stalled = self.link.stalled
        for producer in self._by_id.values():
            producer.unfinished.expire(late_ms)
            if stalled:
                # A client whose receipts are not read keeps no slot by that, and makes no broker look slow.
                producer.unfinished.free()

    def _watch(self) -> None:
        """Look at SENDs if they are limited, or some wait."""
        link = self.link
        state = (self.context.meter.generation, link.limiter, link.user)
        if state != self._state:
            self._state = state
            self._limited = any(map(self._limits, {each.namespace for each in self._producers()}))
            for producer in self._busy():
                # Whom they wait for may be another one now, or nobody.
                producer.wake()
        if self._limited != self._looks and (self._limited or not self._busy()):
            self._looks = self._limited
            for producer in () if self._looks else self._by_id.values():
                producer.unfinished.clear()
            self._set_kinds()

    def _set_kinds(self) -> None:
        """Tell the link what is to be seen now, if that is something else."""
        shuts = bool(self._shutting)
        up = _UP | {SEND} if self._looks or shuts else _UP
        down = _DOWN | (_ANSWERS if self._looks else set()) | (_DONE if shuts else set())
        if (up, down) != (self.up, self.down):
            self.up, self.down = up, down
            self.link.look_again()

    def _limits(self, namespace: str) -> bool:
        """Whether SENDs to topics of a namespace are charged or counted."""
        link, context = self.link, self.context
        if link.user in self._exempt:
            return False
        if link.limiter is not None or context.of_user(link.user) is not None:
            return True
        return context.of_namespace(namespace) is not None

    def _producers(self) -> set[Producer]:
        return {*self._by_id.values(), *self._asked.values()}

    def _busy(self) -> list[Producer]:
        return [producer for producer in self._producers() if producer.busy]
