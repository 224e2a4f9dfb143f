"""A connection of Pulsar's proxy without sockets, for parts whose client, broker and clock a test plays."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from clock_kit import SteadyClock, Timer

from enforcer.laws.concurrency.limiter import Limiter
from enforcer.pulsar.link import Part


class PartLink(ABC):
    """As parts see it (link.Link); says nothing of what is sent.

    Attributes:
        parts: what sees each frame, in this order.
        read, broker_read: whether the client and the broker are read.
        ended: why it was to end.
        looked_again: how often a part sees other kinds.

    Args:
        clock: of the loop.
        user: principal.
    """

    def __init__(self, clock: SteadyClock, user: str = "ANONYMOUS") -> None:
        self.clock, self.user = clock, user
        self.broker, self.connect, self.protocol_version, self.asks_only = ("b", 6650), b"", 0, False
        self.limiter: Limiter | None = None
        self.stalled = False
        self.parts: list[Part] = []
        self.read = self.broker_read = True
        self.ended: list[str] = []
        self.looked_again = 0

    @abstractmethod
    def to_broker(self, frame: bytes) -> None:
        """A frame leaves for the broker."""

    @abstractmethod
    def to_client(self, frame: bytes) -> None:
        """A frame leaves for the client."""

    def answer(self, frame: bytes) -> None:
        """As if it had come from the broker."""
        self.from_broker(frame)

    def look_again(self) -> None:
        """Counted; each frame is shown to who wants it then."""
        self.looked_again += 1

    def pause(self, part: Part) -> None:
        """The client is not read."""
        assert part in self.parts
        self.read = False

    def resume(self, part: Part) -> None:
        """The client is read."""
        assert part in self.parts
        self.read = True

    def pause_broker(self, part: Part) -> None:
        """Nobody does, but for who says so."""
        raise AssertionError("the broker is always read")

    resume_broker = pause_broker

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> Timer:
        """The clock's."""
        return self.clock.call_later(delay_ms, function)

    def now_ms(self) -> float:
        """The clock's."""
        return self.clock.now_ms

    def end(self, why: str) -> None:
        """Noted."""
        self.ended.append(why)

    # What a test does

    def from_client(self, frame: bytes) -> None:
        """The client sends a frame; the broker gets what parts leave of it."""
        going = self.shown(frame, up=True)
        if going is not None:
            self.to_broker(going)

    def from_broker(self, frame: bytes) -> None:
        """The same the other way."""
        going = self.shown(frame, up=False)
        if going is not None:
            self.to_client(going)

    def shown(self, frame: bytes, *, up: bool) -> bytes | None:
        """What parts leave of a frame from the client or, if not `up`, from the broker."""
        going: bytes | None = frame
        for part in self.parts:
            if going is not None and frame[9] in (part.up if up else part.down):
                going = (part.take_up if up else part.take_down)(frame[9], going)
        return going
