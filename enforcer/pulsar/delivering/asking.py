"""Asks a broker how many permits a consumer has, where a limit begins while it is served.

Only the broker knows: what passed before was not counted. Messages that were on their way as it answered are
not in its answer or are in it twice, so it is asked until two answers say the same and nothing came between.
Without permits a broker soon has nothing more to send.
"""

import secrets
from typing import Final

from enforcer.pulsar.delivering.consumer import Consumer
from enforcer.pulsar.delivering.metrics import DeliveryMetrics
from enforcer.pulsar.link import Link
from enforcer.pulsar.protocol.commands import command, parse
from enforcer.pulsar.protocol.frames import CONSUMER_STATS

_AGAIN_MS: Final = 50.0
_ASKED_MAX: Final = 40
"""So often; then the last answer counts. One that is too low by some lets some more come, which are held."""
_HIGH: Final = 2**63 + 2**62
"""Our requests' ids begin above: clients count up from 0 or from a random number of 63 bits."""
_RANDOM_BITS: Final = 61
"""A client cannot guess them, so that no answer to a question of its own is taken for one to ours."""
_SIGN: Final = 2**63


class _Question:
    """One consumer that is asked for."""

    __slots__ = ("came", "consumer", "number", "said", "since_ms")

    def __init__(self, consumer: Consumer, now_ms: float) -> None:
        self.consumer = consumer
        self.since_ms = now_ms
        self.number = 0
        self.came = -1
        self.said: int | None = None


class Asking:
    """The questions of one connection.

    Args:
        link: the connection.
        metrics: counts answers.
        answer_ms: how long it is waited for one.
    """

    def __init__(self, link: Link, metrics: DeliveryMetrics, answer_ms: float) -> None:
        self._link, self._metrics, self._answer_ms = link, metrics, answer_ms
        self._first = self._next = _HIGH | secrets.randbits(_RANDOM_BITS)
        self._open: dict[int, _Question] = {}
        self._waiting: dict[Consumer, _Question] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def ask(self, consumer: Consumer) -> None:
        """Ask for one, unless that is being done."""
        if consumer not in self._waiting:
            question = self._waiting[consumer] = _Question(consumer, self._link.now_ms())
            self._send(question)

    def forget(self, consumer: Consumer) -> None:
        """It is gone, or nothing limits it."""
        self._waiting.pop(consumer, None)

    def answered(self, frame: bytes) -> bytes | None:
        """A CONSUMER_STATS_RESPONSE; the frame if it is the client's.

        Raises:
            BadFrame: it cannot be read.
        """
        body = parse(frame)
        question = self._open.pop(body.request_id, None)
        if question is None:
            # One to a question that was given up is nobody's.
            return None if self._first <= body.request_id < self._next else frame
        consumer = question.consumer
        if self._waiting.get(consumer) is not question:
            return None
        if body.HasField("error_code") or not body.HasField("availablePermits"):
            self._end(question, None)
            return None
        permits: int = body.availablePermits
        # Negative numbers are written as what they are in 64 bits.
        said = permits - 2 * _SIGN if permits >= _SIGN else permits
        sure = question.said == said and question.came == consumer.came
        if sure or question.number >= _ASKED_MAX:
            self._end(question, said)
        else:
            question.said, question.came = said, consumer.came
            self._link.call_later(_AGAIN_MS, lambda: self._send(question))
        return None

    def check(self, now_ms: float) -> None:
        """Give up what takes too long."""
        for question in list(self._waiting.values()):
            if now_ms - question.since_ms > self._answer_ms:
                self._end(question, question.said)

    def _send(self, question: _Question) -> None:
        if self._waiting.get(question.consumer) is not question:
            return
        question.number += 1
        self._open[self._next] = question
        self._link.to_broker(
            command(CONSUMER_STATS, request_id=self._next, consumer_id=question.consumer.id)
        )
        self._next += 1

    def _end(self, question: _Question, said: int | None) -> None:
        del self._waiting[question.consumer]
        if said is None:
            self._metrics.asked.labels("unknown").inc()
            question.consumer.never_know()
        else:
            self._metrics.asked.labels("known").inc()
            question.consumer.know(said)
