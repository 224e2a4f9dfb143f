"""Relays before a broker's port; one answers commits of transactions with an error."""

import errno
import socket
import threading
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Self

END_TXN = 26
UNKNOWN_SERVER_ERROR = (-1).to_bytes(2, "big", signed=True)
_NO_THROTTLE = bytes(4)
_LIMIT_S = 30.0
_FULL = (errno.EMFILE, errno.ENFILE)
_FULL_S = 0.1


class Relay(ABC):
    """Listens, and connects each client to a broker; a context manager.

    Args:
        listen: host and port.
        to: those of the broker.
    """

    def __init__(self, listen: tuple[str, int], to: tuple[str, int]) -> None:
        self.to = to
        self._listener = socket.create_server(listen)
        self._open: list[socket.socket] = [self._listener]
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        # Nothing is opened any more when all is closed.
        self._accepting.join(_LIMIT_S)
        # Threads that still pass something on take theirs out meanwhile.
        for one in list(self._open):
            # A thread that reads it wakes up by this only.
            shut(one)
            one.close()

    @property
    def listens(self) -> tuple[str, int]:
        """Where, host and port."""
        host, port = self._listener.getsockname()
        return host, port

    def admits(self) -> bool:
        """Whether a new client gets through."""
        return True

    @abstractmethod
    def connected(self, client: socket.socket, broker: socket.socket) -> None:
        """Begin to pass on what they say, in threads."""

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError as error:
                if error.errno not in _FULL:
                    return
                # Descriptors are left again soon.
                time.sleep(_FULL_S)
                continue
            self._open.append(client)
            if not self.admits():
                client.close()
                continue
            try:
                broker = socket.create_connection(self.to, timeout=_LIMIT_S)
            except OSError:  # it is not there
                client.close()
                continue
            broker.settimeout(None)
            self._open.append(broker)
            self.connected(client, broker)


class CommitRelay(Relay):
    """Passes everything on, but says UNKNOWN_SERVER_ERROR to the first commit.

    Args:
        listen, to: see Relay.
        made: the broker gets that commit all the same.
    """

    def __init__(self, listen: tuple[str, int], to: tuple[str, int], *, made: bool) -> None:
        super().__init__(listen, to)
        self._made = made
        self.failed = 0
        """Commits answered with an error."""

    def connected(self, client: socket.socket, broker: socket.socket) -> None:
        """See Relay."""
        hidden: set[bytes] = set()
        threading.Thread(target=self._requests, args=(client, broker, hidden), daemon=True).start()
        threading.Thread(target=self._responses, args=(broker, client, hidden), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket, hidden: set[bytes]) -> None:
        while frame := next_frame(client):
            correlation_id = frame[4:8]
            commits = int.from_bytes(frame[:2], "big") == END_TXN and frame[-1] == 1
            if commits and not self.failed:
                assert int.from_bytes(frame[2:4], "big") < 3, "only the classic form is known here"
                self.failed += 1
                if not self._made:
                    send_frame(client, correlation_id + _NO_THROTTLE + UNKNOWN_SERVER_ERROR)
                    continue
                hidden.add(correlation_id)
            send_frame(broker, frame)

    def _responses(self, broker: socket.socket, client: socket.socket, hidden: set[bytes]) -> None:
        while frame := next_frame(broker):
            if frame[:4] in hidden:
                frame = frame[:8] + UNKNOWN_SERVER_ERROR
            send_frame(client, frame)


def next_frame(source: socket.socket) -> bytes:
    """The next request or response; empty at the end."""
    try:
        size = exactly(source, 4)
        return exactly(source, int.from_bytes(size, "big"))
    except OSError:
        return b""


def exactly(source: socket.socket, count: int) -> bytes:
    """So many bytes; ConnectionResetError at the end."""
    found = b""
    while len(found) < count:
        part = source.recv(count - len(found))
        if not part:
            raise ConnectionResetError
        found += part
    return found


def send_frame(to: socket.socket, frame: bytes) -> None:
    """A frame with its length; a broken connection is closed."""
    try:
        to.sendall(len(frame).to_bytes(4, "big") + frame)
    except OSError:
        to.close()


def shut(one: socket.socket) -> None:
    """End both directions of a connection, if it is not ended."""
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
