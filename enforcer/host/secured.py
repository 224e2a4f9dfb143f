"""TLS of a connection, over what its loop reads and writes: nothing waits where it is not seen or counted.

A loop's own TLS keeps 256 KiB for each connection, reads on behind an end, and hides what it has not sent.
"""

import asyncio
import contextlib
import ssl
from collections import deque
from typing import Any, Final, cast

SLICE_BYTES: Final = 65_536
"""So much goes through OpenSSL in one go: its buffers grow to the largest and are never smaller again."""
_GOODBYE_S: Final = 30.0
"""So long the other side may take for the end of a connection, if nobody says otherwise."""
_IDLE_BYTES: Final = 21_504
"""What TLS keeps of a connection that has said nothing but its handshake; measured."""
_RECORD_BYTES: Final = 16_384
"""The most that OpenSSL gives in one go."""


class Secured(asyncio.Transport, asyncio.Protocol):
    """Stands between a socket and a protocol: the protocol of the one, the transport of the other.

    Args:
        owner: the protocol; it hears of the connection once the handshake is done.
        context: how the other side is spoken to.
        name: the server's, which a client asks for and expects; None: we are the server.
        goodbye_s: so long the other side may take for the end.
    """

    __slots__ = (
        "_closing", "_ended", "_ending", "_failure", "_fresh", "_full", "_goodbye_s", "_high", "_incoming",
        "_largest_read", "_largest_written", "_low", "_made", "_outgoing", "_owner", "_paused", "_queue",
        "_reading", "_tls", "_transport", "_waiter", "_waiting",
    )  # fmt: skip

    def __init__(
        self, owner: asyncio.BaseProtocol, context: ssl.SSLContext, name: str | None = None,
        goodbye_s: float = _GOODBYE_S,
    ) -> None:  # fmt: skip
        super().__init__()
        self._owner, self._goodbye_s = cast(asyncio.Protocol, owner), goodbye_s
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, name is None, name)
        self._queue: deque[bytearray | memoryview] | None = None
        self._waiting = self._largest_read = self._largest_written = 0
        self._high, self._low = SLICE_BYTES, 0
        # The socket takes nothing more; the owner knows that too much waits; it ends.
        self._full = self._paused = self._closing = False
        # It wants to hear; the other side has ended.
        self._reading, self._ended = True, False
        # The owner has heard of it; OpenSSL may still hold what its handshake needed.
        self._made, self._fresh = False, name is not None
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._ending: asyncio.TimerHandle | None = None

    async def shaken(self, limit_s: float) -> None:
        """Wait until the handshake is done.

        Raises:
            OSError: it failed, ssl.SSLError among them; ConnectionAbortedError: it took too long.
        """
        try:
            if not self._made and self._failure is None:
                self._waiter = asyncio.get_running_loop().create_future()
                # It may be done in the very turn in which its time is over.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(limit_s):
                        await self._waiter
            if not self._made:
                late = "the handshake took too long"
                raise (self._failure or ConnectionAbortedError(late)).with_traceback(None)
        finally:
            self._waiter = None
            if not self._made:
                self.abort()
                # Its traceback holds us.
                self._failure = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def kept_bytes(self) -> int:
        """What waits, and what TLS keeps beside it, whose buffers grow by thirds."""
        own = _IDLE_BYTES + (self._largest_read + self._largest_written) * 4 // 3
        return self.get_write_buffer_size() + self._incoming.pending + own

    # What the owner sees (asyncio.Transport) ----------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See asyncio.Transport."""
        if self._closing:
            return
        if not self._full and len(data) <= SLICE_BYTES:
            self._encrypt(data)
            return
        if self._queue is None:
            self._queue = deque()
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

    def _encrypt(self, data: bytes | bytearray | memoryview) -> None:
        if len(data) > self._largest_written:
            self._largest_written = len(data)
        try:
            self._tls.write(data)
        except ssl.SSLError as failure:
            self._fail(failure)
        else:
            self._transport.write(self._outgoing.read())

    def _hand_over(self, all_of_it: bool = False) -> None:
        queue = self._queue
        while queue and (all_of_it or not self._full) and self._failure is None:
            part: bytearray | memoryview = queue.popleft()
            if len(part) > SLICE_BYTES:
                queue.appendleft(part[SLICE_BYTES:])
                part = part[:SLICE_BYTES]
            self._waiting -= len(part)
            self._encrypt(part)

    def _drop(self) -> None:
        self._queue, self._waiting = None, 0

    def get_write_buffer_size(self) -> int:
        """See asyncio.Transport."""
        return self._waiting + self._transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See asyncio.Transport."""
        self._high = SLICE_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See asyncio.Transport."""
        if name == "ssl_object":
            return self._tls
        if name == "sslcontext":
            return self._tls.context
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """See asyncio.Transport."""
        return self._closing or self._transport.is_closing()

    def pause_reading(self) -> None:
        """See asyncio.Transport; what comes, and the other side's end behind it, stays in the socket."""
        self._reading = False
        if not self.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """See asyncio.Transport."""
        self._reading = True
        if not self.is_closing():
            self._transport.resume_reading()
            if self._incoming.pending:
                asyncio.get_running_loop().call_soon(self._read_on)

    def close(self) -> None:
        """See asyncio.Transport; what waits leaves, and the other side has its time to end, too."""
        if not self.is_closing():
            self._say_goodbye()
            # Bytes that nobody reads would make it a reset, and what was written might not arrive.
            self._transport.resume_reading()
            self._reading = True

    def _bound_end(self) -> None:
        self._ending = asyncio.get_running_loop().call_later(self._goodbye_s, self._transport.abort)

    def _say_goodbye(self) -> None:
        self._closing = True
        self._bound_end()
        self._hand_over(all_of_it=True)
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        self._flush()

    def abort(self) -> None:
        """See asyncio.Transport."""
        self._drop()
        self._closing = True
        self._transport.abort()

    # What the socket sees (asyncio.Protocol) ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """There is a socket; the handshake begins."""
        self._transport = cast(asyncio.Transport, transport)
        self._shake()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol; the owner hears of all of it at once."""
        parts: list[bytes] = []
        size = len(data)
        if size > self._largest_read:
            self._largest_read = min(size, SLICE_BYTES)
        if size <= SLICE_BYTES:
            self._decrypt(data, parts)
        else:
            view = memoryview(data)
            for at in range(0, size, SLICE_BYTES):
                if self._failure is None:
                    self._decrypt(view[at : at + SLICE_BYTES], parts)
        self._tell(parts)

    def _decrypt(self, data: bytes | memoryview, parts: list[bytes]) -> None:
        incoming, tls = self._incoming, self._tls
        incoming.write(data)
        if not self._made:
            self._shake()
        # Who stops reading at once hears later what has come behind the handshake.
        if not (self._made and self._reading):
            return
        try:
            while incoming.pending:
                # A whole record, so that OpenSSL keeps no part of one.
                if part := tls.read(_RECORD_BYTES):
                    parts.append(part)
                else:
                    self._ended = True
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._ended = True
        except ssl.SSLError as failure:
            self._failure = failure

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLError as failure:
            self._failure = failure
        else:
            self._made = True
            self._owner.connection_made(self)
            self._wake()
            # In one packet with what it has written.
            self._flush()

    def _tell(self, parts: list[bytes]) -> None:
        """Have the owner hear this, and act on what stands behind it."""
        if self._fresh and self._made and not self._closing:
            # For tickets OpenSSL gets room to answer a handshake, and gives it back behind a write.
            self._encrypt(b"")
            self._fresh = not parts
        if self._outgoing.pending:
            self._flush()
        if parts and not self._closing:
            self._owner.data_received(parts[0] if len(parts) == 1 else b"".join(parts))
        if self._failure is not None:
            self._fail(self._failure)
        elif self._ended:
            if not self._closing:
                # Whatever it says, TLS takes nothing later.
                self._owner.eof_received()
            if not self._closing:
                self._say_goodbye()
            self._transport.close()

    def _read_on(self) -> None:
        if self._reading and not self.is_closing():
            parts = list[bytes]()
            self._decrypt(b"", parts)
            self._tell(parts)

    def _fail(self, failure: Exception) -> None:
        self._failure = failure
        self._drop()
        self._wake()
        if not self._closing:
            self._closing = True
            self._bound_end()
            # An alert says why.
            self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._outgoing.pending and not self._transport.is_closing():
            self._transport.write(self._outgoing.read())

    def eof_received(self) -> None:
        """See asyncio.Protocol; an end that TLS does not tell of is the end of both sides."""
        self._read_on()
        if self._made and not self.is_closing():
            self._say_goodbye()

    def pause_writing(self) -> None:
        """The socket takes no more."""
        self._full = True

    def resume_writing(self) -> None:
        """It does."""
        self._full = False
        self._hand_over()
        if self._paused and self._waiting <= self._low and not self._closing:
            self._paused = False
            self._owner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._drop()
        self._closing = True
        if self._ending is not None:
            self._ending.cancel()
        if self._failure is None:
            early = None if self._made else ConnectionResetError("it ended before the handshake was done")
            self._failure = exc or early
        self._wake()
        # Each holds the other: without this the buffers would stay until all garbage is looked at.
        owner, self._owner = self._owner, asyncio.Protocol()
        if self._made:
            failure, self._failure = self._failure, None
            owner.connection_lost(failure and failure.with_traceback(None))


def kept_by(transport: asyncio.Transport) -> int:
    """What waits to be written on a connection, and what TLS keeps of it; bytes."""
    return transport.kept_bytes if isinstance(transport, Secured) else transport.get_write_buffer_size()
