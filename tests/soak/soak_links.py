"""Relays that drop, delay, reset and halve what passes."""

import socket
import threading
import time
from contextlib import suppress

from path_kit import AT_ONCE_BYTES, Path
from relay_kit import shut

_DELAY_S = 0.3


class Link(Path):
    """Passes everything on until something is done to it; a context manager.

    Args:
        listen: where, host and port.
        to: where it leads.
    """

    def __init__(self, listen: tuple[str, int], to: tuple[str, int]) -> None:
        super().__init__(listen, to)
        self._delay_s, self._halving = 0.0, False
        self._half_ended: set[socket.socket] = set()
        self._lock = threading.Lock()

    def make(self, what: str) -> None:
        """Cut: all stands still; delay: each piece; halve: the next pieces in part, then the end; reset."""
        if what == "cut":
            self.cut()
        elif what == "delay":
            self._delay_s = _DELAY_S
        elif what == "halve":
            self._halving = True
        else:
            assert what == "reset", what
            with self._lock:
                for one in self._open[1:]:
                    shut(one)

    def mend(self) -> None:
        """All goes on."""
        self._delay_s, self._halving = 0.0, False
        super().mend()

    def came(self, source: socket.socket, data: bytes) -> None:
        """A piece has come, and is not passed on yet."""

    def went(self, source: socket.socket) -> None:
        """The newest piece from there was passed on whole."""

    def over(self, source: socket.socket) -> None:
        """Nothing more comes from there."""

    def _pass(self, source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(AT_ONCE_BYTES):
                self.came(source, data)
                self._whole.wait()
                time.sleep(self._delay_s)
                if self._halving:
                    to.sendall(data[: len(data) // 2])
                    break
                to.sendall(data)
                self.went(source)
        self.over(source)
        shut(source)
        shut(to)
        with self._lock:
            if to not in self._half_ended:
                self._half_ended.add(source)
                return
            self._half_ended.discard(to)
            # An hour has more connections than a process may hold.
            for one in (source, to):
                self._open.remove(one)
                one.close()
