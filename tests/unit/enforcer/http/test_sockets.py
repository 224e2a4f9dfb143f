"""The proxy as a server between real sockets: what HTTP's library adds, takes away and streams."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from http_kit import proxied, serving
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from tls_kit import LOOPBACK, Authority, Pair

PART = b"x" * 65_536
PARTS = 800
"""50 MiB together."""


class Upstream:
    """An API that answers with what it got, or with much."""

    def __init__(self) -> None:
        self.given = 0
        self.heads: list[dict[str, str]] = []
        self.clients: set[tuple[str, int]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        request = Request(scope, receive)
        self.heads.append(dict(request.headers))
        self.clients.add(scope["client"])
        response = Response(await request.body(), headers={"x-method": request.method})
        if request.url.path == "/late":
            await asyncio.sleep(0.3)
        if (status := request.url.path[1:]) in ("204", "304", "307"):
            response = Response(status_code=int(status), headers={"location": "/x"})
        if request.url.path == "/much":
            response = StreamingResponse(self._much(), headers={"content-encoding": "gzip"})
        await response(scope, receive, send)

    async def _much(self) -> AsyncIterator[bytes]:
        for _ in range(PARTS):
            # So that it hears of the end of its connection.
            await asyncio.sleep(0)
            self.given += 1
            yield PART


@asynccontextmanager
async def between() -> AsyncIterator[tuple[int, Upstream]]:
    """The port of a proxy before an upstream, and that."""
    upstream = Upstream()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("enforcer.http.proxy.REPLAY_BODY_BYTES", 100)
        async with serving(upstream) as behind, proxied(f"http://127.0.0.1:{behind}") as port:
            yield port, upstream


def by_tls(pair: Pair) -> AbstractAsyncContextManager[int]:
    """The port of an upstream with a certificate."""
    return serving(Upstream(), ssl_certfile=pair.certificate, ssl_keyfile=pair.key)


async def ask(port: int, request: bytes) -> bytes:
    """All that a server answers on a connection that ends with it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer


async def test_bodies_lengths_and_methods() -> None:
    """In chunks or not, expected or not, kept or streamed; HEAD has no body."""
    async with between() as (port, upstream):
        head = b"POST /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
        chunked = b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n"
        assert (await ask(port, head + chunked)).endswith(b"\r\n\r\nabcdef")
        assert upstream.heads[-1]["content-length"] == "6"
        expecting = b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc"
        answer = await ask(port, head + expecting)
        assert answer.startswith(b"HTTP/1.1 100 ") and answer.endswith(b"\r\n\r\nabc")
        large = b"y" * 5_000
        answer = await ask(port, head + b"Content-Length: 5000\r\n\r\n" + large)
        assert answer.endswith(large) and upstream.heads[-1]["content-length"] == "5000"
        streamed = b"Transfer-Encoding: chunked\r\n\r\n1388\r\n" + large + b"\r\n0\r\n\r\n"
        # A length beside chunks counts for nothing.
        for length in (b"", b"Content-Length: 1\r\n"):
            assert (await ask(port, head + length + streamed)).endswith(large)
            assert upstream.heads[-1]["transfer-encoding"] == "chunked"
            assert "content-length" not in upstream.heads[-1]
        answer = await ask(port, b"HEAD /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        assert b"x-method: HEAD" in answer and answer.endswith(b"\r\n\r\n")
        assert answer.lower().count(b"\r\ndate:") == 1


async def test_answers_without_a_body_leave_their_connection_to_the_next() -> None:
    """Pulsar answers each change so; a handshake by TLS for each costs more than the rest."""
    async with between() as (port, upstream):
        for request in (b"GET /204", b"GET /304", b"HEAD /x", b"GET /307", b"GET /x"):
            await ask(port, request + b" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        assert len(upstream.heads) == 6 and len(upstream.clients) == 1


async def test_an_answer_that_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Is not waited for any longer."""
    monkeypatch.setattr("enforcer.http.relay.upstream._TIMEOUT", {"read": 0.1})
    async with between() as (port, _):
        for path, status in ((b"/late", b"504"), (b"/x", b"200")):
            answer = await ask(port, b"GET " + path + b" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 " + status)


async def test_an_upstream_by_tls(tmp_path: Path) -> None:
    """Of a CA of its own, if that is trusted; else there is no answer from it."""
    authority = Authority(tmp_path)
    async with by_tls(authority.server()) as behind:
        for tls, status in (({"ca": authority.ca}, b"200"), (None, b"502")):
            async with proxied(f"https://{LOOPBACK}:{behind}", upstream_tls=tls) as port:
                answer = await ask(port, b"GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 " + status)


async def test_the_files_of_an_upstream_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As all that TLS goes by: a certificate ends some day, and a CA may not be trusted any more."""
    monkeypatch.setattr("enforcer.http.relay.upstream._IDLE_S", 0.0)
    (right, wrong), ca = (Authority(tmp_path / name) for name in "ab"), tmp_path / "ca.pem"
    shutil.copyfile(wrong.ca, ca)
    async with (
        by_tls(right.server()) as behind,
        proxied(f"https://{LOOPBACK}:{behind}", upstream_tls={"ca": str(ca)}) as port,
    ):
        for status, trusted in ((b"502", wrong), (b"200", right), (b"502", wrong)):
            shutil.copyfile(trusted.ca, ca)
            answer = await ask(port, b"GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 " + status)


async def test_a_large_answer_is_streamed() -> None:
    """The upstream gives no more than is taken, and what is gone is not fetched."""
    async with between() as (port, upstream):
        transport = httpx2.AsyncHTTPTransport()
        request = httpx2.Request("GET", f"http://127.0.0.1:{port}/much")
        response = await transport.handle_async_request(request)
        assert response.headers["content-encoding"] == "gzip"
        await asyncio.sleep(0.3)
        waiting = upstream.given
        assert waiting < PARTS / 2
        size = 0
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        async for chunk in response.stream:
            size += len(chunk)
        assert (size, upstream.given) == (PARTS * len(PART), PARTS)
        upstream.given = 0
        left = await transport.handle_async_request(request)
        await left.aclose()
        await transport.aclose()
        await asyncio.sleep(0.3)
        assert upstream.given < PARTS / 2


async def test_nobody_there() -> None:
    """502 with a reason, at once."""
    async with proxied("http://127.0.0.1:1") as port:
        answer = await ask(port, b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 502 ") and b"cannot be reached" in answer
