"""The proxy's own connection to a broker, one per client connection."""

import asyncio
from typing import Protocol, cast

from enforcer.settings import ProxySettings
from enforcer.wire import BadFrame, FrameSplitter


class Owner(Protocol):
    """The client connection that it serves."""

    def upstream_changed(self) -> None:
        """Connected, or its write buffer was filled or emptied."""
        ...

    def upstream_failed(self, reason: str) -> None:
        """It could not be made or is lost."""
        ...

    def upstream_frames(self, frames: list[bytes]) -> None:
        """Responses."""
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
        self._splitter = FrameSplitter(settings.max_frame_bytes)
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._reading = True
        self._abandoned = False
        self.full = False
        """Whether the broker reads too slowly to be sent more."""

    @property
    def writable(self) -> bool:
        """Whether requests can be sent now."""
        return self._transport is not None and not self.full

    def connect(self, host: str, port: int) -> None:
        """Begin to connect; the owner is told how it went."""
        self._connecting = asyncio.get_running_loop().create_task(self._connect(host, port))

    def send(self, frame: bytes) -> bool:
        """Send one request; False if the connection is lost."""
        if self._transport is None or self._transport.is_closing():
            return False
        self._transport.writelines((len(frame).to_bytes(4, "big"), frame))
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
        """The client is gone."""
        self._abandoned = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._transport is not None:
            # What was sent still leaves: a request that a client sent last must reach the broker.
            self._transport.close()

    async def _connect(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._settings.connect_timeout_ms / 1000):
                await loop.create_connection(lambda: self, host, port)
        except TimeoutError:
            self._owner.upstream_failed("timeout")
        except OSError:
            self._owner.upstream_failed("refused")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The broker took the connection."""
        transport = cast(asyncio.Transport, transport)
        if self._abandoned:
            transport.abort()
            return
        self._transport = transport
        transport.set_write_buffer_limits(
            self._settings.write_buffer_high_bytes, self._settings.write_buffer_low_bytes
        )
        if not self._reading:
            transport.pause_reading()
        self._owner.upstream_changed()

    def data_received(self, data: bytes) -> None:
        """Bytes from the broker."""
        try:
            frames = self._splitter.feed(data)
        except BadFrame:
            self._owner.upstream_failed("bad_frame")
            return
        if frames:
            self._owner.upstream_frames(frames)

    def connection_lost(self, exc: Exception | None) -> None:
        """The broker closed the connection, or we did."""
        self._transport = None
        if not self._abandoned:
            self._owner.upstream_failed("lost")

    def pause_writing(self) -> None:
        """The broker reads too slowly."""
        self.full = True
        self._owner.upstream_changed()

    def resume_writing(self) -> None:
        """The broker has caught up."""
        self.full = False
        self._owner.upstream_changed()
