"""The other ends of a proxy's connections, in the same process: a client's socket and a broker that lies."""

import asyncio
from random import Random
from typing import Any

from fuzz_kit import Seed, framed, mutated, numbered, pieces, seeds

from enforcer.wire.kafka.frames import BadFrame, parse_header
from enforcer.wire.kafka.traffic import produce_acks

_PRODUCE = 0


class FakeSocket(asyncio.Transport):
    """What a protocol writes to and hears from.

    Attributes:
        data: what was written.
        reading: whether the protocol wants data.
        closed: whether the connection is at its end.
        peer: gets what is written, if anybody does.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: Any) -> None:
        super().__init__()
        self._loop, self._protocol = loop, protocol
        self.data = bytearray()
        self.reading, self.closed, self._lost, self._ended = True, False, False, False
        self.peer: Any = None

    def receive(self, data: bytes) -> None:
        """Bytes come from the other side."""
        if not self.closed:
            self._protocol.data_received(data)

    def end_input(self) -> None:
        """The other side will send nothing more, as after shutdown(SHUT_WR)."""
        if not self.closed and not self._ended:
            self._ended = True
            if not self._protocol.eof_received():
                self.close()

    def lose(self, error: Exception | None) -> None:
        """The connection is gone."""
        self.closed = True
        if not self._lost:
            self._lost = True
            self._protocol.connection_lost(error)

    def slow(self, turns: int) -> None:
        """The other side reads nothing for so many turns of the loop."""
        self._protocol.pause_writing()
        self._loop.call_later(0.0002 * turns, self._go_on)

    def _go_on(self) -> None:
        if not self._lost:
            self._protocol.resume_writing()

    def in_order(self) -> bool:
        """Whether what was written are answers in the order of their requests, the last perhaps cut off."""
        at, last = 0, 0
        while len(self.data) - at >= 8:
            number = int.from_bytes(self.data[at + 4 : at + 8], "big", signed=True)
            if number <= last:
                return False
            last = number
            at += 4 + int.from_bytes(self.data[at : at + 4], "big")
        return True

    def write(self, data: Any) -> None:
        """asyncio.WriteTransport."""
        assert not self._lost, "written to a connection that is gone"
        assert len(data), "nothing is written"
        self.data += data
        if self.peer is not None:
            self.peer.take(bytes(data))

    def close(self) -> None:
        """asyncio.BaseTransport; what was written leaves first."""
        self.closed = True
        self._loop.call_soon(self.lose, None)

    abort = close

    def is_closing(self) -> bool:
        """asyncio.BaseTransport."""
        return self.closed

    def pause_reading(self) -> None:
        """asyncio.ReadTransport."""
        self.reading = False

    def resume_reading(self) -> None:
        """asyncio.ReadTransport."""
        self.reading = True
        if self.peer is not None:
            self._loop.call_soon(self.peer.deliver)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """asyncio.WriteTransport."""

    def get_write_buffer_size(self) -> int:
        """asyncio.WriteTransport."""
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """asyncio.BaseTransport."""
        return ("127.0.0.1", 50_000) if name in ("peername", "sockname") else default


class FakeBroker:
    """Answers with what was recorded; now and then with something else.

    Args:
        rng: chance.
        socket: where it answers.
        told: gets all that it said.
        mood: how many of its answers are wrong; drawn if it is not said.
    """

    def __init__(self, rng: Random, socket: FakeSocket, told: list[bytes], mood: float | None = None) -> None:
        self._rng, self._socket, self._told = rng, socket, told
        self._mood = rng.choice((0.0, 0.0, 0.1, 0.4)) if mood is None else mood
        self._unread = bytearray()
        self._unsent: list[bytes] = []
        self.honest = True
        """Whether its answers had the right numbers and lengths, in their order."""

    def take(self, data: bytes) -> None:
        """Requests, in pieces."""
        self._unread += data
        while len(self._unread) >= 4:
            size = int.from_bytes(self._unread[:4], "big", signed=True)
            if size < 8 or size > 1_000_000:
                # As a broker: what cannot be a request ends the connection.
                self.honest = False
                self._socket.close()
                return
            if len(self._unread) < 4 + size:
                break
            frame = bytes(self._unread[4 : 4 + size])
            del self._unread[: 4 + size]
            self._answer(frame)
        self.deliver_soon()

    def deliver_soon(self) -> None:
        """What was answered arrives in the loop's next turn."""
        asyncio.get_running_loop().call_soon(self.deliver)

    def deliver(self) -> None:
        """Hand over what was answered, as far as it is wanted."""
        while self._unsent and self._socket.reading and not self._socket.closed:
            self._socket.receive(self._unsent.pop(0))

    def _answer(self, frame: bytes) -> None:
        rng = self._rng
        key, version = (int.from_bytes(frame[at : at + 2], "big", signed=True) for at in (0, 2))
        if key == _PRODUCE and _silent(frame):
            return
        known = seeds().answers.get((key, version)) or _of_key(key)
        data = rng.choice(known).data if known else b"\0" * 4 + rng.randbytes(rng.randrange(20))
        number = int.from_bytes(frame[4:8], "big", signed=True)
        wrong = rng.random() < self._mood
        if wrong and known:
            data = mutated(rng, rng.choice(known))
        data = numbered(data, number, answer=True)
        way = rng.random() if wrong else 1.0
        if way < 0.2:
            self.honest = False
            data = (b"", data + data, numbered(data, number + 1, answer=True), data[:3])[rng.randrange(4)]
        sent = framed(rng, data, lies=0.05 if wrong else 0.0)
        if sent[4:] != data or len(data) < 4 or int.from_bytes(sent[:4], "big", signed=True) != len(data):
            self.honest = False
        if not data:
            return
        if wrong and way > 0.95:
            self.honest = False
            self._socket.close()
        self._told.append(sent)
        self._unsent += pieces(rng, sent)


def _of_key(key: int) -> list[Seed]:
    """Answers of the API in other versions: a broker never does that, an attacker may."""
    return [one for (known, _), many in seeds().answers.items() if known == key for one in many]


def _silent(frame: bytes) -> bool:
    """Whether a Produce request gets no answer."""
    try:
        return produce_acks(frame, parse_header(frame)) == 0
    except BadFrame:
        return False
