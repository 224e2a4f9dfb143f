"""What an admission does on the connection of its client."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from enforcer.kafka.names import ASKED_AT_ONCE
from enforcer.kafka.part import Link, Request, Slot
from enforcer.wire.kafka.frames import client_id_field
from enforcer.wire.kafka.messages import NOTHING_KNOWN, TopicCounts, decode_topics, topics_request
from enforcer.wire.kafka.mutations import is_legal_name

T = TypeVar("T")


def _parts(asked: Sequence[T]) -> list[Sequence[T]]:
    return [asked[start : start + ASKED_AT_ONCE] for start in range(0, len(asked), ASKED_AT_ONCE)]


class GatedLink:
    """The connection as a request for mutations sees it (mutation.Link).

    Args:
        link: the connection.
        request: the gated request.
        finished: called before the client is answered.
    """

    def __init__(self, link: Link, request: Request, finished: Callable[[Slot], None]) -> None:
        self._link = link
        self._header = request.header
        self._client_id = client_id_field(request.frame)
        self._finished = finished
        self.slot = request.slot()
        link.reserve(self.slot)

    def look_up(
        self, names: Sequence[str], topic_ids: Sequence[bytes], done: Callable[[TopicCounts], None]
    ) -> None:
        """Ask for partition counts on the client's own connection, so no other login is needed.

        The answer never reaches the client. Names and ids take requests of their own, and many take several,
        so that no answer takes long to read. Names that no topic can have are not asked for.
        """
        correlation_id, client_id = self._header.correlation_id, self._client_id
        legal = [name for name in names if is_legal_name(name)]
        questions = [(topics_request(correlation_id, client_id, part, ()), False) for part in _parts(legal)]
        questions += [
            (topics_request(correlation_id, client_id, (), part), True) for part in _parts(topic_ids)
        ]
        found = NOTHING_KNOWN
        missing = len(questions)
        if not questions:
            # Not within this turn: the next in line would have its own in it, and so on, beyond the stack.
            self._link.call_later(0.0, partial(done, found))

        def take(ids: bool, response: bytes) -> None:
            nonlocal found, missing
            found = found.merged(decode_topics(response, ids))
            missing -= 1
            if not missing:
                done(found)

        for question, ids in questions:
            self._link.send(Slot(*self._header[:3], partial(take, ids)), question)

    def forward(self, frame: bytes, done: Callable[[bytes], None]) -> bool:
        """Send the request, or a part of it, to the broker."""
        return self._link.send(Slot(*self._header[:3], done), frame)

    def complete(self, response: bytes, mute_ms: float) -> None:
        """Answer the client in its turn, then mute the connection."""
        self.slot.response = response
        self._finished(self.slot)
        self._link.finish(self.slot, mute_ms)

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function after a delay."""
        return self._link.call_later(delay_ms, function)
