"""What ties a request to its place among the answers of its connection."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from enforcer.core.metrics import Metrics
from enforcer.core.settings import ProxySettings
from enforcer.host.budget import Budget
from enforcer.host.moving import Mover
from enforcer.host.turns import Turns
from enforcer.kafka.backlog.desk import BlockDesk
from enforcer.kafka.brokers import Brokers
from enforcer.kafka.dispatch.desk import FetchDesk
from enforcer.kafka.guard.guard import Guard
from enforcer.kafka.mutations.auto_creation import AutoCreations
from enforcer.kafka.mutations.recent_topics import RecentTopics
from enforcer.kafka.traffic.frame_meter import FrameMeter
from enforcer.laws.dispatch.dispatch import Dispatch
from enforcer.laws.mutation.coordinator import QuotaCoordinator
from enforcer.laws.mutation.free_questions import FreeQuestions
from enforcer.laws.shares.meter import Meter
from enforcer.wire.kafka.frames import RequestHeader, client_id_field
from enforcer.wire.kafka.messages import decode_topics, topics_request
from enforcer.wire.kafka.mutations import is_legal_name
from enforcer.wire.kafka.topic_counts import NOTHING_KNOWN, TopicCounts

T = TypeVar("T")

_ASKED_AT_ONCE: Final = 500
"""Topics of one look-up."""


class Slot:
    """A request whose response is due.

    Attributes:
        api_key: which request.
        api_version: its version.
        correlation_id: what its response begins with.
        done: gets the broker's response instead of the client; it fills `response` in its own time.
        response: what the client gets, None until it is known.
    """

    __slots__ = ("api_key", "api_version", "correlation_id", "done", "response")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        done: Callable[[bytes], None] | None = None,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.done = done
        self.response: bytes | None = None


class Line(Protocol):
    """What a gated request needs of its connection.

    Attributes:
        peer: address of the client, as far as it is known.
        address: where its broker is.
    """

    peer: object
    address: tuple[str, int]

    def reserve(self, slot: Slot) -> None:
        """Take the next place among the answers to the client."""
        ...

    def amend(self, finish: Callable[[bytes], bytes] | None) -> None:
        """What is done to the answer of the next place that is taken, before the client gets it."""
        ...

    def send(self, slot: Slot | None, frame: bytes) -> bool:
        """Send a request to the broker, without slot one that has no response; False if it is lost."""
        ...

    def reply(self, slot: Slot) -> None:
        """Answer without the broker, in turn: the slot has its response."""
        ...

    def forgo(self, slot: Slot) -> None:
        """Nobody will get this answer: those behind it need not wait."""
        ...

    def put_back(self, frame: bytes) -> None:
        """Keep the request just read at the head of the connection."""
        ...

    def end(self, reason: str) -> None:
        """Close the connection after what is written already."""
        ...

    def finish(self, slot: Slot, mute_ms: float) -> None:
        """The slot's response is known; mute the connection after it."""
        ...

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function after a delay."""
        ...


class Hub(Protocol):
    """What all connections of a proxy share."""

    settings: ProxySettings
    coordinator: QuotaCoordinator
    meter: Meter
    frame_meter: FrameMeter
    fetch_desk: FetchDesk
    block_desk: BlockDesk
    recent_topics: RecentTopics
    free_questions: FreeQuestions
    auto_creations: AutoCreations
    metrics: Metrics
    brokers: Brokers
    turns: Turns
    budget: Budget
    guard: Guard
    mover: Mover
    dispatch: Dispatch

    def now_ms(self) -> float:
        """The steady clock."""
        ...

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function after a delay."""
        ...

    def rewrite(self, api_key: int, version: int, response: bytes) -> bytes:
        """A broker's answer as clients may see it; raises WeirError if it may not be seen."""
        ...

    def admit(self, connection: Any) -> bool:
        """Take a new client in; False if that cannot be."""
        ...

    def forget(self, connection: Any) -> None:
        """A client is gone."""
        ...


def _parts(asked: Sequence[T]) -> list[Sequence[T]]:
    return [asked[start : start + _ASKED_AT_ONCE] for start in range(0, len(asked), _ASKED_AT_ONCE)]


class NameQuestions:
    """Asks a broker for the names of topic ids, on the client's own connection: no other login is needed.

    The client does not see it.

    Args:
        line: the connection.
    """

    def __init__(self, line: Line) -> None:
        self._line = line
        # Of the request being handled: what a question repeats. An idle connection keeps nothing of it.
        self._header: RequestHeader | None = None
        self._client_id = b""

    def begin(self, frame: bytes, header: RequestHeader) -> None:
        """A request is handled from now on, until `end`: meanwhile names may be asked for."""
        self._header, self._client_id = header, client_id_field(frame)

    def end(self) -> None:
        """It was handled."""
        self._header, self._client_id = None, b""

    def ask(self, topics: list[bytes], done: Callable[[Mapping[bytes, str]], None]) -> None:
        """Ask, before anything that is sent later."""
        header = self._header
        assert header is not None
        question = topics_request(header.correlation_id, self._client_id, (), topics)
        slot = Slot(*header[:3], lambda response: done(decode_topics(response, bool(topics)).names))
        self._line.send(slot, question)


class GatedLink:
    """The connection as an admission sees it (admission.Link).

    Args:
        line: the connection.
        header: of the gated request.
        client_id: its client id as it came (frames.client_id_field).
    """

    def __init__(self, line: Line, header: RequestHeader, client_id: bytes) -> None:
        self._line = line
        self._header = header
        self._client_id = client_id
        self.slot = Slot(*header[:3])
        line.reserve(self.slot)

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
            done(found)

        def take(ids: bool, response: bytes) -> None:
            nonlocal found, missing
            found = found.merged(decode_topics(response, ids))
            missing -= 1
            if not missing:
                done(found)

        for question, ids in questions:
            self._line.send(Slot(*self._header[:3], partial(take, ids)), question)

    def forward(self, frame: bytes, done: Callable[[bytes], None]) -> bool:
        """Send the request, or a part of it, to the broker."""
        return self._line.send(Slot(*self._header[:3], done), frame)

    def complete(self, response: bytes, mute_ms: float) -> None:
        """Answer the client in its turn, then mute the connection."""
        self.slot.response = response
        self._line.finish(self.slot, mute_ms)

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function after a delay."""
        return self._line.call_later(delay_ms, function)
