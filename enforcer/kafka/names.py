"""The names of topic ids, asked of a broker where nobody has said them yet."""

from collections.abc import Callable, Mapping
from typing import Final

from enforcer.kafka.part import Link, Request, Slot
from enforcer.wire.kafka.frames import RequestHeader, client_id_field
from enforcer.wire.kafka.messages import decode_topics, topics_request

TOPIC_NAME_MAX: Final = 249
"""Kafka's limit. A request may name what it likes; what is longer is no topic, and is refused."""
ABSENT_MS: Final = 5_000.0
"""For how long a topic id that a broker does not know is not looked up again by the same connection."""
ABSENT_MAX: Final = 1_000
"""So many such ids of a connection are remembered."""
ASKED_AT_ONCE: Final = 500
"""Topics of one look-up."""


class NameQuestions:
    """Asks a broker for the names of topic ids, on the client's own connection: no other login is needed.

    The client does not see it.

    Args:
        link: the connection.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        # Of the request being handled: what a question repeats. An idle connection keeps nothing of it.
        self._header: RequestHeader | None = None
        self._client_id = b""

    def begin(self, request: Request) -> None:
        """A request is handled from now on, until `end`: meanwhile names may be asked for."""
        self._header, self._client_id = request.header, client_id_field(request.frame)

    def end(self) -> None:
        """It was handled."""
        self._header, self._client_id = None, b""

    def ask(self, topics: list[bytes], done: Callable[[Mapping[bytes, str]], None]) -> None:
        """Ask, before anything that is sent later."""
        header = self._header
        assert header is not None
        question = topics_request(header.correlation_id, self._client_id, (), topics)
        slot = Slot(*header[:3], lambda response: done(decode_topics(response, bool(topics)).names))
        self._link.send(slot, question)
