"""Who comes in, and whose address counts, on real sockets."""

import asyncio
import contextlib
import gc
import socket
import ssl
import sys
from typing import Any

import pytest
import uvloop
from door_kit import LIMIT_S, Came, Door, in_loop, only_new_garbage
from each_kit import each
from proxy_header_kit import CLIENTS, HEADERS, binary, text
from pydantic import ValidationError
from tls_kit import LOOPBACK, Authority

from enforcer.core.security.doors import DoorSettings
from enforcer.host.doors import entrance, sources
from enforcer.host.doors.listening import BACKLOG, listen_at
from enforcer.host.doors.sources import Sources, TurnedAway

LOOP = uvloop.new_event_loop
FIRST = b"\0\0\0\x0a the first request"
REQUIRED = {"proxy_protocol": "required"}


async def all_of(came: Came, data: bytes) -> None:
    """Wait until it has sent all that."""
    async with asyncio.timeout(LIMIT_S):
        while came.data != data:
            assert data.startswith(came.data)
            await asyncio.sleep(0.001)


async def is_out(reader: asyncio.StreamReader) -> None:
    """Wait until a client sees that it is not let in."""
    with contextlib.suppress(ConnectionError):
        assert not await asyncio.wait_for(reader.read(1), LIMIT_S)


@pytest.mark.parametrize("setting", ["required", "disabled"])
@pytest.mark.parametrize("family", list(CLIENTS))
@pytest.mark.parametrize("kind", list(HEADERS))
async def test_the_address_of_a_header_is_the_clients(kind: str, family: str, setting: str) -> None:
    """Where it is required, none is no way in; where it is not, it is what a client says, like anything."""
    async with Door(LOOPBACK if family == "tcp4" else "::1", proxy_protocol=setting) as door:
        said = HEADERS[kind](*CLIENTS[family])
        reader, writer = await door.connect(said, FIRST)
        if setting == "required" and not said:
            await is_out(reader)
            assert door.turned_away("no_header") == 1 and door.came.empty()
        else:
            came, required = await door.next(), setting == "required"
            own = writer.get_extra_info("sockname")
            assert came.visitor.peer == (CLIENTS[family] if required else own)
            await all_of(came, FIRST if required else said + FIRST)
        writer.close()


@pytest.mark.parametrize("setting", ["required", "disabled"])
@pytest.mark.parametrize("kind", list(HEADERS))
async def test_a_header_comes_before_the_handshake(kind: str, setting: str, authority: Authority) -> None:
    """The same with TLS, in one packet with its hello."""
    required = setting == "required"
    async with Door(tls=authority.door(), proxy_protocol=setting) as door:
        said = HEADERS[kind](*CLIENTS["tcp4"])
        good = required == bool(said)
        try:
            _, writer = await door.connect(said, FIRST, context=authority.context())
        except (ssl.SSLError, ConnectionError):
            assert not good
            assert door.came.empty()
            assert door.turned_away("no_header") if required else door.failed("no_tls")
        else:
            came = await door.next()
            assert came.visitor.peer == (CLIENTS["tcp4"] if required else writer.get_extra_info("sockname"))
            await all_of(came, FIRST)
            writer.transport.abort()
            assert good


@pytest.mark.parametrize("host", [LOOPBACK, "::1"])
async def test_a_header_is_taken_from_load_balancers_only(host: str) -> None:
    """Of others no byte is read; an address of IPv4 is meant by itself also where it comes by IPv6."""
    for networks, trusted in ((["127.0.0.0/8", "::1"], True), (["192.0.2.0/24", "2001:db8::/32"], False)):
        async with Door(host, proxy_protocol_from=networks, **REQUIRED) as door:
            reader, writer = await door.connect(text(*CLIENTS["tcp4"]))
            if trusted:
                assert (await door.next()).visitor.peer == CLIENTS["tcp4"]
            else:
                await is_out(reader)
                assert door.turned_away("untrusted") == 1 and door.came.empty()
            writer.close()


@each("item", ["", "10.0.0.1/8", "10.0.0.0/33", "balancer", "ü\n"])
def test_what_is_no_network_is_refused(item: str) -> None:
    """By what it is, and what is expected."""
    with pytest.raises(ValidationError, match=r"expected addresses and networks, such as 10\.0\.0\.0/8"):
        DoorSettings(proxy_protocol="required", proxy_protocol_from=["10.0.0.0/8", item])


