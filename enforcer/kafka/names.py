"""The names of topic ids, asked of a broker where nobody has said them yet."""

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from functools import partial
from typing import Final

from enforcer.core.lines import Pause
from enforcer.kafka.part import Link, Request, Slot
from enforcer.wire.kafka.frames import RequestHeader, client_id_field
from enforcer.wire.kafka.messages import ASKED_AT_ONCE, decode_topics, topics_request

ABSENT_MS: Final = 5_000.0
"""For how long a topic id that a broker does not know is not looked up again by the same connection."""
ABSENT_MAX: Final = 1_000
"""So many such ids of a connection are remembered."""
AGAIN_MS: Final = 1_000.0
"""How often it is looked whether an answer has come, though nobody said so."""

LookUp = Callable[[list[bytes], Callable[[Mapping[bytes, str]], None]], None]


class NameQuestions:
    """Asks a broker for the names of topic ids, on the client's own connection: no other login is needed.

    The client does not see it.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        # Of the request being handled: what a question repeats. An idle connection keeps nothing of it.
        self._header: RequestHeader | None = None
        self._client_id = b""

    def about(self, request: Request) -> "NameQuestions":
        """To be used by `with`: while this request is handled names may be asked for."""
        self._header, self._client_id = request.header, client_id_field(request.frame)
        return self

    def __enter__(self) -> None:
        """It is handled from now on."""

    def __exit__(self, *_: object) -> None:
        """It was handled."""
        self._header, self._client_id = None, b""

    def ask(self, topics: list[bytes], done: Callable[[Mapping[bytes, str]], None]) -> None:
        """Ask, before anything that is sent later."""
        header = self._header
        assert header is not None
        question = topics_request(header.correlation_id, self._client_id, topics)
        slot = Slot(*header[:3], lambda response: done(decode_topics(response, bool(topics)).names))
        self._link.send(slot, question)


class NameResolver:
    """The names that one connection needs; what its broker does not know, or not for this user, has none.

    Attributes:
        proven: the broker has answered what it answers only to those whom it lets in. Where it demands SASL
            anybody may send anything, and is cut off: nobody shall wait for that, or be charged.
        answers: how many it has given.

    Args:
        names: topic id -> name, of all connections.
        pause: holds the connection back until they are known.
        look_up: asks the broker, on this connection, before anything sent later.
    """

    def __init__(
        self, names: MutableMapping[bytes, str], pause: Pause, look_up: LookUp, steady_ms: Callable[[], float]
    ) -> None:
        self.proven, self.answers = False, 0
        self._names, self._pause, self._look_up, self._steady_ms = names, pause, look_up, steady_ms
        self._asking = False
        # Those without a name, and until when they are not asked for again.
        self._until_ms: dict[bytes, float] = {}
        # For the request at the head: each once, however many the broker does not know.
        self._asked: set[bytes] = set()

    def must_prove(self) -> bool:
        """Whether the client is to be let in first; it waits until that is known."""
        return not self.proven and self._ask([])

    def must_wait(self, topics: Iterable[bytes]) -> bool:
        """Whether names of some ids are being asked for, each once for the request at the head; it waits."""
        unknown = [topic for topic in self.lacking(topics) if topic not in self._asked]
        if unknown or self._asking:
            return self._ask(unknown[:ASKED_AT_ONCE])
        self._asked.clear()
        return False

    def lacking(self, topics: Iterable[bytes]) -> list[bytes]:
        """Those of some ids without a name that may have one by now."""
        now_ms = self._steady_ms()
        lacking = (topic for topic in dict.fromkeys(topics) if topic not in self._names)
        return [topic for topic in lacking if self._until_ms.get(topic, 0.0) <= now_ms]

    def _ask(self, topics: list[bytes]) -> bool:
        self._pause.pause(AGAIN_MS)
        if not self._asking:
            self._asking = True
            self._look_up(topics, partial(self._learn, topics))
        return True

    def _learn(self, asked_for: list[bytes], names: Mapping[bytes, str]) -> None:
        self._asking, self.proven = False, True
        self.answers += 1
        self._names.update(names)
        until_ms = self._steady_ms() + ABSENT_MS
        for topic in asked_for:
            if topic not in names:
                self._asked.add(topic)
                self._until_ms.pop(topic, None)
                if len(self._until_ms) >= ABSENT_MAX:
                    del self._until_ms[next(iter(self._until_ms))]
                self._until_ms[topic] = until_ms
        self._pause.wake()
