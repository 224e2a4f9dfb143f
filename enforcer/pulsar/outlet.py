"""The writing side of one socket: what is sent by others waits while a frame goes on in parts."""

import asyncio
from collections import deque


class Outlet:
    """Writes frames and runs of frames, never one in the middle of another."""

    __slots__ = ("_mid", "_queue", "_transport")

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._mid = False
        self._queue: deque[bytes] = deque()

    def open(self, transport: asyncio.Transport) -> None:
        """Write there from now on."""
        self._transport = transport

    def send(self, frame: bytes) -> None:
        """Send a whole frame, or drop it where there is no connection."""
        if self._transport is None:
            return
        if self._mid:
            self._queue.append(frame)
        else:
            self._transport.write(frame)

    def pass_on(self, data: bytes, unfinished: bool) -> None:
        """Send what came as it came; unfinished: the last frame in it goes on in what follows."""
        if self._transport is None:
            return
        self._transport.write(data)
        self._mid = unfinished
        while self._queue and not unfinished:
            self.send(self._queue.popleft())

    @property
    def held_bytes(self) -> int:
        """What waits to be written."""
        waiting = sum(map(len, self._queue))
        return waiting if self._transport is None else waiting + self._transport.get_write_buffer_size()

    def drop(self) -> None:
        """Send nothing more."""
        self._transport = None
        self._queue.clear()
