"""Paths to a broker: one that can be cut, and one that spreads connections over several proxies."""

import itertools
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

from relay_kit import Relay, shut

HOST = "127.0.0.1"
_AT_ONCE_BYTES = 65_536


class Path(Relay):
    """Passes everything on while it is whole."""

    def __init__(self, listen: tuple[str, int], to: tuple[str, int]) -> None:
        super().__init__(listen, to)
        self._whole = threading.Event()
        self._whole.set()

    def connected(self, client: socket.socket, broker: socket.socket) -> None:
        """See Relay."""
        for ends in ((client, broker), (broker, client)):
            threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_AT_ONCE_BYTES):
                self._whole.wait()
                to.sendall(data)
        # Both ends: the other thread waits in one of them.
        shut(source)
        shut(to)


class SpreadPath(Path):
    """Leads each new connection to the next of several addresses, as a Service of Kubernetes may."""

    def __init__(self, listen: tuple[str, int], targets: Sequence[tuple[str, int]]) -> None:
        super().__init__(listen, targets[0])
        self._targets = itertools.cycle(targets)

    def admits(self) -> bool:
        """See Relay."""
        self.to = next(self._targets)
        return True


class CutPath(Path):
    """Passes everything on until it is cut, then what is on its way stands still; a context manager.

    The brokers must advertise `address` to who comes by it, or he would go on by another path. Where it leads
    (`to`) is said later.
    """

    def __init__(self) -> None:
        super().__init__((HOST, 0), (HOST, 0))
        self.address = f"{HOST}:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        """From now on nothing gets through."""
        self._whole.clear()

    def mend(self) -> None:
        """All goes on."""
        self._whole.set()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.mend()
        super().__exit__(kind, value, trace)

    def admits(self) -> bool:
        """See Relay."""
        return self._whole.is_set()
