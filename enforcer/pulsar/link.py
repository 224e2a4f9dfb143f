"""What the concerns of a connection are to each other: a part sees frames, the link is what it acts on.

A connection is a chain of parts. Each names the kinds of frames that it wants to see; frames of all other
kinds pass as the bytes that they came as. So what no rule needs costs nothing, and no part knows another.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from enforcer.host.dial import Introduced
from enforcer.laws.concurrency.limiter import Limiter


class Part(Protocol):
    """One concern of a connection: sees the frames of the kinds that it names, whole.

    A frame is all bytes, its size first. Parts are asked in one order in both directions; after one has
    returned None none behind it sees the frame. A part raises WeirError, or `end`s its link, where the
    connection cannot go on.

    Attributes:
        up: kinds from the client that it wants to see now; where that changes it calls `Link.look_again`.
        down: the same from the broker.
    """

    up: frozenset[int]
    down: frozenset[int]

    @property
    def held_bytes(self) -> int:
        """Frames and the like that it keeps now, bytes; the connection that keeps most may have to end."""

    def take_up(self, kind: int, frame: bytes) -> bytes | None:
        """The frame as it goes on to the broker, or None: the part keeps it, drops it or sends it later."""

    def take_down(self, kind: int, frame: bytes) -> bytes | None:
        """The same towards the client."""

    def check(self, now_ms: float) -> None:
        """About once a second."""

    def close(self) -> None:
        """The connection is over: nothing can be sent any more."""


class Link(Introduced, Protocol):
    """One client's connection, as its parts see it. They are made once the broker has answered CONNECTED.

    Attributes:
        broker: host and port of its broker.
        user: its principal; ANONYMOUS where it gave none, or none that can be read.
        protocol_version: the newest that the broker speaks, as its CONNECTED says.
        asks_only: the same of whether a question for partitions need not create the topic.
        limiter: concurrency limit of its broker; None: there is none.
        connect: the client's CONNECT, as its broker got it: to log in elsewhere in its name.
    """

    broker: tuple[str, int]
    user: str
    protocol_version: int
    asks_only: bool
    limiter: Limiter | None
    connect: bytes

    @property
    def stalled(self) -> bool:
        """The broker is not read, as its client reads too slowly or too much is held: no answer is seen."""

    def to_broker(self, frame: bytes) -> object:
        """Send a frame past all parts; nothing happens once the connection is over."""

    def to_client(self, frame: bytes) -> object:
        """The same towards the client."""

    def answer(self, frame: bytes) -> None:
        """Answer the client in the broker's place: all parts see it as if it had come from there."""

    def look_again(self) -> None:
        """The kinds of a part have changed: from the next frame on it sees others."""

    def pause(self, who: Part, /) -> None:
        """Do not read from the client until `resume`, for this part; what was read already still comes."""

    def resume(self, who: Part, /) -> None:
        """This part has no objection any more."""

    def pause_broker(self, who: Part, /) -> None:
        """The same for reading from the broker."""

    def resume_broker(self, who: Part, /) -> None:
        """See `resume`."""

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function after a delay; it may find the connection over, and what it raises ends it."""

    def now_ms(self) -> float:
        """The steady clock."""

    def end(self, why: str) -> None:
        """Close both sides after what is written already; counted by why (few different words)."""
