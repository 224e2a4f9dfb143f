"""Bytes that nobody looks at go from one socket to the other within the kernel, not through the process."""

import asyncio
import contextlib
import fcntl
import os
from typing import Final

from enforcer.host.dial import Upstream
from enforcer.host.sockets import descriptor_of, is_secure

MOVED_FROM_BYTES: Final = 131_072
"""Fewer bytes are not worth the calls."""
MOVED_FROM_READ_BYTES: Final = 32_768
"""What one read brings if more is likely there."""
MOVED_MAX_BYTES: Final = 524_288
"""In one go: other connections have their turn too."""


class Mover:
    """Splices between sockets, for all connections of a proxy, through one pipe that is empty in between."""

    __slots__ = ("_read", "_room", "_write")

    def __init__(self) -> None:
        # Opened when it is needed first.
        self._read = self._write = -1
        self._room = 0

    def move(self, source: int, target: int, count: int) -> tuple[int, bytes]:
        """Move what is there already, as far as there is room for it.

        Args:
            source: descriptor of the socket that is read; an end or error of it is left to who reads next.
            target: descriptor of the socket that is written; nothing else may wait to be written to it.
            count: bytes, at most.

        Returns:
            Bytes taken from the source, and the last of them if the target had no room for these.
        """
        taken = 0
        with contextlib.suppress(OSError):
            if self._read < 0:
                self._open()
            while taken < count:
                wanted = min(count - taken, self._room)
                came = os.splice(source, self._write, wanted, flags=os.SPLICE_F_NONBLOCK)
                if not came:
                    break
                taken += came
                if left := self._give(target, came):
                    return taken, left
        return taken, b""

    def relay(self, source: Upstream, client: asyncio.Transport, count: int) -> int:
        """Move some of the next so many bytes of a broker to its client, past us, as far as they are here.

        Returns how many; none of what TLS has to read or write.
        """
        # What waits to be written goes first.
        if client.is_closing() or client.get_write_buffer_size() or source.secure or is_secure(client):
            return 0
        came_from, goes_to = source.descriptor, descriptor_of(client)
        if came_from < 0 or goes_to < 0:
            return 0
        taken, left = self.move(came_from, goes_to, min(count, MOVED_MAX_BYTES))
        if left:
            client.write(left)
        return taken

    def _give(self, target: int, count: int) -> bytes:
        """Empty the pipe, which has so many bytes; returns those that the target did not take."""
        try:
            while count:
                count -= os.splice(self._read, target, count, flags=os.SPLICE_F_NONBLOCK)
        except OSError:
            # No room, or the target's end: whoever writes next is told of that.
            return b"".join(iter(self._rest, b""))
        return b""

    def _rest(self) -> bytes:
        try:
            return os.read(self._read, self._room)
        except BlockingIOError:
            return b""

    def _open(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # More than the user may have is refused; what a pipe has by default does, with more calls.
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._write, fcntl.F_SETPIPE_SZ, MOVED_MAX_BYTES)
        self._room = fcntl.fcntl(self._write, fcntl.F_GETPIPE_SZ)

    def close(self) -> None:
        """Give the pipe back."""
        if self._read >= 0:
            os.close(self._read)
            os.close(self._write)
            self._read = self._write = -1
