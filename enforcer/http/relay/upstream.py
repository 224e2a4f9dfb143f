"""The admin API behind the proxy: one request to it, streamed both ways, and what its failures mean.

What it sends on to another server is followed here, so that no client leaves the proxy: Pulsar's brokers
answer 307 where another one owns the topic. The request goes there with its body and its credential, so only
to hosts that are ours, and only if the upstream itself named them.
"""

import asyncio
import re
import ssl
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final, Self
from urllib.parse import urljoin, urlsplit

import httpx2

from enforcer.http.metrics import HttpMetrics
from enforcer.http.refusal import HttpRefusal
from streaming.contract.topics import address_text

Headers = list[tuple[bytes, bytes]]
"""As ASGI has them, names in small letters."""

_HOP_BY_HOP: Final = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer"
    b" transfer-encoding upgrade".split()
)
_NOT_FORWARDED: Final = frozenset(
    # Who really asks is for the upstream to find out; methods are what they are, or rules would not see them.
    b"host expect content-length x-original-principal x-http-method x-http-method-override"
    b" x-method-override".split()
)
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_PORTS: Final = {"http": 80, "https": 443}
CONNECTIONS_MAX: Final = 100
"""Connections to the upstream; further requests wait as long as for a connection, then 503."""
_CONNECT_S: Final = 5.0
"""Limit of a connection attempt to the upstream, then 502."""
ANSWER_MS: Final = 300_000
"""Limit for the head of an answer, and for each part of its body."""
_TIMEOUT: Final = {
    "connect": _CONNECT_S, "pool": _CONNECT_S, "read": ANSWER_MS / 1000, "write": ANSWER_MS / 1000,
}  # fmt: skip
_IDLE_S: Final = 5.0
"""Idle connections end well before the upstream would end them."""
REDIRECTS_MAX: Final = 5
"""How often one request may be sent on: brokers send it to the owner at once, and a circle ends."""
_SENT_ON: Final = frozenset((307, 308))
_STATUS_END: Final = 600
"""Nothing from here on is a status that our server can pass on (RFC 9110, 15)."""
_OF_ONE_HOST: Final = frozenset((b"cookie",))


class BadAddress(ValueError):
    """No URL of an HTTP server."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where an HTTP server is.

    Attributes:
        base: what its paths begin with, without a slash at the end.
    """

    scheme: str
    host: str
    port: int
    base: str = ""

    @classmethod
    def of_url(cls, url: str) -> Self:
        """Read a URL; its query and user are left out. Raises BadAddress."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise BadAddress(str(error)) from None
        if parts.scheme not in _PORTS or not parts.hostname:
            raise BadAddress("it needs http:// or https:// and a host")
        return cls(parts.scheme, parts.hostname, port or _PORTS[parts.scheme], parts.path.rstrip("/"))

    @property
    def authority(self) -> str:
        """HOST:PORT for the Host header."""
        text = address_text(self.host, self.port)
        return text.rpartition(":")[0] if self.port == _PORTS[self.scheme] else text

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.base}"


class UpstreamFailed(HttpRefusal):
    """No answer.

    Args:
        kind: the reason in a word, for metrics.
        sent: the upstream may have carried the request out.
    """

    def __init__(self, status: int, reason: str, kind: str, *, sent: bool) -> None:
        super().__init__(status, reason)
        self.kind = kind
        self.sent = sent


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request to an upstream: path and query as they go out, no headers of one connection."""

    method: str
    target: bytes
    headers: Headers
    content: bytes | AsyncIterator[bytes] = b""


