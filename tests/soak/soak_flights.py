"""Which requests of clients are in flight at a broker, as a relay before it sees them."""

import socket
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from soak_history import now_ms
from soak_links import Link

_SIZE, _ANSWER = 4, 8
"""Of a frame's length, and of that with what names its request."""
_HEAD, _NAME = 64, 10
"""Of a request with its client's name, and where that stands."""
_COUNTED = (b"\0\0", b"\0\1")
"""Produce and Fetch: our policies let all others pass without a slot (soak_load.EXEMPT)."""
_OWN = b"rdkafka"
"""What Weir's own clients are called, which no limit holds."""


class Heads:
    """The first bytes of each frame of a stream.

    Args:
        whole: they count when all of the frame is there; else as soon as they are.
    """

    def __init__(self, whole: bool) -> None:
        self._whole, self._skip, self._data = whole, 0, bytearray()

    def of(self, data: bytes) -> Iterator[bytes]:
        """Those that a further piece brings."""
        self._data += data
        while True:
            passed = min(self._skip, len(self._data))
            del self._data[:passed]
            self._skip -= passed
            if self._skip or len(self._data) < _SIZE:
                return
            size = _SIZE + int.from_bytes(self._data[:_SIZE], "big")
            if len(self._data) < (size if self._whole else min(size, _ANSWER)):
                return
            yield bytes(self._data[_SIZE : min(size, _HEAD)])
            self._skip = size


class Flights:
    """What is in flight on one connection: since it was passed on, until the answer's first bytes come.

    So it is never longer than the slot is taken.

    Args:
        note: takes begin and end of each, ms, and whether it ended with its connection.
    """

    def __init__(self, note: Callable[[int, int, bool], None]) -> None:
        self._note = note
        self._asked, self._answered = Heads(whole=True), Heads(whole=False)
        # A broker answers in the order in which it was asked.
        self._due: deque[_Flight] = deque()

    def ask(self, data: bytes) -> list["_Flight"]:
        """A piece of requests has come; returns those that it makes whole, which go on now."""
        found = [
            _Flight(head[:2] in _COUNTED and head[_NAME : _NAME + len(_OWN)] != _OWN)
            for head in self._asked.of(data)
        ]
        self._due.extend(found)
        return found

    def answer(self, data: bytes) -> None:
        """A piece of answers has come."""
        for _ in self._answered.of(data):
            self._end(False)

    def end(self) -> None:
        """The connection is over, as both of its threads say."""
        while self._end(True):
            pass

    def _end(self, over: bool) -> bool:
        try:
            flight, now = self._due.popleft(), now_ms()
        except IndexError:
            return False
        if flight.counted and (flight.begun is not None or not over):
            # The answer may come before its own thread knows that all of the request has gone.
            self._note(flight.begun or now, now, over)
        return True


@dataclass(slots=True)
class _Flight:
    counted: bool
    begun: int | None = None
    """Not before it was passed on."""


class CountedLink(Link):
    """A link before a broker that tells what was in flight there.

    Args:
        listen, to: see Link.
        note: see Flights.
    """

    def __init__(
        self, listen: tuple[str, int], to: tuple[str, int], note: Callable[[int, int, bool], None]
    ) -> None:
        super().__init__(listen, to)
        self._note = note
        # By each end; who asks has those that go on now besides.
        self._flights: dict[socket.socket, Flights] = {}
        self._going: dict[socket.socket, list[_Flight]] = {}

    def connected(self, client: socket.socket, broker: socket.socket) -> None:
        """See Relay."""
        self._flights[client] = self._flights[broker] = Flights(self._note)
        self._going[client] = []
        super().connected(client, broker)

    def came(self, source: socket.socket, data: bytes) -> None:
        """See Link."""
        if source in self._going:
            self._going[source] = self._flights[source].ask(data)
        else:
            self._flights[source].answer(data)

    def went(self, source: socket.socket) -> None:
        """See Link."""
        for flight in self._going.get(source, ()):
            flight.begun = now_ms()

    def over(self, source: socket.socket) -> None:
        """See Link."""
        self._going.pop(source, None)
        self._flights.pop(source).end()
