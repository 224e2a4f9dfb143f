"""What TLS hides is seen: what waits to be written, and the buffers of a connection, on real sockets."""

import asyncio
import contextlib
import ctypes
import gc
import socket
import ssl
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import cast

import pytest
import uvloop
from door_kit import LIMIT_S, Door, in_loop, only_new_garbage
from endings_kit import arrived
from tls_kit import LOOPBACK, Authority

from enforcer.host.dial import dial
from enforcer.host.doors import entrance
from enforcer.host.secured import SLICE_BYTES, Secured, kept_by

HIGH, LOW = 1 << 20, 1 << 18
LARGE = bytes(range(256)) * 65_536
"""16 MiB."""
KIB = 1 << 10
LOOP = uvloop.new_event_loop


class Side(asyncio.Protocol):
    """One end of a connection, which notes what it is told."""

    def __init__(self) -> None:
        self.data, self.told = bytearray(), list[str]()
        self.made, self.came, self.over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(HIGH, LOW)
        self.made.set()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self.data += data
        self.came.set()

    def eof_received(self) -> None:
        """See asyncio.Protocol."""
        self.ended.set()

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self.told.append("pause")

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self.told.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.why = exc
        self.over.set()

    async def got(self, count: int) -> None:
        """Wait for so many bytes."""
        async with asyncio.timeout(LIMIT_S):
            while len(self.data) < count:
                self.came.clear()
                await self.came.wait()


@contextlib.asynccontextmanager
async def between(authority: Authority, ours: type[Side] = Side) -> AsyncIterator[tuple[Side, Side]]:
    """A connection by TLS: the broker's side of it, through the entrance, and ours, dialled."""
    there, here = Side(), ours()
    async with Door(made=lambda _door: there, tls=authority.door()) as door:
        await dial(lambda: here, door.address, ssl.create_default_context(cafile=authority.ca))
        await asyncio.wait_for(there.made.wait(), LIMIT_S)
        try:
            yield there, here
        finally:
            for side in (there, here):
                side.transport.abort()


Do = Callable[[Callable[[], object]], Awaitable[None]]
"""Does a step of a client's TLS, whatever must be sent and read for it."""


async def shaken_by_hand(
    door: Door, authority: Authority, behind: bytes
) -> tuple[socket.socket, ssl.SSLObject, Do]:
    """A client whose last step of the handshake comes in one packet with this; and its TLS."""
    loop, got, sent = asyncio.get_running_loop(), ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context(cafile=authority.ca).wrap_bio(got, sent, server_hostname=LOOPBACK)
    client = socket.create_connection(door.address, timeout=LIMIT_S)
    client.setblocking(False)

    async def do(step: Callable[[], object]) -> None:
        while True:
            try:
                step()
                break
            except ssl.SSLWantReadError:
                await loop.sock_sendall(client, sent.read())
                got.write(await loop.sock_recv(client, SLICE_BYTES))
        await loop.sock_sendall(client, sent.read())

    await do(lambda: (tls.do_handshake(), tls.write(behind)))
    return client, tls, do


@pytest.mark.parametrize("part", [len(LARGE), 50_000])
async def test_what_waits_is_seen_and_arrives(authority: Authority, part: int) -> None:
    """All but little, in whatever parts it is written to whoever does not read; marks are told; then it comes
    as it was, and TLS keeps little of it.
    """
    async with between(authority) as (there, here):
        here.transport.pause_reading()
        for begin in range(0, len(LARGE), part):
            there.transport.write(LARGE[begin : begin + part])
        assert there.told == ["pause"]
        # The kernel's buffers on both sides of a loopback connection take 6 MiB at most.
        await asyncio.sleep(0.2)
        waiting = there.transport.get_write_buffer_size()
        assert len(LARGE) - 8 * HIGH < waiting < len(LARGE)
        assert kept_by(there.transport) > waiting + 64 * KIB
        here.transport.resume_reading()
        await here.got(len(LARGE))
        assert here.data == LARGE and there.told == ["pause", "resume"]
        assert there.transport.get_write_buffer_size() == 0
        assert 90 * KIB < kept_by(there.transport) < 128 * KIB


