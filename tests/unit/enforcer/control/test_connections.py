"""Connections of the admin API over real sockets: whoever waits has a limit, and newcomers get room."""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import uvicorn
from each_kit import each
from sample_kit import sample_of
from waiting_kit import until

from enforcer.control import connections
from enforcer.control.connections import LASTS, Connections, GuardedProtocol
from enforcer.control.metrics import AdminMetrics
from enforcer.control.settings import AdminSettings
from enforcer.core.security.doors import source_of

HEAD = b"GET /quick HTTP/1.1\r\nHost: a\r\n\r\n"
LIMIT_S = 10.0
KEEP_ALIVE_S = 0.7
ANSWER_BYTES = 12 * 2**20
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads have little time."""
    monkeypatch.setattr(connections, "HEAD_MS", 300)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers at once, after the whole body, after a second, or with more than a socket holds."""
    if scope["path"] == "/body":
        while (await receive()).get("more_body"):
            pass
    if scope["path"] == "/slow":
        await asyncio.sleep(1)
    if scope["path"].startswith("/lasts"):
        await last(scope, send)
        return
    body = bytes(ANSWER_BYTES) if scope["path"] == "/large" else b"ok"
    if scope["path"] == "/who":
        body = scope["client"][0].encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def last(scope: Any, send: Any) -> None:
    """An answer that goes on for twice as long as a request may take, in small parts or large ones."""
    scope[LASTS] = True
    await send({"type": "http.response.start", "status": 200, "headers": []})
    part = bytes(ANSWER_BYTES // 10 if scope["path"] == "/lasts/large" else 10)
    for _ in range(12):
        await send({"type": "http.response.body", "body": part, "more_body": True})
        await asyncio.sleep(0.1)
    await send({"type": "http.response.body", "body": b""})


class Server:
    """A server with small limits, and clients of it."""

    def __init__(self, request_ms: int = 600, **settings: Any) -> None:
        self.metrics = AdminMetrics()
        self.connections = Connections(AdminSettings(**settings), self.metrics, request_ms)
        self.port = 0
        self.greet: Callable[[Any], tuple[str, int] | None] = lambda _connection: None
        self._opened: list[asyncio.StreamWriter] = []

    @asynccontextmanager
    async def run(self) -> AsyncIterator["Server"]:
        config = uvicorn.Config(
            app,
            http=partial(GuardedProtocol, self.connections, lambda connection: self.greet(connection)),  # type: ignore[arg-type]
            port=0, ws="none", lifespan="off", log_config=None, log_level=logging.ERROR,
            timeout_keep_alive=KEEP_ALIVE_S,  # type: ignore[arg-type]  # a time of the loop's
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        server = uvicorn.Server(config)
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup()
        self.port = server.servers[0].sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            for writer in self._opened:
                writer.close()
            await server.shutdown()

    async def connect(self, *parts: bytes) -> Client:
        """A client that has sent this."""
        client = socket.socket()
        # Else it takes as much as the kernel likes of what nobody reads.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**18)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", self.port))
        reader, writer = await asyncio.open_connection(sock=client)
        self._opened.append(writer)
        writer.writelines(parts)
        return reader, writer

    def ended(self, reason: str) -> float:
        """How many were ended for it."""
        return sample_of(self.metrics.registry, "weir_admin_connections_ended_total", {"reason": reason})

    @property
    def open(self) -> float:
        """Connections that hold a place."""
        return sample_of(self.metrics.registry, "weir_admin_connections", {})


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[Server]:
    """It runs, and no place is lost afterwards."""
    server = Server(**settings)
    async with asyncio.timeout(LIMIT_S), server.run():
        yield server
    async with asyncio.timeout(LIMIT_S):
        await until(lambda: not server.open)


async def end_of(client: Client) -> float:
    """Seconds until the connection is over."""
    begun = time.monotonic()
    try:
        while await client[0].read(65_536):
            pass
    except ConnectionResetError:
        pass
    return time.monotonic() - begun


async def answered(client: Client) -> bool:
    """Whether the request that was sent is answered."""
    try:
        head = await client[0].readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return False
    return head.startswith(b"HTTP/1.1 200")


async def a_head_has_its_limit() -> None:
    """From the connection on, whatever comes of it: nothing, a byte, half, much."""
    async with served() as server:
        async def ends(sent: bytes) -> None:
            # From before the connection: the server may have seen it before we hear that it is made.
            begun = time.monotonic()
            await end_of(await server.connect(sent))
            assert 0.2 < time.monotonic() - begun < 1.5

        long = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 4_000
        await asyncio.gather(*map(ends, (b"", b"G", HEAD[:-2], long)))
        assert server.ended("header_timeout") == 4


async def a_byte_now_and_then_prolongs_nothing(before: bytes) -> None:
    """Of the first request or of one on a connection that was used before."""
    async with served() as server:
        client = await server.connect(before)
        if before:
            assert await answered(client)
            await client[0].readexactly(2)
        begun, ending = time.monotonic(), asyncio.create_task(end_of(client))
        for byte in HEAD:
            client[1].write(bytes((byte,)))
            await asyncio.sleep(0.05)
            if ending.done():
                break
        assert 0.2 < time.monotonic() - begun < 1.2


async def an_answer_that_lasts_goes_on_while_it_is_taken() -> None:
    """Beyond the limit of a request; a client that takes nothing is ended by it."""
    async with served() as server:
        reads = await server.connect(b"GET /lasts HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        waits = await server.connect(b"GET /lasts/large HTTP/1.1\r\nHost: a\r\n\r\n")
        body = b""
        while part := await reads[0].read(65_536):
            body += part
        assert body.endswith(b"0\r\n\r\n")
        await until(lambda: server.ended("request_timeout") == 1)
        assert await end_of(waits) < LIMIT_S


async def an_idle_connection_may_wait_longer_than_a_head_takes() -> None:
    """The time between two requests has its own limit, uvicorn's."""
    async with served() as server:
        client = await server.connect(HEAD)
        assert await answered(client)
        await client[0].readexactly(2)
        await asyncio.sleep(0.5)
        client[1].write(HEAD)
        assert await answered(client)
        assert KEEP_ALIVE_S - 0.2 < await end_of(client) < 3
        assert server.ended("header_timeout") == server.ended("request_timeout") == 0


async def a_request_has_its_limit() -> None:
    """A body that never ends, one that trickles, an answer that takes long."""
    async with served() as server:
        post = b"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n"
        all_parts = ((post,), (post, b"x"), (HEAD.replace(b"quick", b"slow"),))

        async def ends(parts: tuple[bytes, ...]) -> None:
            begun = time.monotonic()
            await end_of(await server.connect(*parts))
            assert 0.4 < time.monotonic() - begun < 2

        await asyncio.gather(*map(ends, all_parts))
        assert server.ended("request_timeout") == 3


async def a_body_that_comes_after_its_answer_has_its_limit_too() -> None:
    """The application may answer before it has read all."""
    async with served() as server:
        client = await server.connect(b"POST /quick HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\n")
        assert await answered(client)
        ending = asyncio.create_task(end_of(client))
        while not ending.done():
            client[1].write(b"x")
            await asyncio.sleep(0.05)
        assert server.ended("header_timeout") == 1


async def an_answer_that_is_not_taken_has_its_limit() -> None:
    """Much of it is in the server's memory until then."""
    async with served() as server:
        reader, _ = await server.connect(HEAD.replace(b"quick", b"large"))
        await reader.readexactly(1)
        await until(lambda: server.ended("request_timeout"))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await reader.readexactly(ANSWER_BYTES)


async def an_answer_that_is_taken_slowly_is_not_cut_as_idle() -> None:
    """Longer than that may last, within the limit of a request; nor is it counted when it is idle then."""
    async with served(request_ms=3_000) as server:
        client = await server.connect(HEAD.replace(b"quick", b"large"))
        assert await answered(client)
        await asyncio.sleep(KEEP_ALIVE_S + 0.4)
        await client[0].readexactly(ANSWER_BYTES)
        assert await end_of(client) and not server.ended("request_timeout")


async def test_a_waiting_answer_is_taken_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before the time of the request is over; who takes it slowly gets all of it."""
    monkeypatch.setattr(connections, "TAKE_MS", 300)
    async with served(request_ms=60_000) as server:
        reader, _ = await server.connect(HEAD.replace(b"quick", b"large"))
        for path in (b"large", b"lasts/large"):
            await server.connect(HEAD.replace(b"quick", path))
        for _ in range(ANSWER_BYTES // 2**17):
            await reader.readexactly(2**17)
            await asyncio.sleep(0.01)
        await until(lambda: server.ended("request_timeout") == 2)


async def test_limits_of_time() -> None:
    """One beside the other: all of them wait, and next to nothing is done."""
    await asyncio.gather(
        a_head_has_its_limit(), a_byte_now_and_then_prolongs_nothing(b""),
        a_byte_now_and_then_prolongs_nothing(HEAD), an_idle_connection_may_wait_longer_than_a_head_takes(),
        a_request_has_its_limit(), a_body_that_comes_after_its_answer_has_its_limit_too(),
        who_is_at_work_makes_no_room(),
    )


async def test_limits_of_time_of_large_answers() -> None:
    """The same of those that fill what lies between."""
    await asyncio.gather(
        an_answer_that_lasts_goes_on_while_it_is_taken(), an_answer_that_is_not_taken_has_its_limit(),
        an_answer_that_is_taken_slowly_is_not_cut_as_idle(),
    )


@pytest.mark.parametrize(("of_address", "in_all"), [(4, 1_000), (100, 4)])
@pytest.mark.parametrize(
    "sent",
    [
        b"", b"GET / HT", b"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n",
        HEAD.replace(b"quick", b"large") * 2,
    ],
    ids=["nothing", "half a head", "no body", "takes nothing"],
)  # fmt: skip
async def test_who_waits_makes_room_for_who_comes(
    of_address: int, in_all: int, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that has waited longest first; every newcomer is answered."""
    monkeypatch.setattr(connections, "HEAD_MS", 5_000)
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", in_all)
    async with served(connections_per_address=of_address, request_ms=5_000) as server:
        first = await server.connect(sent)
        await asyncio.sleep(0.05)
        for _ in range(20):
            await server.connect(sent)
            assert await answered(await server.connect(HEAD))
        assert await end_of(first) < 0.5
        assert server.ended("displaced") >= 30 and server.open <= 4


async def test_addresses_that_a_load_balancer_tells_are_the_clients() -> None:
    """Each has its own bound, and a request is from there."""
    async with served(connections_per_address=2, request_ms=5_000) as server:
        hosts = iter(["192.0.2.1", "192.0.2.2", "192.0.2.2", "192.0.2.2"])
        server.greet = lambda _connection: (next(hosts), 1)
        clients = [await server.connect() for _ in range(4)]
        await until(lambda: server.ended("displaced"))
        reader, writer = clients[0]
        writer.write(HEAD.replace(b"quick", b"who"))
        assert (await reader.readuntil(b"192.0.2.1")).startswith(b"HTTP/1.1 200")


async def test_an_old_connection_ends_once_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that is busy, or takes its answer slowly; nothing is lost but of an answer without end."""
    monkeypatch.setattr(AdminSettings, "lifetime_s", lambda doors: doors.connection_age_max_s * 0.3)
    monkeypatch.setattr(connections, "HEAD_MS", 5_000)
    async with served(connection_age_max_s=1, request_ms=5_000) as server:
        idle, half = await server.connect(HEAD), await server.connect(HEAD[:10])
        slow = await server.connect(HEAD.replace(b"quick", b"slow"))
        stream, _ = await server.connect(HEAD.replace(b"quick", b"lasts"))
        reader, _ = large = await server.connect(HEAD.replace(b"quick", b"large"))
        assert await answered(idle)
        await end_of(idle)
        assert await end_of(half) < 4
        assert await answered(slow)
        await end_of(slow)
        await reader.readuntil(b"\r\n\r\n")
        assert len(await reader.readexactly(ANSWER_BYTES)) == ANSWER_BYTES
        await end_of(large)
        assert not (await stream.read()).endswith(b"\r\n0\r\n\r\n")
        assert server.ended("age") == 5


async def who_is_at_work_makes_no_room() -> None:
    """The newcomer is told so."""
    async with served(connections_per_address=2, request_ms=5_000) as server:
        working = [await server.connect(HEAD.replace(b"quick", b"slow")) for _ in range(2)]
        await asyncio.sleep(0.2)
        reader, _ = await server.connect()
        answer = await reader.read(65_536)
        assert answer.startswith(b"HTTP/1.1 503 ") and b"\r\nretry-after: 1\r\n" in answer
        assert all([await answered(client) for client in working])
        assert server.ended("full") == 1


async def test_what_is_no_http_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    """And fills no log; what comes behind it is not read."""
    async with served() as server:
        client = await server.connect(b"\x16\x03\x01\r\n\r\n", b"more\r\n" * 100)
        await end_of(client)
        assert server.ended("bad_request") == 1
        head = b"POST /quick HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        client = await server.connect(head)
        assert await answered(client)
        client[1].write(b"no size\r\n")
        await end_of(client)
        assert server.ended("bad_request") == 2

    assert caplog.messages == []


async def test_what_is_no_http_behind_what_nobody_takes(caplog: pytest.LogCaptureFixture) -> None:
    """Its request is over with it, though the connection is not yet."""
    async with served(request_ms=5_000) as server:
        # What is to be taken is little, so that nobody waits for it before the next answer.
        server.greet = lambda connection: connection.transport.set_write_buffer_limits(high=2**30)
        post = b"POST /slow HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n"
        await server.connect(HEAD.replace(b"quick", b"large") + post)
        await until(lambda: server.ended("bad_request"))
        await asyncio.sleep(1.2)
        assert server.open == 1
    assert caplog.messages == []


async def test_requests_in_one_piece_are_all_answered() -> None:
    """Each has its own time."""
    async with served() as server:
        reader, _ = await server.connect(HEAD * 50)
        for _ in range(50):
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")


@each(
    ("address", "source"),
    [
        ("127.0.0.1", "this machine"), ("127.8.9.10", "this machine"), ("::1", "this machine"),
        ("::ffff:127.0.0.1", "this machine"), ("192.0.2.7", "192.0.2.7"), ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:0:1:2:3:4:5", "2001:db8:0:1::/64"), ("fe80::1%eth0", "fe80::/64"), ("", ""),
    ],
)  # fmt: skip
def test_addresses_that_one_client_may_have_share_a_limit(address: str, source: str) -> None:
    """All of this machine, and all of an IPv6 network."""
    assert source_of(address) == source
