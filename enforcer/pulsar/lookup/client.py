"""The proxy's own connection to a broker that a lookup was referred to, logged in as the client."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, cast

from enforcer.host.dial import dial
from enforcer.host.sockets import Address
from enforcer.wire.pulsar.commands import command, parse
from enforcer.wire.pulsar.frames import (
    CONNECTED,
    FRAME_OVERHEAD,
    LOOKUP_RESPONSE,
    MESSAGE_BYTES_DEFAULT,
    PING,
    PONG,
    BadFrame,
    Splitter,
)
from streaming.contract.errors import WeirError

_ALL: Final = frozenset(range(128))


class AskingFailed(WeirError):
    """The broker could not be asked."""


class LookupClient(asyncio.Protocol):
    """Connects when it is first asked.

    Attributes:
        over: it cannot be asked any more.

    Args:
        target: the broker.
        connect: the client's CONNECT.
        now_ms: the steady clock.
        tls: how the broker is spoken to; None: in plain text.
        header: goes before all else (PROXY protocol).
    """

    def __init__(
        self, target: Address, connect: bytes, now_ms: Callable[[], float],
        tls: ssl.SSLContext | None = None, header: bytes = b"",
    ) -> None:  # fmt: skip
        self._tls, self._header = tls, header
        self._target = target
        self._connect = connect
        self._now_ms = now_ms
        self._used_ms = now_ms()
        # Nothing passes: all kinds are wanted.
        limit = MESSAGE_BYTES_DEFAULT + FRAME_OVERHEAD
        self._splitter = Splitter(lambda _data, _unfinished: None, self._take, limit)
        self._splitter.wanted = _ALL
        self._transport: asyncio.Transport | None = None
        self._open: asyncio.Future[None] | None = None
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._heard = 0
        self.over = False

    @property
    def busy(self) -> bool:
        """Whether somebody waits for an answer."""
        return bool(self._waiting)

    def idle_ms(self, now_ms: float) -> float:
        """Since when nobody waits for an answer, ms."""
        return 0.0 if self.busy else now_ms - self._used_ms

    async def ask(self, request_id: int, lookup: bytes) -> bytes:
        """Send a LOOKUP; returns the frame that answers it. The caller limits the time.

        Raises:
            AskingFailed: the broker is away, or does not let the client in.
            OSError: it cannot be connected to.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bytes] = loop.create_future()
        self._waiting[request_id] = answer
        heard = self._heard
        try:
            if self._open is None:
                self._open = loop.create_future()
                await self._dial()
            await asyncio.shield(self._open)
            if self._transport is None:
                raise AskingFailed("the broker closed the connection")
            self._transport.write(lookup)
            heard = self._heard
            return await answer
        except asyncio.CancelledError:
            if heard == self._heard:
                # Nothing has come in all that time: its host may be gone, and this way to it dead.
                self.close()
            raise
        finally:
            self._used_ms = self._now_ms()
            if self._waiting.get(request_id) is answer:
                del self._waiting[request_id]

    def close(self) -> None:
        """It is needed no more."""
        self.over = True
        self._splitter.drop()
        if self._transport is not None:
            self._transport.close()
        failure = AskingFailed("the broker closed the connection")
        for waiting in (self._open, *self._waiting.values()):
            if waiting is not None and not waiting.done():
                waiting.set_exception(failure)
                # Whether somebody waits for it still does not matter.
                waiting.exception()

    async def _dial(self) -> None:
        try:
            await dial(lambda: self, self._target, self._tls, self._header)
        except BaseException:
            # Others that wait for the connection must not wait on, also where this one's time is up.
            self.close()
            raise

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The broker took the connection."""
        self._transport = cast(asyncio.Transport, transport)
        if self.over:
            self._transport.abort()
            return
        self._transport.write(self._connect)

    def data_received(self, data: bytes) -> None:
        """Bytes from the broker."""
        self._heard += 1
        try:
            self._splitter.feed(data)
        except BadFrame:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The broker closed the connection, or we did."""
        self._transport = None
        self.close()

    def _take(self, kind: int, frame: bytes) -> None:
        if kind == PING and self._transport is not None:
            self._transport.write(command(PONG))
        elif kind == LOOKUP_RESPONSE:
            answer = self._waiting.get(parse(frame).request_id)
            if answer is not None and not answer.done():
                answer.set_result(frame)
        elif kind == CONNECTED and self._open is not None and not self._open.done():
            self._open.set_result(None)
        elif kind != PONG and not (self._open is not None and self._open.done()):
            # A login of several steps cannot be repeated for the client.
            self.close()
