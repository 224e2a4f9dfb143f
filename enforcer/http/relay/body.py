"""Bodies of clients' requests: kept as far as they may have to be sent again, the rest passed as it comes."""

import asyncio
from collections.abc import AsyncIterator

from starlette.types import Receive

from enforcer.http.metrics import HttpMetrics


class ClientGone(Exception):
    """The client has left; nobody waits for an answer."""


class ReplayMemory:
    """What the kept bodies of all requests take together, so many bytes at the most."""

    def __init__(self, most: int, metrics: HttpMetrics) -> None:
        self._free = most
        self._gauge = metrics.replay_bytes

    def take(self, count: int) -> bool:
        """Whether there is room for so many more bytes, which are taken then."""
        if count > self._free:
            return False
        self._free -= count
        self._gauge.inc(count)
        return True

    def give_back(self, count: int) -> None:
        """They are not kept any more."""
        self._free += count
        self._gauge.dec(count)


class Body:
    """The body of one request."""

    def __init__(self, receive: Receive, memory: ReplayMemory) -> None:
        self._receive = receive
        self._memory = memory
        self._kept = bytearray()
        self._beyond = b""
        self._ended = False

    @property
    def whole(self) -> bool:
        """Whether all of it is kept."""
        return self._ended and not self._beyond

    @property
    def kept(self) -> bytes:
        """What was read."""
        return bytes(self._kept)

    async def keep(self, most: int, limit_s: float) -> bool:
        """Read it, up to so many bytes and as far as there is room; returns whether that is all of it.

        Raises:
            ClientGone: it does not come any more.
            TimeoutError: it came too slowly.
        """
        async with asyncio.timeout(limit_s):
            while not self._ended:
                chunk = await self._chunk()
                if len(self._kept) + len(chunk) > most or not self._memory.take(len(chunk)):
                    self._beyond = chunk
                    return False
                self._kept += chunk
        return True

    def content(self) -> bytes | AsyncIterator[bytes]:
        """The body for the upstream: bytes, which may be sent again, or what comes, once."""
        return bytes(self._kept) if self.whole else self._streamed()

    async def gone(self) -> None:
        """Wait until the client has left; to be called once the whole body is read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def release(self) -> None:
        """It is not needed any more."""
        self._memory.give_back(len(self._kept))
        self._kept = bytearray()

    async def _streamed(self) -> AsyncIterator[bytes]:
        yield bytes(self._kept)
        # It is gone, and never sent again: others need the room, however long the rest takes.
        self.release()
        yield self._beyond
        while not self._ended:
            yield await self._chunk()

    async def _chunk(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        self._ended = not message.get("more_body", False)
        chunk: bytes = message.get("body", b"")
        return chunk
