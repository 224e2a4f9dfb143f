"""What the concerns of a connection are to each other: a part takes requests, the link is what it acts on.

A connection is a chain of parts. Each concern names the APIs whose requests it wants; all else passes as the
bytes that it came as. So what no rule needs costs nothing, and no part knows another.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Container
from typing import Final, Protocol

from enforcer.kafka.pacing import Pacer
from enforcer.wire.kafka.frames import RequestHeader
from enforcer.wire.kafka.traffic import Part as ProducedPart

NO_KEYS: Final[frozenset[int]] = frozenset()
EVERYTHING: Final = range(-(1 << 15), 1 << 15)
"""All that can stand where a request names its API."""
FETCH_LIMIT_MAX: Final = 524_288
"""A Fetch whose response is read never brings more at once, bytes: some consumers ask for 50 MB at a time,
which would be kept until all of it is here, and gone through at once."""
PART_BYTES_MIN: Final = 1_024
"""A partition is never asked for less, bytes."""
OBJECTS: Final = 14
"""What a request takes that was read, for each of its bytes: the 16 of a partition of a Fetch take 224."""


class Slot:
    """A request whose response is due.

    Attributes:
        api_key: which request.
        api_version: its version.
        correlation_id: what its response begins with.
        done: gets the broker's response instead of the client; it fills `response` in its own time.
        unless: if the response's body begins so, it is the client's as it is, and `done` need not see it.
        finish: what is done to `response` when it leaves; who sets it sets `done` too.
        response: what the client gets, None until it is known.
    """

    __slots__ = ("api_key", "api_version", "correlation_id", "done", "finish", "response", "unless")

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
        self.unless = b""
        self.finish: Finish | None = None
        self.response: bytes | None = None


Finish = Callable[[bytes], bytes]
"""An answer, whoever gave it -> the answer as the client gets it."""
Reader = Callable[[Slot, bytes], bytes | None]
"""The broker's response -> what goes on of it; None: the part hands it on later (Link.respond)."""


class Request:
    """A request on its way through the chain.

    Attributes:
        frame: as it goes on; a part may change it.
        header: of it.
        whole: the request as it came.
        user: whose it is.
        probing: it is the one let through in a long mute.
        readers: get the broker's response, in this order.
        undo: takes back what a part has done for it; called if a later one holds it.
        kept: bytes that parts keep of it until it is answered, about.
        ends: why the connection ends behind it; empty: it does not.
    """

    __slots__ = ("ends", "finish", "frame", "header", "kept", "probing", "readers", "undo", "user", "whole")

    def __init__(self, frame: bytes, header: RequestHeader, user: str, probing: bool = False) -> None:
        self.frame = self.whole = frame
        self.header = header
        self.user = user
        self.probing = probing
        self.readers: list[Reader] = []
        self.finish: Finish | None = None
        self.undo: Callable[[], None] | None = None
        self.kept, self.ends = 0, ""

    def amend(self, finish: Finish) -> None:
        """Do this to its answer, whoever gives it, before what earlier parts do."""
        before = self.finish
        self.finish = finish if before is None else lambda response: before(finish(response))

    def slot(self, response: bytes | None = None) -> Slot:
        """A place for its answer, or with it."""
        slot = Slot(*self.header[:3])
        slot.finish, slot.response = self.finish, response
        if response is not None and self.finish is not None:
            # Now: it may keep much, and the answer wait for long behind others.
            slot.finish, slot.response = None, self.finish(response)
        return slot


Charged = tuple[Reader | None, bytes]
"""What a part wants of a plain Produce request that goes on: what gets the broker's response (None: nobody
needs it), and `Slot.unless`."""


class Behind(Protocol):
    """The requests of a connection that have come and were not handled (requests.Requests)."""

    data: bytes | bytearray
    pos: int
    waiting: int
    waiting_bytes: int

    @property
    def left_bytes(self) -> int:
        """How much of them there is."""

    def copy(self, start: int, stop: int) -> bytes:
        """Some of the bytes."""

    def gather(self) -> None:
        """Keep the request at the head until it is whole."""

    def next(self) -> bytes | None:
        """Take it; None: it is not whole."""


