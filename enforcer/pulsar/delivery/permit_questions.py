"""Asks a broker for a consumer's permits: as a limit begins while it is served, and when nothing comes.

What passed before a limit was not counted, so only the broker knows. And a broker may count otherwise than we
do: some versions take a permit for an entry that they then do not send. Messages that were on their way as it
answered are not in its answer or are in it twice, so it is asked until two answers say the same and nothing
came between. Without permits a broker soon has nothing more to send.
"""

from collections.abc import Iterable
from typing import Any, Final

from enforcer.pulsar.delivery.consumer import Consumer
from enforcer.pulsar.delivery.context import DeliveryMetrics
from enforcer.pulsar.link import Link
from enforcer.wire.pulsar.commands import command, own_request_id
from enforcer.wire.pulsar.frames import CONSUMER_STATS

PERMIT_ANSWER_MS: Final = 5_000
"""So long a broker may take to say how many permits a consumer has, when a limit begins while it reads."""

_AGAIN_MS: Final = 50.0
_ASKED_MAX: Final = 40
"""So often; then the last answer counts. One that is too low by some lets some more come, which are held."""
_QUIET_MS: Final = 2_000.0
"""So long nothing comes for permits that a broker should have before it is asked; each time twice as long."""
_QUIET_MAX_MS: Final = 30_000.0
"""But no longer: so often, as often as keep-alives, a broker is asked for who has read all."""
_APART_MS: Final = 1.0
"""Of many that fell silent at once each is asked for so much later than the one before."""
_SIGN: Final = 2**63


class _Question:
    """One consumer that is asked for."""

    __slots__ = ("consumer", "moves", "number", "request_id", "said", "since_ms")

    def __init__(self, consumer: Consumer, now_ms: float) -> None:
        self.consumer = consumer
        self.since_ms = now_ms
        self.number = self.request_id = 0
        self.moves = consumer.permits.moves
        self.said: int | None = None


class ConnectionQuestions:
    """The questions of one connection.

    Attributes:
        unanswered: those whose answer has not come, whoever may still wait for it: no client takes it.

    Args:
        link: the connection.
        metrics: counts answers.
    """

    def __init__(self, link: Link, metrics: DeliveryMetrics) -> None:
        self._link, self._metrics = link, metrics
        self._first = self._next = own_request_id()
        self._open: dict[int, _Question] = {}
        self._waiting: dict[Consumer, _Question] = {}
        self.unanswered = 0
        # Consumers for which nothing comes: what had moved by then, when to ask, and the pause before that.
        self._quiet: dict[Consumer, tuple[int, float, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def ask(self, consumer: Consumer) -> None:
        """Ask for one, unless that is being done."""
        if consumer not in self._waiting:
            question = self._waiting[consumer] = _Question(consumer, self._link.now_ms())
            self._send(question)

    def forget(self, consumer: Consumer) -> None:
        """It is gone, or nothing limits it."""
        self._quiet.pop(consumer, None)
        self._drop(consumer)

    def watch(self, consumers: Iterable[Consumer], now_ms: float) -> None:
        """Once a second: ask for those whose broker should have permits and sends nothing."""
        quiet: dict[Consumer, tuple[int, float, float]] = {}
        for consumer in consumers:
            if not consumer.awaits:
                continue
            moves, at_ms, pause_ms = self._quiet.get(consumer, (-1, 0.0, 0.0))
            apart_ms = len(quiet) * _APART_MS
            if moves != consumer.permits.moves:
                moves, pause_ms = consumer.permits.moves, _QUIET_MS
                at_ms = now_ms + pause_ms + apart_ms
            elif now_ms >= at_ms:
                self.ask(consumer)
                pause_ms = min(2 * pause_ms, _QUIET_MAX_MS)
                at_ms = now_ms + pause_ms + apart_ms
            quiet[consumer] = moves, at_ms, pause_ms
        self._quiet = quiet

    def answered(self, frame: bytes, body: Any) -> bytes | None:
        """A CONSUMER_STATS_RESPONSE; the frame if it is the client's."""
        if not self._first <= body.request_id < self._next:
            return frame
        self.unanswered -= 1
        question = self._open.pop(body.request_id, None)
        if question is None:
            # It was given up.
            return None
        if body.HasField("error_code") or not body.HasField("availablePermits"):
            self._end(question, None)
            return None
        permits: int = body.availablePermits
        # Negative numbers are written as what they are in 64 bits.
        said = permits - 2 * _SIGN if permits >= _SIGN else permits
        consumer = question.consumer
        moved = question.moves != consumer.permits.moves
        if consumer.known and (
            moved or said == consumer.permits.balance or body.blockedConsumerOnUnackedMsgs
        ):
            # A broker that waits for acknowledgements keeps new permits aside, and does not name them.
            self._end(question, consumer.permits.balance)
        elif question.number >= _ASKED_MAX or (question.said == said and not moved):
            self._end(question, said)
        else:
            question.said, question.moves = said, consumer.permits.moves
            self._link.call_later(_AGAIN_MS, lambda: self._send(question))
        return None

    def check(self, now_ms: float, *, heard: bool) -> None:
        """Give up what takes too long; while its broker is not heard no answer can come."""
        for question in list(self._waiting.values()):
            if not heard:
                question.since_ms = now_ms
            elif now_ms - question.since_ms > PERMIT_ANSWER_MS:
                self._end(question, None if question.consumer.known else question.said)

    def _send(self, question: _Question) -> None:
        if self._waiting.get(question.consumer) is not question:
            return
        question.number += 1
        question.request_id = self._next
        self._open[self._next] = question
        self.unanswered += 1
        self._link.to_broker(command(CONSUMER_STATS, request_id=self._next, consumer_id=question.consumer.id))
        self._next += 1

    def _drop(self, consumer: Consumer) -> None:
        question = self._waiting.pop(consumer, None)
        if question is not None:
            self._open.pop(question.request_id, None)

    def _end(self, question: _Question, said: int | None) -> None:
        """It has so many, as far as its broker says it."""
        consumer = question.consumer
        self._drop(consumer)
        result = "known"
        if said is None:
            result = "unknown"
            if not consumer.known:
                consumer.never_know()
        else:
            if consumer.known:
                result = "same" if said == consumer.permits.balance else "corrected"
            consumer.know(said)
        self._metrics.permit_questions.labels(result).inc()
