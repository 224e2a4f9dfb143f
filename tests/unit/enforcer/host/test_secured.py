"""What TLS hides is seen: what waits to be written, and the buffers of a connection, on real sockets."""

import asyncio
import contextlib
import socket
import ssl
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest
from door_kit import LIMIT_S, Door, in_loop, tls_of
from tls_kit import LOOPBACK, Authority

from enforcer.host.dial import dial
from enforcer.host.secured import SLICE_BYTES, kept_by

HIGH, LOW = 1 << 20, 1 << 18
LARGE = bytes(range(256)) * 65_536
"""16 MiB."""
KIB = 1 << 10


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

    def connection_lost(self, _exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.over.set()

    async def got(self, count: int) -> None:
        """Wait for so many bytes."""
        async with asyncio.timeout(LIMIT_S):
            while len(self.data) < count:
                self.came.clear()
                await self.came.wait()


def between(folder: Path, work: Callable[[Side, Side], Awaitable[None]]) -> None:
    """Run it with a connection by TLS: the broker's side of it, through the entrance, and ours, dialled."""

    async def run() -> None:
        authority = Authority(folder)
        door, there, here = Door(tls=tls_of(authority)), Side(), Side()
        await door.open(lambda: there)
        await dial(lambda: here, door.address, ssl.create_default_context(cafile=authority.ca))
        await asyncio.wait_for(there.made.wait(), LIMIT_S)
        try:
            await work(there, here)
        finally:
            for side in (there, here):
                side.transport.abort()
            await door.close()

    in_loop(run())


@pytest.mark.parametrize("part", [len(LARGE), 50_000])
def test_what_waits_is_seen_and_arrives(tmp_path: Path, part: int) -> None:
    """All but little, in whatever parts it is written to whoever does not read; marks are told; then it comes
    as it was, and TLS keeps little of it.
    """

    async def work(there: Side, here: Side) -> None:
        here.transport.pause_reading()
        for begin in range(0, len(LARGE), part):
            there.transport.write(LARGE[begin : begin + part])
        assert there.told == ["pause"]
        # The kernel's buffers on both sides of a loopback connection take 6 MiB at most.
        await asyncio.sleep(0.2)
        waiting = there.transport.get_write_buffer_size()
        assert len(LARGE) - 8 * HIGH < waiting < len(LARGE)
        assert kept_by(there.transport) > waiting + 128 * KIB
        here.transport.resume_reading()
        await here.got(len(LARGE))
        assert here.data == LARGE and there.told == ["pause", "resume"]
        assert there.transport.get_write_buffer_size() == 0
        assert 90 * KIB < kept_by(there.transport) < 128 * KIB

    between(tmp_path, work)


def test_a_small_read_takes_little(tmp_path: Path) -> None:
    """Not a quarter of a MiB for each record; what is read next leaves it as it was."""

    async def work(there: Side, here: Side) -> None:
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

    between(tmp_path, work)


def test_who_reads_nothing_at_first_can_write(tmp_path: Path) -> None:
    """The end of TLS' own handshake, which still waits then, must not count as what the other side leaves."""

    class Deaf(Side):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.transport.pause_reading()
            self.transport.write(b"hello")

    async def run() -> None:
        authority = Authority(tmp_path)
        door, there, here = Door(tls=tls_of(authority)), Side(), Deaf()
        await door.open(lambda: there)
        await dial(lambda: here, door.address, ssl.create_default_context(cafile=authority.ca))
        await there.got(5)
        assert here.transport.get_write_buffer_size() == 0
        for side in (there, here):
            side.transport.abort()
        await door.close()

    in_loop(run())


def test_what_waits_at_the_end_arrives(tmp_path: Path) -> None:
    """A connection that is closed has its time for it; nothing is told any more."""

    async def work(there: Side, here: Side) -> None:
        there.transport.write(LARGE)
        there.transport.close()
        await here.got(len(LARGE))
        await asyncio.wait_for(there.over.wait(), LIMIT_S)
        assert here.data == LARGE and there.told == ["pause"]

    between(tmp_path, work)


def test_what_waits_when_the_client_ends_its_side_arrives(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It may still read after its close_notify; what it does not get is no flood of the log either."""

    async def run() -> None:
        authority, loop = Authority(tmp_path), asyncio.get_running_loop()
        door, there = Door(tls=tls_of(authority)), Side()
        await door.open(lambda: there)
        got, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = ssl.create_default_context(cafile=authority.ca).wrap_bio(got, sent, server_hostname=LOOPBACK)
        with socket.create_connection(door.address, timeout=LIMIT_S) as client:
            client.setblocking(False)

            async def until(step: Callable[[], object]) -> None:
                while True:
                    try:
                        step()
                        break
                    except ssl.SSLWantReadError:
                        await loop.sock_sendall(client, sent.read())
                        got.write(await loop.sock_recv(client, SLICE_BYTES))
                await loop.sock_sendall(client, sent.read())

            await until(tls.do_handshake)
            await asyncio.wait_for(there.made.wait(), LIMIT_S)
            there.transport.write(LARGE)
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.unwrap()
            await loop.sock_sendall(client, sent.read())
            await asyncio.wait_for(there.ended.wait(), LIMIT_S)
            data = bytearray()
            async with asyncio.timeout(LIMIT_S):
                while len(data) < len(LARGE):
                    await until(lambda: data.extend(tls.read(SLICE_BYTES)))
            assert data == LARGE
        there.transport.write(LARGE)
        await door.close()
        assert there.transport.get_write_buffer_size() == 0

    in_loop(run())
    assert not caplog.messages


def test_what_tls_keeps_of_what_was_read_is_counted(tmp_path: Path) -> None:
    """Its buffers stay as large as the largest read was; and one read that nobody has taken."""

    async def work(there: Side, here: Side) -> None:
        assert kept_by(there.transport) < 32 * KIB
        there.transport.pause_reading()
        here.transport.write(LARGE[:HIGH])
        async with asyncio.timeout(LIMIT_S):
            while kept_by(there.transport) <= 32 * KIB:  # noqa: ASYNC110  # TLS reads by itself, and tells nobody
                await asyncio.sleep(0.01)
        assert kept_by(there.transport) < 640 * KIB
        there.transport.resume_reading()
        await there.got(HIGH)
        assert 300 * KIB < kept_by(there.transport) < 2_048 * KIB

    between(tmp_path, work)


def test_a_connection_in_plain_text_keeps_what_waits() -> None:
    """And nothing else."""

    async def run() -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            transport, _ = await asyncio.get_running_loop().create_connection(Side, sock=ours)
            transport.write(LARGE)
            assert kept_by(transport) == transport.get_write_buffer_size() > 0
            transport.abort()

    in_loop(run())
