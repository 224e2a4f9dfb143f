"""Paths to a broker: cut, spread over several proxies, announced."""

import itertools
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress

from relay_kit import Relay, shut

HOST = "127.0.0.1"
AT_ONCE_BYTES = 65_536


class Path(Relay):
    """Passes everything on until it is cut: then what is on its way stands still, and nobody new comes in."""

    def __init__(self, listen: tuple[str, int], to: tuple[str, int]) -> None:
        super().__init__(listen, to)
        self._whole = threading.Event()
        self._whole.set()

    def connected(self, client: socket.socket, broker: socket.socket) -> None:
        """See Relay."""
        for ends in ((client, broker), (broker, client)):
            threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def cut(self) -> None:
        """From now on nothing gets through."""
        self._whole.clear()

    def mend(self) -> None:
        """All goes on."""
        self._whole.set()

    def admits(self) -> bool:
        """See Relay."""
        return self._whole.is_set()

    def __exit__(self, *_: object) -> None:
        self.mend()
        super().__exit__()

    def _pass(self, source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(AT_ONCE_BYTES):
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
    """A path at any port; where it leads (`to`) is said later.

    The brokers must advertise `address` to who comes by it, or he would go on by another path.
    """

    def __init__(self) -> None:
        super().__init__((HOST, 0), (HOST, 0))
        self.address = "{}:{}".format(*self.listens)


class AnnouncingRelay(Path):
    """A load balancer: says in front of each connection whose it is, then passes everything on.

    Args:
        listen, to: see Relay.
        header: of the PROXY protocol.
    """

    def __init__(self, listen: tuple[str, int], to: tuple[str, int], header: bytes) -> None:
        super().__init__(listen, to)
        self.header = header

    def connected(self, client: socket.socket, broker: socket.socket) -> None:
        """See Relay."""
        broker.sendall(self.header)
        super().connected(client, broker)
