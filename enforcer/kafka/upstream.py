"""The proxy's own connection to a broker, one per client connection."""

import asyncio
from collections import deque
from typing import Final, Protocol, cast

from enforcer.core.settings import ProxySettings
from enforcer.host.sockets import descriptor_of, unread
from enforcer.wire.kafka.frames import LENGTH_BYTES

_COPIED_BYTES: Final = 262_144


class Owner(Protocol):
    """The client connection that it serves."""

    def upstream_changed(self) -> None:
        """Connected, or its write buffer was filled or emptied."""
        ...

    def upstream_failed(self, reason: str) -> None:
        """It could not be made or is lost."""
        ...

    def upstream_closed(self) -> None:
        """It is closed, as the owner wanted."""
        ...

    def upstream_received(self, data: bytes) -> None:
        """Bytes of responses."""
        ...


class Upstream(asyncio.Protocol):
    """A broker connection.

    Args:
        owner: the client connection.
        settings: time limits and bounds.
    """

    def __init__(self, owner: Owner, settings: ProxySettings) -> None:
        self._owner = owner
        self._settings = settings
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._reading = True
        self._abandoned = False
        # A client's request has been sent in part; what else is to be sent waits for the rest of it.
        self._passing = False
        self._queued: deque[bytes] = deque()
        self.full = False
        """Whether the broker reads too slowly to be sent more."""
        self.writable = False
        """Whether requests can be sent now."""

    @property
    def closed(self) -> bool:
        """Whether there is no connection, and will be none."""
        return self._transport is None and (self._abandoned or self._connecting is None)

    @property
    def descriptor(self) -> int:
        """Of its socket; -1 while nothing is read from it."""
        transport = self._transport
        return -1 if transport is None or not self._reading else descriptor_of(transport)

    def connect(self, host: str, port: int) -> None:
        """Begin to connect; the owner is told how it went."""
        self._connecting = asyncio.get_running_loop().create_task(self._connect(host, port))

    def send(self, frame: bytes) -> bool:
        """Send one request, its length put before it; False if the connection is lost."""
        if self._transport is None or self._transport.is_closing():
            return False
        if self._passing:
            # In the middle of another request: a lookup or what waited for one, at most one per open answer.
            self._queued.append(frame)
        else:
            length = len(frame).to_bytes(LENGTH_BYTES, "big")
            if len(frame) > _COPIED_BYTES:
                # A copy costs more than a second write.
                self._transport.write(length)
                self._transport.write(frame)
            else:
                self._transport.write(length + frame)
        return True

    def pass_on(self, data: bytes | bytearray | memoryview, unfinished: bool) -> bool:
        """Send requests as they came; False if the connection is lost.

        Args:
            data: requests with their lengths; the first and the last may be parts.
            unfinished: the rest of the last one is still to come.
        """
        if self._transport is None or self._transport.is_closing():
            return False
        self._transport.write(data)
        self._passing = unfinished
        while self._queued and not unfinished:
            self.send(self._queued.popleft())
        return True

    def pause_reading(self) -> None:
        """Read no responses for now."""
        self._reading = False
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read responses again."""
        self._reading = True
        if self._transport is not None:
            self._transport.resume_reading()

    def abandon(self) -> None:
        """It is needed no more; what was sent still leaves."""
        self._abandoned = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._transport is not None:
            self._transport.close()

    @property
    def held_bytes(self) -> int:
        """What waits to be written."""
        waiting = sum(map(len, self._queued))
        return waiting if self._transport is None else waiting + self._transport.get_write_buffer_size()

    def abort(self) -> None:
        """The same, but what has not left yet is given up."""
        self._queued.clear()
        self.abandon()
        if self._transport is not None:
            self._transport.abort()

    async def _connect(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._settings.connect_timeout_ms / 1000):
                await loop.create_connection(lambda: self, host, port)
        except TimeoutError:
            self._fail("timeout")
        except OSError:
            self._fail("refused")

    def _fail(self, reason: str) -> None:
        self._connecting = None
        self._owner.upstream_failed(reason)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The broker took the connection."""
        transport = cast(asyncio.Transport, transport)
        if self._abandoned:
            transport.abort()
            return
        self._transport, self._connecting = transport, None
        self.writable = True
        transport.set_write_buffer_limits(
            self._settings.write_buffer_high_bytes, self._settings.write_buffer_low_bytes
        )
        if not self._reading:
            transport.pause_reading()
        self._owner.upstream_changed()

    def data_received(self, data: bytes) -> None:
        """Bytes from the broker."""
        self._owner.upstream_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The broker closed the connection, or we did."""
        if exc is not None and not self._abandoned and self._transport is not None:
            # A write failed before all answers were read.
            for data in unread(self._transport, self._settings.write_buffer_high_bytes):
                self._owner.upstream_received(data)
        self._transport = None
        self.writable = False
        if self._abandoned:
            self._owner.upstream_closed()
        else:
            self._owner.upstream_failed("lost")

    def pause_writing(self) -> None:
        """The broker reads too slowly."""
        self.full = True
        self.writable = False
        self._owner.upstream_changed()

    def resume_writing(self) -> None:
        """The broker has caught up."""
        self.full = False
        self.writable = self._transport is not None
        self._owner.upstream_changed()