async def test_a_small_read_takes_little(authority: Authority) -> None:
    """Not a quarter of a MiB for each record; what is read next leaves it as it was."""
    async with between(authority) as (there, here):
        here.transport.write(b"warm")
        await there.got(4)
        tracemalloc.start()
        here.transport.write(b"small")
        await there.got(9)
        (now, peak), _ = tracemalloc.get_traced_memory(), tracemalloc.stop()
        assert peak - now < 64 * KIB
        there.transport.write(b"other")
        await here.got(5)
        assert there.data == b"warmsmall" and here.data == b"other"


async def test_who_reads_nothing_at_first_can_write(authority: Authority) -> None:
    """The end of TLS' own handshake, which still waits then, must not count as what the other side leaves."""

    class Deaf(Side):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.transport.pause_reading()
            self.transport.write(b"hello")

    async with between(authority, Deaf) as (there, here):
        await there.got(5)
        assert here.transport.get_write_buffer_size() == 0


async def test_what_waits_at_the_end_arrives(authority: Authority) -> None:
    """A connection that is closed has its time for it; nothing is told any more."""
    async with between(authority) as (there, here):
        there.transport.write(LARGE)
        there.transport.close()
        await here.got(len(LARGE))
        await asyncio.wait_for(there.over.wait(), LIMIT_S)
        assert here.data == LARGE and there.told == ["pause"]


