"""The connection that TLS keeps from us: little is handed to it at a time, and what it keeps is counted.

What it has taken it writes to a socket behind it, where nobody sees what waits; and its buffers grow to the
largest read and write and are never smaller again.
"""

import asyncio
from collections import deque
from collections.abc import MutableMapping
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

SLICE_BYTES: Final = 65_536
"""So much is handed to TLS in one go."""
_IDLE_BYTES: Final = 26_624
"""What TLS keeps of a connection that has said nothing but its handshake; measured."""
_HIDDEN_BYTES: Final = 2 * SLICE_BYTES
"""What may wait behind TLS while it takes nothing more: the loop's own mark, and the slice that passed it."""


_READ_BYTES: Final = 262_144
"""What TLS may read in one go."""
_read_into: Final[MutableMapping[asyncio.AbstractEventLoop, bytearray]] = WeakKeyDictionary()
"""Of each loop, for all of its connections: what was read is taken before the next one reads."""


class Secured(asyncio.Transport, asyncio.BufferedProtocol):
    """Stands between TLS and a protocol: the transport of the one, the protocol of the other.

    Args:
        owner: the protocol, which is told of its marks as by any transport.
    """

    _transport: asyncio.Transport
    _shared: bytearray
    _buffer: bytearray

    def __init__(self, owner: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._owner = cast(asyncio.Protocol, owner)
        self._queue: deque[bytearray | memoryview] = deque()
        self._waiting = self._largest_read = self._largest_written = 0
        self._high, self._low = SLICE_BYTES, 0
        # TLS takes nothing more; the owner knows that too much waits.
        self._full = self._paused = False
        self._opens: asyncio.Handle | None = None

    @property
    def kept_bytes(self) -> int:
        """What waits, and what TLS keeps beside it: what was read stays twice, and grows by thirds."""
        unread: int = self._transport.get_read_buffer_size()  # type: ignore[attr-defined]  # of uvloop's TLS
        read = max(self._largest_read, unread)
        own = _IDLE_BYTES + read * 7 // 3 + self._largest_written * 4 // 3
        return self.get_write_buffer_size() + own + (_HIDDEN_BYTES if self._full else 0)

    # What the owner sees (asyncio.Transport) ----------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See asyncio.Transport."""
        if not self._full and len(data) <= SLICE_BYTES:
            if len(data) > self._largest_written:
                self._largest_written = len(data)
            self._transport.write(data)
            return
        self._waiting += len(data)
        if len(data) > SLICE_BYTES:
            self._queue.append(memoryview(bytes(data)))
        elif self._queue and isinstance(last := self._queue[-1], bytearray) and len(last) < SLICE_BYTES:
            last += data
        else:
            self._queue.append(bytearray(data))
        self._hand_over()
        if self._waiting > self._high and not self._paused:
            self._paused = True
            self._owner.pause_writing()

    def _hand_over(self) -> None:
        if self._transport.is_closing():
            # TLS would only log each part.
            self._drop()
        while self._queue and not self._full:
            part: bytearray | memoryview = self._queue.popleft()
            if len(part) > SLICE_BYTES:
                self._queue.appendleft(part[SLICE_BYTES:])
                part = part[:SLICE_BYTES]
            self._waiting -= len(part)
            self._largest_written = max(self._largest_written, len(part))
            self._transport.write(part)

    def _hand_all(self) -> None:
        while self._queue:
            self._transport.write(self._queue.popleft())
        self._waiting = 0

    def _drop(self) -> None:
        self._queue.clear()
        self._waiting = 0

    def get_write_buffer_size(self) -> int:
        """See asyncio.Transport."""
        return self._waiting + self._transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See asyncio.Transport."""
        self._high = SLICE_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See asyncio.Transport."""
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """See asyncio.Transport."""
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        """See asyncio.Transport; what comes, and the other side's end behind it, stays in the socket."""
        if self.is_closing():
            return
        if self._opens is not None:
            self._opens.cancel()
        # Else TLS reads on into a buffer of its own, and drops that where it finds the end.
        self._transport.set_read_buffer_limits(1, 0)  # type: ignore[attr-defined]  # of uvloop's TLS
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """See asyncio.Transport."""
        self._transport.resume_reading()
        # TLS hands over what it has at the loop's next turn; with an end read before that it drops it.
        if self._opens is not None:
            self._opens.cancel()
        self._opens = asyncio.get_running_loop().call_soon(self._open)

    def _open(self) -> None:
        self._opens = None
        if not self.is_closing():
            self._transport.set_read_buffer_limits()  # type: ignore[attr-defined]  # of uvloop's TLS

    def close(self) -> None:
        """See asyncio.Transport; the time for what waits begins, and that is TLS's."""
        self._hand_all()
        self._transport.close()

    def abort(self) -> None:
        """See asyncio.Transport."""
        self._drop()
        self._transport.abort()

    # What TLS sees (asyncio.Protocol) -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is done."""
        self._transport = cast(asyncio.Transport, transport)
        loop = asyncio.get_running_loop()
        self._shared = _read_into.get(loop) or _read_into.setdefault(loop, bytearray(_READ_BYTES))
        # The end of its handshake, which waits until something is written, would fill it.
        self._transport.writelines([b""])
        self._transport.set_write_buffer_limits(1, 0)
        self._owner.connection_made(self)

    def get_buffer(self, sizehint: int) -> bytearray:
        """See asyncio.BufferedProtocol; without one TLS makes a buffer of a quarter MiB for each record."""
        # All of it at once: TLS drops what it keeps when it finds the end of the connection.
        self._buffer = self._shared if sizehint <= len(self._shared) else bytearray(sizehint)
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        if nbytes > self._largest_read:
            self._largest_read = nbytes
        data, self._buffer = bytes(memoryview(self._buffer)[:nbytes]), self._shared
        self._owner.data_received(data)

    def eof_received(self) -> bool | None:
        """See asyncio.Protocol; whatever the owner says, TLS closes now, and takes nothing later."""
        stays = self._owner.eof_received()
        self._hand_all()
        return stays

    def pause_writing(self) -> None:
        """TLS takes no more."""
        self._full = True

    def resume_writing(self) -> None:
        """It does."""
        self._full = False
        self._hand_over()
        if self._paused and self._waiting <= self._low:
            self._paused = False
            self._owner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._drop()
        # Each holds the other: without this the buffers would stay until all garbage is looked at.
        owner, self._owner = self._owner, asyncio.Protocol()
        owner.connection_lost(exc)


def kept_by(transport: asyncio.Transport) -> int:
    """What waits to be written on a connection, and what TLS keeps of it; bytes."""
    return transport.kept_bytes if isinstance(transport, Secured) else transport.get_write_buffer_size()
