"""Dispatch to the consumers of one connection, under all that limits it (docs/pulsar/dispatch.md)."""

from collections.abc import Callable, Sized
from functools import partial
from typing import Any, Final

from enforcer.pulsar.delivery.consumer import Consumer
from enforcer.pulsar.delivery.context import DeliveryContext
from enforcer.pulsar.delivery.entry import arrived
from enforcer.pulsar.delivery.limits import Limits
from enforcer.pulsar.delivery.permit_questions import ConnectionQuestions
from enforcer.pulsar.link import Link
from enforcer.wire.pulsar.commands import TEXT_MAX, ServerError, command, error, own_request_id, parse
from enforcer.wire.pulsar.frames import (
    ACTIVE_CONSUMER_CHANGE,
    CLOSE_CONSUMER,
    CONSUMER_STATS_RESPONSE,
    ERROR,
    FLOW,
    MESSAGE,
    REACHED_END_OF_TOPIC,
    REDELIVER,
    SUBSCRIBE,
    SUCCESS,
    UNSUBSCRIBE,
)
from enforcer.wire.pulsar.names import BadName

HELD_TOTAL_BYTES: Final = 268_435_456
"""Messages held of all connections together; above it each one that adds to them is not read."""
CONSUMERS_MAX: Final = 20_000
"""Consumers of one connection; one that subscribes more ends."""
HELD_MESSAGE_BYTES: Final = 33_554_432
"""Messages for one connection that wait for a limit: an eighth of what all may have; beyond it its broker is
not read until half is gone."""

_UP: Final = frozenset({SUBSCRIBE, UNSUBSCRIBE, CLOSE_CONSUMER})
_UP_LIMITED: Final = _UP | {FLOW, REDELIVER}
_DOWN: Final = frozenset({SUCCESS, ERROR, CLOSE_CONSUMER, ACTIVE_CONSUMER_CHANGE})
_DOWN_LIMITED: Final = _DOWN | {MESSAGE, REACHED_END_OF_TOPIC, CONSUMER_STATS_RESPONSE}
_ALL_AGAIN_BYTES: Final = 4_096
"""A REDELIVER without ids is smaller; one with very many would take long to read."""
_SURE_GONE_MS: Final = 5_000.0
"""What a broker sent before it knew of a consumer's end has come by then."""
_FRAME_BYTES: Final = 200
"""What a frame takes beside its own bytes."""
_CONSUMER_BYTES: Final = 800
"""What a consumer takes at least, beside its names."""


