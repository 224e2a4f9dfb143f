"""Sends events to Kafka without ever making the traffic wait."""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import orjson
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer

from enforcer.core.metrics import Metrics
from streaming.columns.packed import CONTENT_TYPE, HEADER
from streaming.columns.sent import SENT_HEADER, STAMP_NAME_BYTES, stamps
from streaming.kafka_io.writer import Lasting, connected, flushed, let_go

EVENTS_MAX: Final = 20_000
"""Events waiting to be sent, twice the requests that may wait; further ones are dropped and counted."""
EVENT_TIMEOUT_MS: Final = 60_000
"""An event that could not be sent so long is dropped."""

logger = logging.getLogger(__name__)

Acknowledged = Callable[[int | None], object]
"""Told, in a thread, the time that its broker gave an event, ms; None: Kafka will never have it."""
_QUEUE_KB = 131_072
"""128 MiB of events that wait to be sent; a further one is dropped, as beyond their number."""


class Reports:
    """The producer of our events.

    Args:
        properties: librdkafka properties of the connection, `bootstrap.servers` among them.
        topic: where requests go, `weir.requests`.
        events_max: bound on events waiting to be sent; a further one is dropped and counted.
        event_timeout_ms: an event that could not be sent so long is dropped and counted.
        metrics: counts what was sent, dropped and failed.
        refused: told, in a thread, the id of an event that Kafka will never take: it is too large for its
            topic.
        learn: told, in a thread, a record's time by its broker, ms, and when we heard of it, steady ms.
        connect: makes the producer; tests put another one in.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        topic: str,
        *,
        events_max: int = EVENTS_MAX,
        event_timeout_ms: int = EVENT_TIMEOUT_MS,
        metrics: Metrics,
        refused: Callable[[str], None],
        learn: Callable[[int, float], None],
        connect: Callable[[Mapping[str, Any], Mapping[str, Any]], Producer] = connected,
    ) -> None:
        self._properties = properties
        self._own = {
            "queue.buffering.max.messages": events_max,
            # Each may be large, and many wait while Kafka takes none.
            "queue.buffering.max.kbytes": _QUEUE_KB,
            "message.timeout.ms": event_timeout_ms,
            "topic.metadata.refresh.fast.interval.ms": 250,
            # Both, as the library takes no least wait of the settings that is above this longest one.
            "reconnect.backoff.ms": 100,
            "reconnect.backoff.max.ms": 1_000,
        }
        self._topic = topic
        self._events_max = events_max
        # No more bytes could wait; until one that waited has left.
        self._crowded = False
        self._metrics = metrics
        self._connect = connect
        self._refused, self._learn = refused, learn
        self._lasting: Lasting | None = None
        self._stamp = stamps(os.urandom(STAMP_NAME_BYTES))
        # A record with a lower number behind one with a higher one would be a copy.
        self._in_turn = threading.Lock()

    def start(self) -> None:
        """Connect, in the background."""
        self._lasting = Lasting(partial(self._connect, self._properties, self._own), "event producer")

    def send(
        self, event: Mapping[str, Any], key: str, topic: str | None = None, acked: Acknowledged | None = None
    ) -> bool:
        """Hand one event over; False if it was dropped because too many wait.

        Args:
            event: the event, docs/contract.md 3.
            key: its routing key: the quota entity.
            topic: where it goes, if it is no request.
            acked: told what came of it, if it was not dropped.
        """
        name = str(event.get("id", ""))
        return self._produce(topic or self._topic, key, orjson.dumps(event), (), name, acked)

    def send_first(self, event: Mapping[str, Any], key: str, topic: str, acked: Acknowledged) -> bool:
        """As `send`, before `start`: at once, maybe twice, and what is not sent within a second is no loss.

        A producer that writes once only waits half a second after it has connected to be told its id.
        """
        hasty = self._connect(self._properties, {**self._own, "enable.idempotence": False})

        def told(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self._done("", acked, None, message)
            else:
                acked(None)

        hasty.produce(topic, value=orjson.dumps(event), key=key.encode(), headers=[], on_delivery=told)
        threading.Thread(target=let_go, args=(hasty,), name="first event", daemon=True).start()
        return True

    def room(self) -> bool:
        """Whether one more event can wait to be sent; after a dropped one, once another has left."""
        lasting = self._lasting
        return lasting is not None and not self._crowded and len(lasting.producer) < self._events_max

    def send_packed(self, value: bytes, key: str, topic: str) -> bool:
        """Hand a packed record over, as `send` an event."""
        return self._produce(topic, key, value, ((HEADER, CONTENT_TYPE),), "", None)

    def _produce(
        self,
        topic: str,
        key: str,
        value: bytes,
        headers: tuple[tuple[str, str | bytes], ...],
        event_id: str,
        acked: Acknowledged | None,
    ) -> bool:
        if self._lasting is None:
            self._metrics.events.labels("dropped").inc()
            return False
        try:
            with self._in_turn:
                self._lasting.producer.produce(
                    topic,
                    value=value,
                    key=key.encode(),
                    headers=[*headers, (SENT_HEADER, self._stamp())],
                    on_delivery=partial(self._done, event_id, acked),
                )
        except (BufferError, KafkaException) as refused:
            self._crowded = self._crowded or isinstance(refused, BufferError)
            self._metrics.events.labels("dropped").inc()
            return False
        return True

    def stop(self, limit_s: float) -> None:
        """Send what waits, for at most `limit_s`; what is left then is counted as failed."""
        if self._lasting is None:
            return
        self._lasting.stop()
        left = flushed(self._lasting.producer, limit_s)
        if left:
            self._metrics.events.labels("failed").inc(left)
            logger.warning("%d events were not sent before the stop", left)

    def _done(
        self, event_id: str, acked: Acknowledged | None, error: KafkaError | None, message: Message
    ) -> None:
        """Delivery report, in the polling thread."""
        self._crowded = False
        kind, record_ms = (0, 0) if error is not None else message.timestamp()
        too_large = error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE
        if too_large:
            # Before its acknowledgement: who is told of both knows by then that it was not lost.
            self._refused(event_id)
        if acked is not None:
            # First: an answer waits for it.
            acked(record_ms if error is None else None)
        if kind == TIMESTAMP_LOG_APPEND_TIME:
            self._learn(record_ms, time.monotonic() * 1000)
        if too_large:
            logger.warning("an event was refused: its topic takes no records of 1 MB (max.message.bytes)")
        result = "sent" if error is None else "too_large" if too_large else "failed"
        self._metrics.events.labels(result).inc()