class Reply:
    """An answer whose body is still to be read; to be closed. Headers are without those of one connection."""

    def __init__(self, response: httpx2.Response, metrics: HttpMetrics) -> None:
        self._response = response
        self._metrics = metrics
        self.status = response.status_code
        headers = end_to_end((name.lower(), value) for name, value in response.headers.raw)
        # When it was answered says our own server; chunks alone say how long they are (RFC 9112, 6.3).
        ours = {b"date", b"content-length"} if "transfer-encoding" in response.headers else {b"date"}
        self.headers = [(name, value) for name, value in headers if name not in ours]

    def header(self, name: bytes) -> bytes | None:
        """The first header of a name."""
        return next((value for known, value in self.headers if known == name), None)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes, encoded as it is; raises UpstreamFailed: it ended too early."""
        assert isinstance(self._response.stream, httpx2.AsyncByteStream)
        try:
            async for chunk in self._response.stream:
                yield chunk
        except httpx2.HTTPError as error:
            raise _failed(error, self._metrics) from error

    async def aclose(self) -> None:
        """Give the connection back, or end it if the body was not read."""
        await self._response.aclose()


class Upstream:
    """Sends requests, wherever they are sent on to; keeps connections from one to the next, and nothing else.

    Args:
        home: the upstream's own address.
        allowed: hosts that they may be sent on to, HOST or HOST:PORT with `*`; `home`'s host always; from
            https to https alone.
        metrics: counts.
        tls: how https is spoken; None: as the library does.
        transport: instead of the network.
    """

    def __init__(
        self,
        home: Address,
        allowed: Sequence[str],
        metrics: HttpMetrics,
        tls: ssl.SSLContext | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._home, self._metrics = home, metrics
        # The brackets of IPv6 are meant as such.
        self._allowed = [re.sub(r"^\[(?=.*:.*\])", "[[]", pattern.lower()) for pattern in allowed]
        limits = httpx2.Limits(
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=CONNECTIONS_MAX,
            keepalive_expiry=_IDLE_S,
        )
        # A transport, not a client: clients keep cookies and add headers of their own.
        self._transport = transport or httpx2.AsyncHTTPTransport(
            verify=tls or True, limits=limits, trust_env=False
        )

    async def send(self, request: ApiRequest) -> Reply:
        """The answer of the server that answers itself, to a target without the upstream's base.

        Raises:
            UpstreamFailed: none did.
        """
        address = self._home
        outgoing = replace(request, target=self._home.base.encode() + request.target)
        for hops in range(REDIRECTS_MAX + 1):
            reply = await self._send(address, outgoing)
            location = reply.header(b"location")
            if reply.status not in _SENT_ON or location is None:
                return reply
            if reply.header(b"content-length") == b"0":
                await anext(reply.chunks(), None)  # or its connection could not be used again
            await reply.aclose()
            if hops == REDIRECTS_MAX:
                raise self._refused(f"The upstream sent it on more than {REDIRECTS_MAX} times")
            if not isinstance(request.content, bytes):
                raise self._refused("The upstream sent it on, and its body was too large to be kept")
            address, target = self._next(address, outgoing.target, location)
            outgoing = replace(outgoing, target=target, headers=self._headers(address, request.headers))
            self._metrics.redirects.labels("followed").inc()
        raise AssertionError("the last hop answers or is refused")

    async def close(self) -> None:
        """End all connections."""
        await asyncio.shield(self._transport.aclose())

    async def _send(self, address: Address, request: ApiRequest) -> Reply:
        """One request to one server; raises UpstreamFailed: no answer."""
        began = time.monotonic()
        try:
            try:
                response = await self._once(address, request)
            except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError):
                # An idle connection may end just when it is used again.
                if request.method not in _SAFE or request.content != b"":
                    raise
                response = await self._once(address, request)
            if response.status_code >= _STATUS_END:
                await response.aclose()
                raise httpx2.RemoteProtocolError("no status of HTTP")
        except httpx2.HTTPError as error:
            raise _failed(error, self._metrics) from error
        self._metrics.upstream_seconds.observe(time.monotonic() - began)
        return Reply(response, self._metrics)

    async def _once(self, address: Address, request: ApiRequest) -> httpx2.Response:
        made = httpx2.Request(
            request.method,
            httpx2.URL(f"{address.scheme}://{address.authority}/"),
            headers=[(b"host", address.authority.encode()), *request.headers],
            content=request.content or None,
            extensions={"timeout": _TIMEOUT, "target": request.target},
        )
        return await self._transport.handle_async_request(made)

    def _next(self, address: Address, target: bytes, location: bytes) -> tuple[Address, bytes]:
        try:
            here = f"{address.scheme}://{address.authority}{target.decode('latin-1')}"
            url = urljoin(here, location.decode("latin-1"))
            to, parts = Address.of_url(url), urlsplit(url)
        except ValueError:
            raise self._refused("The upstream sent it on to no address") from None
        if not self._is_known(to):
            where = f"{to.scheme}://{to.authority}"
            raise self._refused(f"The upstream sent it on to {where}: not in http.allowed_hosts, or no TLS")
        path = parts.path or "/"
        return to, f"{path}?{parts.query}".encode("latin-1") if parts.query else path.encode("latin-1")

    def _is_known(self, to: Address) -> bool:
        if to.scheme != self._home.scheme == "https":
            # Its credential would go there in the clear.
            return False
        if to.host == self._home.host and to.scheme == self._home.scheme:
            return True
        text = address_text(to.host, to.port)
        names = to.host, f"{to.host}:{to.port}", text, text.rpartition(":")[0]
        return any(fnmatchcase(name, pattern) for name in names for pattern in self._allowed)

    def _headers(self, to: Address, headers: Headers) -> Headers:
        if to.host == self._home.host:
            return headers
        return [(name, value) for name, value in headers if name not in _OF_ONE_HOST]

    def _refused(self, reason: str) -> UpstreamFailed:
        self._metrics.redirects.labels("refused").inc()
        # Whoever sends a request on has not carried it out.
        return UpstreamFailed(502, reason, "redirect", sent=False)


def forwarded(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """What of a client's headers the upstream gets."""
    return [(name, value) for name, value in end_to_end(headers) if name not in _NOT_FORWARDED]


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Headers without those of one connection, and without those that `Connection` names as such."""
    given = list(headers)
    named = {
        name.strip().lower() for key, value in given if key == b"connection" for name in value.split(b",")
    }
    return [(name, value) for name, value in given if name not in _HOP_BY_HOP and name not in named]


def _failed(error: httpx2.HTTPError, metrics: HttpMetrics) -> UpstreamFailed:
    if isinstance(error, httpx2.PoolTimeout):
        failed = UpstreamFailed(503, "All connections to the upstream are at work", "busy", sent=False)
    elif isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        failed = UpstreamFailed(502, "The upstream cannot be reached", "connect", sent=False)
    elif isinstance(error, httpx2.TimeoutException):
        failed = UpstreamFailed(
            504, "The upstream did not answer in time; it may have done it all the same", "timeout", sent=True
        )
    elif isinstance(error, httpx2.LocalProtocolError | httpx2.UnsupportedProtocol):
        failed = UpstreamFailed(400, "The request cannot be sent on", "request", sent=False)
    else:
        failed = UpstreamFailed(
            502, "The upstream ended the connection; it may have done it all the same", "ended", sent=True
        )
    metrics.upstream_failures.labels(failed.kind).inc()
    return failed