class DeliveryPart:
    """The consumers of one connection (link.Part).

    FLOW and MESSAGE are seen only while something applies to one of them.

    Attributes:
        up, down: kinds that it sees.
        link: the connection.
        held: bytes of consumers' frames that it holds.

    Args:
        link: the connection.
        context: what all connections share.
    """

    def __init__(self, link: Link, context: DeliveryContext) -> None:
        self.link, self._context = link, context
        self.up, self.down = _UP, _DOWN
        self.held = 0
        self._broker = "pulsar-{}:{}".format(*link.broker)
        self._consumers: dict[int, Consumer] = {}
        # Requests under way that begin or end a consumer.
        self._beginning: dict[int, Consumer] = {}
        self._ending: dict[int, Consumer] = {}
        # Our own requests, and consumers that were over a moment ago, with the time.
        self._ours: set[int] = set()
        self._gone: dict[int, float] = {}
        self._kept_bytes = 0
        self._asking = ConnectionQuestions(link, context.metrics)
        self._full_from = 0
        self._take_up: dict[int, Callable[[bytes, Any], bytes | None]] = {
            SUBSCRIBE: self._subscribe,
            UNSUBSCRIBE: self._unsubscribe,
            FLOW: self._flow,
            REDELIVER: self._redeliver,
            CLOSE_CONSUMER: self._closed,
        }
        self._take_down: dict[int, Callable[[bytes, Any], bytes | None]] = {
            MESSAGE: self._message,
            SUCCESS: partial(self._answered, self._ending, self._beginning),
            ERROR: partial(self._answered, self._beginning, self._ending),
            CLOSE_CONSUMER: self._closed,
            ACTIVE_CONSUMER_CHANGE: self._active,
            REACHED_END_OF_TOPIC: self._in_order,
            CONSUMER_STATS_RESPONSE: self._asking.answered,
        }
        context.follow(self.look)

    @property
    def held_bytes(self) -> int:
        """See link.Part."""
        return self.held + self._kept_bytes

    def take_up(self, kind: int, frame: bytes) -> bytes | None:
        """See link.Part.

        Raises:
            BadFrame: it cannot be read.
        """
        if kind == REDELIVER and len(frame) > _ALL_AGAIN_BYTES:
            return frame
        return self._take_up[kind](frame, parse(frame))

    def take_down(self, kind: int, frame: bytes) -> bytes | None:
        """See link.Part.

        Raises:
            BadFrame: it cannot be read.
        """
        return self._take_down[kind](frame, parse(frame))

    def check(self, now_ms: float) -> None:
        """See link.Part."""
        self.holds()
        if self._asking:
            self._asking.check(now_ms, heard=not self.link.stalled)
        for number, since_ms in list(self._gone.items()):
            if self.link.stalled:
                # What it sent still stands in the socket.
                self._gone[number] = now_ms
            elif now_ms - since_ms > _SURE_GONE_MS:
                del self._gone[number]
        for requests in (self._beginning, self._ending):
            # One that its client gave up while it was kept back is never answered.
            for number in [number for number, consumer in requests.items() if consumer.closed]:
                del requests[number]
        if self.up is not _UP:
            self._asking.watch(self._consumers.values(), now_ms)
            self.look()

    def close(self) -> None:
        """See link.Part."""
        self._context.leave(self.look)
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()

    def look(self) -> None:
        """Follow what limits consumers."""
        for consumer in list(self._consumers.values()):
            if consumer.limits.look():
                self._follow(consumer)
        self._see()

    def keep(self, frames: int, size: int) -> None:
        """It holds so many frames, and bytes of them, more or less; see `holds`."""
        size += frames * _FRAME_BYTES
        self.held += size
        self._context.held += size
        self._context.held_frames += frames

    def holds(self, *, more: bool = False) -> None:
        """What it holds has become more, or less: too much stops reading the broker until half is gone."""
        if self._full_from:
            # What others held may be gone, too: then its own may wait for hours, as under a daily rate.
            room = max(self.held / HELD_MESSAGE_BYTES, self._context.held / HELD_TOTAL_BYTES) <= 0.5
            if room or self.held * 2 <= self._full_from:
                self._full_from = 0
                self.link.resume_broker(self)
        elif more and (self.held > HELD_MESSAGE_BYTES or self._context.held > HELD_TOTAL_BYTES):
            # Only as one comes: at other times the client may have got another frame of the broker's in part.
            self._full_from = self.held
            self._context.metrics.full.inc()
            self.link.pause_broker(self)

    def _follow(self, consumer: Consumer) -> None:
        """What limits a consumer has changed, or may have."""
        if not consumer.shaped:
            self._asking.forget(consumer)
        elif not consumer.known:
            self._asking.ask(consumer)
        if not consumer.limits.applies:
            consumer.uncounted()
        consumer.wake()

    def _see(self) -> None:
        """See FLOW and MESSAGE while they matter to a consumer."""
        asking = self._asking or self._asking.unanswered or self._gone
        limited = asking or any(map(self._applies, self._consumers.values()))
        up, down = (_UP_LIMITED, _DOWN_LIMITED) if limited else (_UP, _DOWN)
        if up is not self.up:
            self.up, self.down = up, down
            self.link.look_again()

    # From the client ---------------------------------------------------------------------------------------

    def _subscribe(self, frame: bytes, body: Any) -> bytes | None:
        number, context = body.consumer_id, self._context
        if number in self._consumers:
            # It may be that the broker has closed the one that it had, and takes this one for another topic.
            text = "a consumer of this number is there already"
            self.link.to_client(error(body.request_id, ServerError.SERVICE_NOT_READY, text))
            return None
        tables: tuple[Sized, ...] = self._consumers, self._beginning, self._ending, self._gone, self._ours
        if max(map(len, tables)) >= CONSUMERS_MAX:
            self.link.end("too_many_consumers")
            return None
        topic, subscription = body.topic, body.subscription
        try:
            if max(len(topic), len(subscription)) > TEXT_MAX:
                raise BadName(f"names have at most {TEXT_MAX} characters here")
            limits = Limits(context.laws, self._broker, topic, subscription, self.link.user)
        except BadName as wrong:
            # The broker might read it as a name after all, and nothing would limit it.
            self.link.to_client(error(body.request_id, ServerError.INVALID_TOPIC_NAME, str(wrong)))
            return None
        limits.look()
        if limits.exempt and limits.rates:
            context.metrics.exempt.labels(limits.exempt).inc()
        consumer = self._consumers[number] = Consumer(self, context, limits, number)
        self._kept_bytes += _CONSUMER_BYTES + limits.names_size
        self._beginning[body.request_id] = consumer
        self._gone.pop(number, None)
        if not limits.applies:
            consumer.uncounted()
        elif self.up is _UP:
            self._see()
        return frame

    def _unsubscribe(self, frame: bytes, body: Any) -> bytes:
        if (consumer := self._consumers.get(body.consumer_id)) is not None:
            self._ending[body.request_id] = consumer
            if len(self._ending) > CONSUMERS_MAX:
                self.link.end("too_many_consumers")
        return frame

    def _flow(self, frame: bytes, body: Any) -> bytes | None:
        consumer = self._consumers.get(body.consumer_id)
        if consumer is None or not self._applies(consumer):
            return frame
        return consumer.flow(frame, body.message_permits)

    def _redeliver(self, frame: bytes, body: Any) -> bytes:
        consumer = self._consumers.get(body.consumer_id)
        if consumer is not None and not body.message_ids:
            # All that was not acknowledged comes again, also what is held.
            consumer.drop_held()
        return frame

    def _closed(self, frame: bytes, body: Any) -> bytes:
        """From either side: what was not acknowledged comes again to whoever subscribes next."""
        if (consumer := self._consumers.get(body.consumer_id)) is not None:
            self._drop(consumer)
        return frame

    # From the broker ---------------------------------------------------------------------------------------

    def _message(self, frame: bytes, body: Any) -> bytes | None:
        consumer = self._consumers.get(body.consumer_id)
        if consumer is None:
            # It is over: nobody is charged, so nobody gets it; the broker sends it again.
            return None if body.consumer_id in self._gone else frame
        if not self._applies(consumer):
            return frame
        came = arrived(frame, body)
        if not came.readable:
            self._context.metrics.unreadable_messages.inc()
        return consumer.take(frame, came)

    def _answered(
        self, over: dict[int, Consumer], others: dict[int, Consumer], frame: bytes, body: Any
    ) -> bytes | None:
        """A request is carried out or refused: the consumer is over that it was to end, or to begin."""
        if body.request_id in self._ours:
            self._ours.discard(body.request_id)
            return None
        others.pop(body.request_id, None)
        if (consumer := over.pop(body.request_id, None)) is not None:
            self._end(consumer)
        return frame

    def _end(self, consumer: Consumer) -> None:
        """The broker has answered a request of the client's with this one's number, so there is no consumer.

        Unless the client has given another request the same number: so the broker closes what it may have.
        """
        if self._consumers.get(consumer.id) is not consumer:
            return
        self._drop(consumer)
        request_id = own_request_id()
        self._ours.add(request_id)
        self.link.to_broker(command(CLOSE_CONSUMER, consumer_id=consumer.id, request_id=request_id))

    def _active(self, frame: bytes, body: Any) -> bytes | None:
        consumer = self._consumers.get(body.consumer_id)
        if consumer is None:
            return frame
        consumer.active = body.is_active
        if body.is_active:
            consumer.wake()
        return consumer.in_order(frame)

    def _in_order(self, frame: bytes, body: Any) -> bytes | None:
        consumer = self._consumers.get(body.consumer_id)
        return frame if consumer is None else consumer.in_order(frame)

    def _applies(self, consumer: Consumer) -> bool:
        return consumer.limits.applies or consumer.busy

    def _drop(self, consumer: Consumer) -> None:
        del self._consumers[consumer.id]
        if consumer.limits.applies:
            self._gone[consumer.id] = self.link.now_ms()
        self._kept_bytes -= _CONSUMER_BYTES + consumer.limits.names_size
        self._asking.forget(consumer)
        consumer.close()