def test_load_balancers_are_named_where_their_headers_are_read() -> None:
    """Else who names them would believe that nobody else gets in."""
    with pytest.raises(ValidationError, match="expected proxy_protocol: required"):
        DoorSettings(proxy_protocol_from=["10.0.0.0/8"])


@pytest.mark.parametrize("said", [b"PROXY UNKNOWN\r\n", binary(0x20, 0, b""), binary(0x21, 0, b"tags")])
async def test_a_header_without_an_address_keeps_that_of_the_socket(said: bytes) -> None:
    """A load balancer that looks whether we are there is itself."""
    async with Door(**REQUIRED) as door:
        _, writer = await door.connect(said, FIRST)
        came = await door.next()
        assert came.visitor.peer == writer.get_extra_info("sockname")
        await all_of(came, FIRST)
        writer.close()


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"PROXY TCP4 nobody\r\n", "bad_header"), (b"PROXY UNKNOWN " + b"x" * 200, "bad_header"),
        (binary(0x21, 0x11, bytes(5_000)), "bad_header"), (FIRST, "no_header"),
        (b"PROXY TCP4", "header_timeout"), (b"", "header_timeout"),
    ],
)  # fmt: skip
async def test_a_bad_header_ends_its_connection(
    said: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is counted, and the next one comes in as ever."""
    monkeypatch.setattr(entrance, "HANDSHAKE_S", 0.2)
    async with Door(**REQUIRED) as door:
        reader, bad = await door.connect(said)
        await is_out(reader)
        assert door.turned_away(reason) == 1 and door.came.empty()
        _, good = await door.connect(text(*CLIENTS["tcp4"]))
        await door.next()
        for writer in (bad, good):
            writer.close()


@pytest.mark.parametrize("announced", [True, False])
async def test_connections_of_one_address_are_bounded(announced: bool) -> None:
    """By that of the header, where there is one; a place that is left is free again."""
    async with Door(connections_per_address=2, **(REQUIRED if announced else {})) as door:

        async def come(host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            return await door.connect(text(host, 1) if announced else b"x")

        in_it = [await come(host) for host in ("2001:db8::1", "2001:db8::2")]
        first, _ = await door.next(), await door.next()
        reader, third = await come("2001:db8:0:0:1::3")
        await is_out(reader)
        assert door.turned_away("connections_per_address") == 1 and door.came.empty()
        in_it[0][1].close()
        await asyncio.wait_for(first.over.wait(), LIMIT_S)
        in_it += [(reader, third), await come("2001:db8::4")]
        await door.next()
        if announced:
            in_it.append(await come("2001:db8:1::1"))
            await door.next()
        for _, writer in in_it:
            writer.close()


async def test_one_that_has_ended_in_the_same_turn_makes_room() -> None:
    """Who came just then was turned away from a place that was free, and counted twice."""
    async with Door(room=1, **REQUIRED) as door:
        ended = asyncio.create_task(asyncio.sleep(0))
        await ended
        door.entrance._coming[ended] = LOOPBACK
        _, writer = await door.connect(text(*CLIENTS["tcp4"]))
        await door.next()
        assert not door.turned_away("full")
        writer.close()


async def test_a_failed_handshake_gives_its_place_back(authority: Authority) -> None:
    """Ten clients that do not go on keep nobody out for longer than they are there."""
    async with Door(connections_per_address=1, tls=authority.door()) as door:
        for _ in range(10):
            reader, writer = await door.connect(b"no hello at all")
            await is_out(reader)
            writer.close()
        _, writer = await door.connect(b"", context=authority.context())
        await door.next()
        assert door.turned_away("connections_per_address") == 0
        writer.transport.abort()


async def test_no_time_for_the_end_of_tls_keeps_nobody_out(authority: Authority) -> None:
    """`stop_timeout_ms: 0` is a good setting."""
    async with Door(goodbye_s=0.0, tls=authority.door()) as door:
        _, writer = await door.connect(b"", context=authority.context())
        await door.next()
        writer.transport.abort()


async def test_a_connection_that_cannot_be_made_takes_no_place() -> None:
    """However often it fails."""
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    failing = [True] * 3

    def accept(door: Door) -> Came:
        if failing:
            failing.pop()
            raise MemoryError
        return Came(door)

    async with Door(connections_per_address=1, made=accept) as door:
        for _ in range(3):
            reader, writer = await door.connect()
            await is_out(reader)
            writer.close()
        _, writer = await door.connect()
        await door.next()
        writer.close()


async def test_who_is_in_makes_no_room(authority: Authority) -> None:
    """Though the task that let it in is not over yet."""
    chosen = list[bool]()

    class Late(Came):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            chosen.append(self._door.entrance._make_room())

    async with Door(made=Late, tls=authority.door()) as door:
        _, writer = await door.connect(b"", context=authority.context())
        came = await door.next()
        writer.write(FIRST)
        await all_of(came, FIRST)
        assert chosen == [False] and door.failed("full") == 0
        writer.transport.abort()


async def test_new_connections_of_one_address_are_bounded() -> None:
    """A second's worth at once; others have their own."""
    async with Door(connection_creation_rate=3, **REQUIRED) as door:
        clients = [await door.connect(text("192.0.2.7", port)) for port in range(5)]
        for reader, _ in clients[3:]:
            await is_out(reader)
        clients.append(await door.connect(text("192.0.2.8", 1)))
        for _ in range(4):
            await door.next()
        assert door.turned_away("connection_creation_rate") == 2
        for _, writer in clients:
            writer.close()


def test_rates_come_back_and_their_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is pushed out by others begins anew."""
    monkeypatch.setattr(sources, "RATES_MAX", 10)
    now_s = 0.0
    table = Sources(0, 2, lambda: now_s)

    def come(source: str) -> bool:
        try:
            table.enter(source)
        except TurnedAway as turned:
            assert turned.reason == "connection_creation_rate"
            return False
        return True

    assert [come("a") for _ in range(3)] == [True, True, False]
    now_s = 0.5
    assert [come("a") for _ in range(2)] == [True, False]
    for number in range(100):
        assert come(str(number))
    assert len(table._buckets) == 10 and come("a")


def test_clients_without_a_header_make_room() -> None:
    """Those who say nothing are ended for others, oldest first, counted; and no task ends by a mistake."""
    mistakes: list[dict[str, Any]] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: mistakes.append(context))
        async with Door(room=3, **REQUIRED) as door:
            mute = [socket.create_connection(door.address, timeout=LIMIT_S) for _ in range(10)]
            _, writer = await door.connect(text("192.0.2.7", 1))
            await door.next()
            assert door.turned_away("full") >= 8
            writer.close()
        for client in mute:
            client.close()

    with only_new_garbage():
        in_loop(run())
        gc.collect()
    assert not mistakes


def test_who_comes_while_it_closes_is_sent_away(recwarn: pytest.WarningsRecorder) -> None:
    """Also before its turn has come: no socket is left to the collector of garbage, nor one that listens."""

    async def run() -> None:
        door = Door(**REQUIRED)
        await door.open()
        loop = asyncio.get_running_loop()
        with socket.socket() as client:
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                client.connect(door.address)
            # One turn of the loop takes it, and the next one would begin with it.
            async with asyncio.timeout(LIMIT_S):
                while not door.entrance._coming:  # noqa: ASYNC110  # no event tells of it
                    await asyncio.sleep(0)
            await door.close()
            assert await asyncio.wait_for(loop.sock_recv(client, 1), LIMIT_S) == b""
        late = listen_at((LOOPBACK, 0))
        await door.entrance.open(late, lambda: Came(door))
        assert late.fileno() == -1

    with only_new_garbage():
        in_loop(run())
        gc.collect()
    assert not [str(one.message) for one in recwarn]


@pytest.mark.parametrize("doors", [{}, REQUIRED, {"connection_creation_rate": 9}])
async def test_as_many_may_wait_to_be_taken_however_they_come_in(doors: Any) -> None:
    """Those of a proxy that was restarted come at once, and each beyond the bound loses a second.

    Small answers leave at once: a client's socket does not wait to fill a packet.
    """
    async with Door(**doors) as door:
        told = door._listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        # tcpi_sacked: of a socket that listens, how many may wait.
        assert int.from_bytes(told[28:32], sys.byteorder) == BACKLOG
        _, writer = await door.connect(text("192.0.2.7", 1))
        made = (await door.next()).transport.get_extra_info("socket")
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        writer.close()
