"""The connections that a proxy itself makes to brokers: no other room dials."""

import asyncio
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from enforcer.core import bounds
from enforcer.host.secured import Secured, kept_by
from enforcer.host.sockets import Address, descriptor_of, unread
from streaming.contract.topics import address_text

_COPIED_BYTES: Final = 262_144
"""Of a larger frame a copy costs more than a second write."""
CONNECT_TIMEOUT_MS: Final = 10_000
"""Limit of an attempt to connect to a broker, its handshake among it."""

logger = logging.getLogger(__name__)


async def dial(
    make: Callable[[], asyncio.Protocol], address: Address, tls: ssl.SSLContext | None = None,
    header: bytes = b"",
) -> None:  # fmt: skip
    """Connect to a broker, in front of all else with a PROXY header; raises OSError if that cannot be."""
    loop = asyncio.get_running_loop()
    try:
        secured = None if tls is None else Secured(make(), tls, address[0])
        way: dict[str, Any] = {"host": address[0], "port": address[1]}
        if header:
            way = {"sock": await _begin(address, header)}
        await loop.create_connection(make if secured is None else lambda: secured, **way)
        if secured is not None:
            await secured.shaken(CONNECT_TIMEOUT_MS / 1000)
    except ssl.SSLError as error:
        # Nothing else tells an operator that a CA is missing.
        logger.warning("the broker %s cannot be spoken to by TLS: %s", address_text(*address), error)
        raise
    except (ValueError, RuntimeError) as error:
        # Nothing can be called so, or there is no thread left to look it up.
        raise OSError(str(error)) from error


async def _begin(address: Address, header: bytes) -> socket.socket:
    """A socket to the first of its addresses that answers, which has been sent this."""
    failure = OSError("there is no such host")
    # Not the loop's own, which leaves out an address' scope.
    found_all = await asyncio.to_thread(socket.getaddrinfo, *address, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, place in found_all:
        try:
            # Of a family that this machine has not there is none.
            return await _sent(socket.socket(family, kind, protocol), place, header)
        except OSError as error:
            failure = error
    raise failure


async def _sent(made: socket.socket, place: Any, header: bytes) -> socket.socket:
    loop = asyncio.get_running_loop()
    made.setblocking(False)
    try:
        await loop.sock_connect(made, place)
        await loop.sock_sendall(made, header)
    except BaseException:
        made.close()
        raise
    return made


class Outlet:
    """Writes frames and runs of frames to a socket, never one in the middle of another.

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


class Introduced(Protocol):
    """A client connection of which brokers hear."""

    peer: object
    """Whose it is: the client's address, if it is known."""
    server_name: str
    """The server that the client asked for by TLS (SNI); empty: none."""


class Owner(Introduced, Protocol):
    """The client connection that a broker connection serves."""

    def upstream_changed(self) -> None:
        """It is connected, or its write buffer was filled or emptied."""

    def upstream_failed(self, reason: str) -> None:
        """It could not be made (`refused`, `timeout`, `tls`) or is `lost`, in whatever way."""

    def upstream_closed(self) -> None:
        """It is closed, as the owner wanted."""

    def upstream_received(self, data: bytes) -> None:
        """Bytes from the broker."""


class Upstream(Outlet, asyncio.Protocol):
    """A broker connection, one per client connection.

    Attributes:
        full: the broker reads too slowly to be sent more.
        writable: requests can be sent now.

    Args:
        owner: the client connection.
        tls: None: in plain text.
        introduce: what a broker hears of the owner's client before all else.
    """

    def __init__(
        self, owner: Owner, tls: ssl.SSLContext | None = None,
        introduce: Callable[[Introduced], bytes] = lambda _owner: b"",
    ) -> None:  # fmt: skip
        super().__init__()
        self._tls, self._introduce = tls, introduce
        self._owner = owner
        self._connecting: asyncio.Task[None] | None = None
        self._reading = True
        self._over = self._heard = False
        self.full = self.writable = False

    @property
    def closed(self) -> bool:
        """Whether there is no connection, and will be none."""
        return self.transport is None and (self._over or self._connecting is None)

    @property
    def secure(self) -> bool:
        """Whether the broker is spoken to by TLS."""
        return self._tls is not None

    @property
    def descriptor(self) -> int:
        """Of its socket; -1 if there is none, or `pause_reading` was called last."""
        transport = self.transport
        return -1 if transport is None or not self._reading else descriptor_of(transport)

    def dial(self, address: Address) -> None:
        """Begin to connect; the owner is told how it went."""
        self._connecting = asyncio.get_running_loop().create_task(self._dial(address))

    def pause_reading(self) -> None:
        """Read nothing for now."""
        self._reading = False
        if self.transport is not None:
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._reading = True
        if self.transport is not None:
            self.transport.resume_reading()

    def close(self) -> None:
        """It is needed no more; what was sent still leaves."""
        self._give_up()
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """The same, but what has not left yet is given up."""
        self._queue.clear()
        self._give_up()
        if self.transport is not None:
            # Not closed before: TLS would take all that waits first.
            self.transport.abort()

    def _give_up(self) -> None:
        self._over = True
        if self._connecting is not None:
            self._connecting.cancel()

    async def _dial(self, address: Address) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_MS / 1000):
                await dial(lambda: self, address, self._tls, self._introduce(self._owner))
        except TimeoutError:
            self._fail("timeout")
        except ssl.SSLError:
            self._fail("tls")
        except OSError:
            self._fail("refused")

    def _fail(self, reason: str) -> None:
        if self._connecting is None:
            # It was made in the very turn in which its time was over: whatever ends it now tells so itself.
            return
        self._connecting = None
        self._owner.upstream_failed(reason)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The broker took the connection."""
        transport = cast(asyncio.Transport, transport)
        if self._over:
            transport.abort()
            return
        self.open(transport)
        self.writable, self._connecting = True, None
        if not self._reading:
            transport.pause_reading()
        self._owner.upstream_changed()

    def data_received(self, data: bytes) -> None:
        """Bytes from the broker."""
        self._heard = True
        self._owner.upstream_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The broker closed the connection, or we did."""
        if exc is not None and not self._over and self.transport is not None:
            # A write failed before all that it said was read.
            for data in unread(self.transport, bounds.WRITE_BUFFER_HIGH_BYTES):
                self._owner.upstream_received(data)
        self.drop()
        self.writable = False
        if self._over:
            self._owner.upstream_closed()
        else:
            self._owner.upstream_failed(self._lost(exc))

    def _lost(self, exc: Exception | None) -> str:
        if not isinstance(exc, ssl.SSLError):
            return "lost"
        logger.warning("a broker has ended a connection by TLS: %s", exc)
        # With TLS 1.3 a broker says only now that it wants a certificate, or another one.
        return "lost" if self._heard else "tls"

    def pause_writing(self) -> None:
        """The broker reads too slowly."""
        self.full, self.writable = True, False
        self._owner.upstream_changed()

    def resume_writing(self) -> None:
        """The broker has caught up."""
        self.full, self.writable = False, self.transport is not None
        self._owner.upstream_changed()


MakeUpstream = Callable[[Owner], Upstream]
"""Makes the broker connection of a client connection, not dialed yet; tests put another one in."""