class Part(ABC):
    """One concern of one connection.

    Attributes:
        asked: APIs whose requests it must see, whether its concern wants them or not.
    """

    asked: frozenset[int] = NO_KEYS

    @property
    def free(self) -> bool:
        """Whether the next request may be handled."""
        return True

    @property
    def held_bytes(self) -> int:
        """Size of the requests that it keeps."""
        return 0

    @property
    def unadmitted(self) -> Slot | None:
        """The place of a request that is carried out only if its client hears of it; None: there is none."""
        return None

    @property
    def waits_for_decision(self) -> bool:
        """Whether a request under way lacks its decision, and nothing that the broker could add."""
        return False

    @abstractmethod
    def take(self, request: Request) -> bool:
        """Look at a request that its concern wants.

        Returns:
            Whether it goes on to the next part, and in the end to the broker; else this part has answered it,
            holds it at the head of its connection, keeps it or drops it.

        Raises:
            BadFrame: it cannot be read.
        """

    def take_plain(self, client_id: bytes, version: int, size: int, brings: ProducedPart) -> Charged | None:
        """Take a plain Produce request (runs.py) that goes on unread; None: `take` must see it.

        Args:
            client_id: as it came.
            size: of all of it.
        """
        return None

    def look_behind(self, requests: Behind, *, over: bool) -> None:  # noqa: B027
        """See what stands behind a request that is held, and whether that is all that will ever come."""

    def unheard(self) -> None:  # noqa: B027
        """Nobody hears answers any more."""

    def step_aside(self) -> None:  # noqa: B027
        """The next request cannot go on for now: nobody shall wait for it."""

    def close(self) -> None:  # noqa: B027
        """The connection is over."""


class Concern(ABC):
    """What all connections of a proxy have in common of one concern.

    Attributes:
        asked: those of its APIs whose requests may pass unread, and which `reads` is asked about: for these
            its answer changes with the policies only.
        from_the_beginning: its part of a connection is made at once.
    """

    asked: frozenset[int] = NO_KEYS
    from_the_beginning = False

    @property
    @abstractmethod
    def keys(self) -> Container[int]:
        """APIs whose requests its parts take, where these are read."""

    @property
    def active(self) -> bool:
        """Whether it wants anything now."""
        return True

    def reads(self, key: int, user: str, client_id: str) -> bool:
        """Whether a request of this client must be read."""
        return True

    @abstractmethod
    def part(self, link: "Link") -> Part:
        """Its side of one connection, made with the first request that it wants."""


class Law(Protocol):
    """Tells whether there is anything to keep to; asked with each request, so it is no property."""

    active: bool


class Limit(Concern):
    """A concern that wants requests only while a law sets something; then `reads` is asked about all."""

    def __init__(self, law: Law) -> None:
        self.law = law

    @property
    @abstractmethod
    def keys(self) -> frozenset[int]:
        """See Concern."""

    @property
    def active(self) -> bool:
        """See Concern."""
        return self.law.active


class Link(Protocol):
    """One client's connection, as its parts see it.

    Attributes:
        peer: address of the client, as far as it is known.
        secure: whether nobody else can read what it sends.
        address: where its broker is.
        user: its principal.
        pacer: holds it back.
    """

    peer: object
    secure: bool
    address: tuple[str, int]
    user: str
    pacer: Pacer

    @property
    def slots(self) -> Part:
        """Its part that counts what is in flight."""

    def answer(self, request: Request, response: bytes) -> None:
        """Answer without the broker, in turn."""

    def hold(self, request: Request) -> None:
        """Keep the request at the head of the connection; the pacer tells until when."""

    def expect_token(self, most: int) -> None:
        """Read no SASL token that is longer."""

    def reserve(self, slot: Slot) -> None:
        """Take the next place among the answers to the client."""

    def forgo(self, slot: Slot) -> None:
        """Nobody will get this answer: those behind it need not wait."""

    def send(self, slot: Slot | None, frame: bytes) -> bool:
        """Send a request to the broker, without slot one that has no response; False if it is lost."""

    def respond(self, slot: Slot, response: bytes) -> None:
        """Take the broker's response, once all parts have read it, as the answer.

        Raises:
            WeirError: it cannot be read, or names a broker that we cannot stand for.
        """

    def finish(self, mute_ms: float) -> None:
        """A slot's response has become known; mute the connection after it."""

    def end(self, reason: str) -> None:
        """Close the connection after what is written already."""

    def end_session(self) -> None:
        """The broker would take nothing more: close the connection after the answers that are due."""

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function after a delay."""
