"""The names of topic ids, asked of a broker where nobody has said them yet."""

from collections.abc import Callable, Iterable, Mapping
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


class NamelessTopics:
    """Topic ids that the broker did not name to a connection: it has no such topic, or none for this user.

    Args:
        steady_ms: the clock.
    """

    def __init__(self, steady_ms: Callable[[], float]) -> None:
        self._steady_ms = steady_ms
        self._until_ms: dict[bytes, float] = {}
        # For the request at the head: each once, however many the broker does not know.
        self._asked: set[bytes] = set()

    def others(self, topics: Iterable[bytes]) -> list[bytes]:
        """Those of some that may have a name by now."""
        now_ms = self._steady_ms()
        return [topic for topic in topics if self._until_ms.get(topic, 0.0) <= now_ms]

    def to_ask(self, topics: Iterable[bytes]) -> list[bytes]:
        """Those of some that are to be asked for, each once for the request at the head."""
        return [topic for topic in self.others(topics) if topic not in self._asked]

    def handled(self) -> None:
        """The request at the head is another one from now on."""
        self._asked.clear()

    def learn(self, asked_for: Iterable[bytes], names: Mapping[bytes, str]) -> None:
        """Take an answer."""
        until_ms = self._steady_ms() + ABSENT_MS
        for topic in asked_for:
            if topic not in names:
                self._asked.add(topic)
                self._until_ms.pop(topic, None)
                if len(self._until_ms) >= ABSENT_MAX:
                    del self._until_ms[next(iter(self._until_ms))]
                self._until_ms[topic] = until_ms
