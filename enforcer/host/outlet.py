"""The writing side of one socket: what is sent by others waits while a frame goes on in parts."""

import asyncio
from collections import deque
from typing import Final

from enforcer.core import bounds
from enforcer.host.secured import kept_by

_COPIED_BYTES: Final = 262_144
"""Of a larger frame a copy costs more than a second write."""


class Outlet:
    """Writes frames and runs of frames, never one in the middle of another.

    Attributes:
        transport: where to; None: there is no connection.
        mid: a frame has left in part.
    """

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.mid = False
        self._queue: deque[bytes] = deque()

    def open(self, transport: asyncio.Transport) -> None:
        """Write there from now on; its protocol is told when too much waits, and when enough has left."""
        self.transport = transport
        transport.set_write_buffer_limits(bounds.WRITE_BUFFER_HIGH_BYTES, bounds.WRITE_BUFFER_LOW_BYTES)

    def send(self, frame: bytes, head: bytes = b"") -> bool:
        """Send a whole frame behind its head; False: there is no connection, and it is dropped."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return False
        if self.mid:
            self._queue.append(head + frame)
        elif head and len(frame) > _COPIED_BYTES:
            transport.write(head)
            transport.write(frame)
        else:
            transport.write(head + frame)
        return True

    def pass_on(self, data: bytes | bytearray | memoryview, unfinished: bool) -> None:
        """Send what came as it came; without a connection it is dropped.

        Args:
            data: frames; the first and the last may be parts.
            unfinished: the last one goes on in what follows.
        """
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        self.mid = unfinished
        while self._queue and not unfinished:
            transport.write(self._queue.popleft())

    @property
    def held_bytes(self) -> int:
        """What waits to be written, and what TLS keeps."""
        waiting = sum(map(len, self._queue))
        return waiting if self.transport is None else waiting + kept_by(self.transport)

    def drop(self) -> None:
        """Send nothing more."""
        self.transport = None
        self._queue.clear()
