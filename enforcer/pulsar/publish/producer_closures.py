"""Producers of topics that are blocked by a quota of their backlog: closed, and not made until that is over.

A broker closes such a producer on its client's side alone, and what it has of it is then stored but not
acknowledged, so the client sends it twice. Here the broker is told first. It answers once all that it has of
the producer is acknowledged, and only then its client is told. What came from there meanwhile, and what
waited here, goes nowhere: the client has no receipt for it and sends it again with its next producer, as
after any end of one (docs/backlog/producers.md).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from enforcer.pulsar.link import Link
from enforcer.pulsar.publish.context import CLOSED, Closer
from enforcer.pulsar.publish.producer import Producer
from enforcer.wire.pulsar.commands import CONNECTION, ServerError, command, error, own_request_id
from enforcer.wire.pulsar.frames import CLOSE_PRODUCER, SUCCESS

TOLD_MS: Final = 5_000.0
"""After so long a client is told though the broker has not answered; what it has may then be stored twice."""
FORGET_MS: Final = 60_000.0
"""After so long a broker will not answer, and nothing of the producer is on its way from its client."""
_UNSEEN: Final = -1


@dataclass(slots=True)
class ProducerClosure:
    """A producer that is closed for a block.

    Attributes:
        producer_id: of its connection.
        request_id: of our CLOSE_PRODUCER.
        since_ms: when that was.
        answered: the broker has closed it.
        told: its client knows.
        heard: nothing more of it can come from its client.
        closing: request that the client closes it by, not answered yet.
    """

    producer_id: int
    request_id: int
    since_ms: float
    answered: bool = False
    told: bool = False
    heard: bool = False
    closing: int | None = None


class ProducerClosures:
    """The producers of one connection that are closed for a block.

    Args:
        link: the connection.
        closer: what all share.
        changed: called when there may be some or none where it was otherwise.
    """

    def __init__(self, link: Link, closer: Closer, changed: Callable[[], None]) -> None:
        self._link = link
        self._closer = closer
        self._changed = changed
        self._by_id: dict[int, ProducerClosure] = {}
        self._asked: dict[int, ProducerClosure] = {}
        # Of the blocks, when producers were looked at last.
        self._seen = _UNSEEN

    def __len__(self) -> int:
        """While there are any SENDs and the broker's answers must be shown to it."""
        return len(self._by_id)

    # The client's side -------------------------------------------------------------------------------------

    def drops(self, producer_id: int) -> bool:
        """Whether a SEND of a producer goes nowhere: where one comes late a broker ends the connection."""
        return producer_id in self._by_id

    def refusal(self, producer_id: int, topic: str) -> tuple[int, str] | None:
        """With which code and text a producer is refused that the client asks for; None: it is not."""
        shut = self._by_id.get(producer_id)
        if shut is not None and shut.told:
            shut.heard = True
            self._tidy(shut)
        refused = self._closer.refusal(topic)
        if refused is None and producer_id in self._by_id:
            # The broker would take the one that it still has for it.
            return ServerError.SERVICE_NOT_READY, "the producer is not closed yet"
        return refused

    def closes(self, body: Any) -> bool:
        """A CLOSE_PRODUCER; True: it is one of these, and will be answered."""
        shut = self._by_id.get(body.producer_id)
        if shut is None:
            return False
        if shut.closing is not None:
            self._link.to_client(error(body.request_id, ServerError.UNKNOWN, "the producer is being closed"))
            return True
        shut.closing, shut.heard = body.request_id, True
        if shut.answered:
            self._tell(shut)
            self._tidy(shut)
        return True

    # The broker's side -------------------------------------------------------------------------------------

    def answered(self, request_id: int) -> bool:
        """The broker answers a request; True: it is one of ours."""
        shut = self._asked.pop(request_id, None)
        if shut is None:
            return False
        # An error says that there is no such producer, which is as well.
        shut.answered = True
        self._tell(shut)
        self._tidy(shut)
        return True

    def broker_closes(self, producer_id: int) -> None:
        """The broker closes a producer by itself, and its client is being told."""
        shut = self._by_id.get(producer_id)
        if shut is not None:
            shut.told = True

    # The blocks --------------------------------------------------------------------------------------------

    def came(self, producer: Producer) -> None:
        """There is one more; its topic may have been blocked while it was made."""
        blocks = self._closer.blocks
        if blocks.active and blocks.block(producer.topic) is not None:
            self._seen = _UNSEEN

    def look(self, producers: Iterable[Producer], now_ms: float) -> None:
        """Once a second: close those whose topic is blocked now, and look after those that were."""
        for shut in list(self._by_id.values()):
            self._look_at(shut, now_ms)
        blocks = self._closer.blocks
        if self._seen == blocks.generation:
            return
        self._seen = blocks.generation
        if not blocks.active:
            return
        for producer in producers:
            if producer.gone or not producer.ready:
                continue
            block = blocks.block(producer.topic)
            if block is None:
                continue
            if not self._closer.may_close(now_ms):
                self._seen = _UNSEEN
                return
            self._closer.count(block, CLOSED)
            self._shut(producer, now_ms)

    def _shut(self, producer: Producer, now_ms: float) -> None:
        if not producer.cut():
            # Its client closes it already.
            return
        shut = ProducerClosure(producer.producer_id, own_request_id(), now_ms)
        self._by_id[shut.producer_id] = self._asked[shut.request_id] = shut
        # From here on nothing of it goes on: a broker's answer to a SEND behind this ends the connection.
        self._changed()
        self._link.to_broker(
            command(CLOSE_PRODUCER, producer_id=shut.producer_id, request_id=shut.request_id)
        )

    def _look_at(self, shut: ProducerClosure, now_ms: float) -> None:
        if now_ms - shut.since_ms >= FORGET_MS:
            self._asked.pop(shut.request_id, None)
            self._tell(shut)
            self._forget(shut)
        elif now_ms - shut.since_ms >= TOLD_MS and shut.closing is None:
            self._tell(shut)

    def _tell(self, shut: ProducerClosure) -> None:
        """Its client is told, if it was not."""
        if shut.closing is not None:
            self._link.to_client(command(SUCCESS, request_id=shut.closing))
            shut.closing = None
        elif not shut.told:
            # As a broker that closes it: behind its PRODUCER_SUCCESS, which may still be kept back.
            closed = command(CLOSE_PRODUCER, producer_id=shut.producer_id, request_id=CONNECTION)
            self._link.answer(closed)
        shut.told = True

    def _tidy(self, shut: ProducerClosure) -> None:
        if shut.answered and shut.heard:
            self._forget(shut)

    def _forget(self, shut: ProducerClosure) -> None:
        if self._by_id.get(shut.producer_id) is shut:
            del self._by_id[shut.producer_id]
            self._changed()
