"""Connections to an upstream that hear it while much is said to it.

Who refuses a large body may answer and close before all of it has come. The next write fails then, and the
library reads the answer; but a transport whose write has failed gives nothing more of what its socket holds.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import httpcore2
import httpx2

_LARGE_BYTES: Final = 16_384
"""So much may not fit into the socket at once; less is written before anybody could answer."""
_READ_BYTES: Final = 65_536


class _Hearing(httpcore2.AsyncNetworkStream):
    """A connection that is read from its first large write on, once, until what came is asked for."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream
        self._early: asyncio.Task[bytes] | None = None

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  # its form
        early, self._early = self._early, None
        if early is None:
            return await self._stream.read(max_bytes, timeout)
        try:
            async with asyncio.timeout(timeout):
                return await early
        except TimeoutError:
            raise httpcore2.ReadTimeout from None

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        if len(buffer) >= _LARGE_BYTES and self._early is None:
            self._early = asyncio.get_running_loop().create_task(self._stream.read(_READ_BYTES))
            # Nobody may ask for it any more.
            self._early.add_done_callback(lambda early: early.cancelled() or early.exception())
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        if self._early is not None:
            self._early.cancel()
        await self._stream.aclose()

    async def start_tls(self, *args: Any, **named: Any) -> httpcore2.AsyncNetworkStream:
        return _Hearing(await self._stream.start_tls(*args, **named))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Network(httpcore2.AnyIOBackend):
    async def connect_tcp(self, *args: Any, **named: Any) -> httpcore2.AsyncNetworkStream:
        return _Hearing(await super().connect_tcp(*args, **named))


class _Body(httpx2.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _named():
            async for part in self._stream:
                yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


class Transport(httpx2.AsyncBaseTransport):
    """As the library's own, whose connections cannot be chosen.

    Args:
        tls: how https is spoken; None: as the library does.
        connections: so many at most.
        idle_s: when one that is idle ends.
    """

    def __init__(self, tls: ssl.SSLContext | None, connections: int, idle_s: float) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls or httpx2.create_ssl_context(trust_env=False), max_connections=connections,
            max_keepalive_connections=connections, keepalive_expiry=idle_s, network_backend=_Network(),
        )  # fmt: skip

    async def aclose(self) -> None:
        """See AsyncBaseTransport."""
        await self._pool.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """See AsyncBaseTransport."""
        url = request.url
        made = httpcore2.Request(
            request.method,
            httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw, content=request.stream, extensions=request.extensions,
        )  # fmt: skip
        with _named():
            answer = await self._pool.handle_async_request(made)
        return httpx2.Response(answer.status, headers=answer.headers, stream=_Body(answer.stream))


@contextlib.contextmanager
def _named() -> Iterator[None]:
    """Failures of the one library by the same names of the other."""
    try:
        yield
    except (
        httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException,
        httpcore2.UnsupportedProtocol,
    ) as error:  # fmt: skip
        raise getattr(httpx2, type(error).__name__)(str(error)) from error