async def test_a_handshake_that_is_done_as_its_time_is_over_is_done(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client was in, counted as one that took too long, and its address had its place once more."""
    monkeypatch.setattr(entrance, "HANDSHAKE_S", 0.5)
    async with Door(tls=authority.door(), connections_per_address=1) as door:
        client, _, _ = await shaken_by_hand(door, authority, b"x")
        # The loop finds its last step and the end of the time in one turn.
        time.sleep(0.6)  # noqa: ASYNC251
        came = await door.next()
        await asyncio.sleep(0.01)
        reader, writer = await door.connect()
        assert not await asyncio.wait_for(reader.read(), LIMIT_S)
        for end in (came.transport, writer, client):
            end.close()
        assert door.turned_away("connections_per_address") == 1 and not door.failed("timeout")


async def test_what_waits_when_the_client_ends_its_side_arrives(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """It may still read after its close_notify; what it does not get is no flood of the log either."""
    there = Side()
    async with Door(made=lambda _door: there, tls=authority.door()) as door:
        client, tls, do = await shaken_by_hand(door, authority, b"x")
        with client:
            await asyncio.wait_for(there.made.wait(), LIMIT_S)
            there.transport.write(LARGE)
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.unwrap()
            # What that has to send.
            await do(lambda: None)
            await asyncio.wait_for(there.ended.wait(), LIMIT_S)
            data = bytearray()
            async with asyncio.timeout(LIMIT_S):
                while len(data) < len(LARGE):
                    await do(lambda: data.extend(tls.read(SLICE_BYTES)))
            assert data == LARGE
        there.transport.write(LARGE)
        await asyncio.sleep(0.1)
    assert there.transport.get_write_buffer_size() == 0
    assert not caplog.messages


async def test_what_tls_keeps_of_what_was_read_is_counted(authority: Authority) -> None:
    """Its buffers stay as large as the largest step; what nobody wants to hear it does not read."""
    async with between(authority) as (there, here):
        there.transport.pause_reading()
        here.transport.write(LARGE[:HIGH])
        await asyncio.sleep(0.2)
        assert not there.data and kept_by(there.transport) < 32 * KIB
        there.transport.resume_reading()
        await there.got(HIGH)
        assert 90 * KIB < kept_by(there.transport) < 128 * KIB


async def test_an_idle_connection_keeps_what_is_counted(authority: Authority) -> None:
    """Nothing stays of a handshake that is not needed: for tickets OpenSSL would keep 16 KiB more."""
    libc = ctypes.CDLL(None)
    fields = [(name, ctypes.c_size_t) for name in (*"abcdefg", "in_use", *"ij")]  # of glibc's mallinfo2(3)
    libc.mallinfo2.restype = type("Mallinfo", (ctypes.Structure,), {"_fields_": fields})
    count = 100
    # Made before, since they are not counted.
    spare, sides = [Side() for _ in range(2 * count + 10)], list[Side]()
    context = ssl.create_default_context(cafile=authority.ca)

    def side() -> Side:
        sides.append(spare.pop())
        return sides[-1]

    async def connect(number: int) -> None:
        for _ in range(number):
            await dial(side, door.address, context)
            await asyncio.wait_for(sides[-1].made.wait(), LIMIT_S)
        for here, there in zip(sides[-2 * number :: 2], sides[1 - 2 * number :: 2], strict=True):
            there.transport.write(b"x")
            await here.got(1)

    async with Door(room=2 * count, made=lambda _door: side(), tls=authority.door()) as door:
        await connect(5)
        before = libc.mallinfo2().in_use
        await connect(count)
        grown = libc.mallinfo2().in_use - before
        kept = sum(kept_by(here.transport) for here in sides[-2 * count :])
        for here in sides:
            here.transport.abort()
    assert grown < kept


@pytest.mark.parametrize("size", [5, 51_200])
async def test_what_comes_with_the_handshake_waits_for_who_does_not_read(
    authority: Authority, size: int
) -> None:
    """It is told once it is wanted, though the client has ended meanwhile."""
    sent = LARGE[:size]
    async with Door(paused=True, tls=authority.door()) as door:
        client, _, _ = await shaken_by_hand(door, authority, sent)
        arrived(client)
        client.close()
        came = await door.next()
        await asyncio.sleep(0.1)
        assert not came.data and not came.over.is_set()
        came.transport.resume_reading()
        await asyncio.wait_for(came.over.wait(), LIMIT_S)
        assert came.data == sent


async def test_what_stands_before_nonsense_is_told(authority: Authority) -> None:
    """And the connection ends for it, with what TLS says of it."""
    there = Side()
    async with Door(made=lambda _door: there, tls=authority.door()) as door:
        client, tls, _ = await shaken_by_hand(door, authority, b"good")
        with client:
            await asyncio.get_running_loop().sock_sendall(client, b"\x17\x03\x03\0\x20" + bytes(32))
            await asyncio.wait_for(there.over.wait(), LIMIT_S)
    assert there.data == b"good" and isinstance(there.why, ssl.SSLError)
    assert tls.version() == "TLSv1.3"


@pytest.mark.parametrize(("said", "reason"), [(b"GET / HTTP/1.1\r\n\r\n", "no_tls"), (b"", "closed")])
def test_of_a_failed_handshake_nothing_stays(authority: Authority, said: bytes, reason: str) -> None:
    """Not even until all garbage is looked at: a flood of them would fill the memory first."""

    def count() -> int:
        return sum(issubclass(type(found), Secured) for found in gc.get_objects())

    async def run() -> None:
        async with Door(tls=authority.door()) as door:
            gc.disable()
            try:
                for _ in range(20):
                    with socket.create_connection(door.address, timeout=LIMIT_S) as client:
                        client.sendall(said)
                await door.fails(reason, 20)
                await asyncio.sleep(0.1)
                assert count() == 0
            finally:
                gc.enable()

    with only_new_garbage():
        in_loop(run())


@pytest.mark.parametrize("size", [1, len(LARGE)])
async def test_who_does_not_end_is_ended(authority: Authority, size: int) -> None:
    """A client that neither reads nor closes has its time, and no more."""
    async with Door(goodbye_s=0.2, tls=authority.door()) as door:
        client, _, _ = await shaken_by_hand(door, authority, b"x")
        with client:
            came = await door.next()
            came.transport.write(LARGE[:size])
            came.transport.close()
            assert came.transport.is_closing() and not came.over.is_set()
            await asyncio.wait_for(came.over.wait(), LIMIT_S)


async def test_a_connection_in_plain_text_keeps_what_waits() -> None:
    """And nothing else."""
    ours, theirs = socket.socketpair()
    with theirs:
        transport, _ = await asyncio.get_running_loop().create_connection(Side, sock=ours)
        transport.write(LARGE)
        assert kept_by(transport) == transport.get_write_buffer_size() > 0
        transport.abort()
