"""The proxy's own connection to a broker, one per client connection."""

import asyncio
from typing import Protocol, cast

from enforcer.core.settings import ProxySettings
from enforcer.host.sockets import descriptor_of
from enforcer.pulsar.staying.targets import Address


class Owner(Protocol):
    """The client connection that it serves."""

    def broker_made(self, transport: asyncio.Transport) -> None:
        """It is connected."""
        ...

    def broker_failed(self, reason: str) -> None:
        """It could not be connected (`refused`, `timeout`)."""
        ...

    def broker_sent(self, data: bytes) -> None:
        """Bytes from the broker."""
        ...

    def broker_full(self, full: bool) -> None:
        """Whether the broker reads too slowly to be sent more."""
        ...

    def broker_lost(self) -> None:
        """The connection is closed, by whomever."""
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
        self._connecting: asyncio.Task[None] | None = None
        self._over = False
        self.transport: asyncio.Transport | None = None

    @property
    def closed(self) -> bool:
        """Whether there is no connection, and will be none."""
        return self.transport is None and (self._over or self._connecting is None)

    @property
    def descriptor(self) -> int:
        """Of its socket; -1 if there is none."""
        return -1 if self.transport is None else descriptor_of(self.transport)

    def dial(self, target: Address) -> None:
        """Begin to connect; the owner is told how it went."""
        self._connecting = asyncio.get_running_loop().create_task(self._dial(target))

    def close(self) -> None:
        """It is needed no more; what was sent still leaves."""
        self._over = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """The same, but what has not left yet is given up."""
        self.close()
        if self.transport is not None:
            self.transport.abort()

    async def _dial(self, target: Address) -> None:
        loop = asyncio.get_running_loop()
        reason = ""
        try:
            async with asyncio.timeout(self._settings.connect_timeout_ms / 1000):
                await loop.create_connection(lambda: self, *target)
        except TimeoutError:
            reason = "timeout"
        except (OSError, ValueError):
            # The second: nothing can be called so.
            reason = "refused"
        if reason and not self._over:
            self._connecting = None
            self._owner.broker_failed(reason)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The broker took the connection."""
        transport = cast(asyncio.Transport, transport)
        if self._over:
            transport.abort()
            return
        self.transport = transport
        settings = self._settings
        transport.set_write_buffer_limits(settings.write_buffer_high_bytes, settings.write_buffer_low_bytes)
        self._owner.broker_made(transport)

    def data_received(self, data: bytes) -> None:
        """Bytes from the broker."""
        self._owner.broker_sent(data)

    def pause_writing(self) -> None:
        """Too much waits to be written."""
        self._owner.broker_full(True)

    def resume_writing(self) -> None:
        """Enough has left."""
        self._owner.broker_full(False)

    def connection_lost(self, exc: Exception | None) -> None:
        """The broker closed the connection, or we did."""
        if self.transport is not None:
            self.transport = None
            self._owner.broker_lost()
