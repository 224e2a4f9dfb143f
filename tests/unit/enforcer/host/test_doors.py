"""What TLS changes at a socket, on real ones: nothing that was sent is lost, and nobody keeps others out."""

import asyncio
import socket
import ssl

import pytest
import uvloop
from door_kit import LIMIT_S, Door
from endings_kit import arrived
from tls_kit import LOOPBACK, Authority

from enforcer.host.sockets import is_secure

LOOP = uvloop.new_event_loop
# Not more than the kernels take before anybody reads.


@pytest.mark.parametrize("farewell", ["close", "close_notify"])
@pytest.mark.parametrize("size", (1, 51_200))
async def test_what_was_sent_before_an_end_is_read(authority: Authority, size: int, farewell: str) -> None:
    """Also by who reads only later: a held client that leaves has sent what it has sent."""
    sent = (bytes(range(256)) * 200)[:size]

    def send(address: tuple[str, int], context: ssl.SSLContext) -> None:
        plain = socket.create_connection(address, timeout=LIMIT_S)
        client = context.wrap_socket(plain, server_hostname=LOOPBACK)
        client.sendall(sent)
        arrived(client)
        if farewell == "close_notify":
            client.settimeout(0.2)
            with pytest.raises((TimeoutError, OSError)):
                client.unwrap()
        client.close()

    async with Door(paused=True, tls=authority.door()) as door:
        await asyncio.to_thread(send, door.address, authority.context())
        came = await door.next()
        assert is_secure(came.transport)
        await asyncio.sleep(0.2)
        assert not came.over.is_set()
        came.transport.resume_reading()
        await asyncio.wait_for(came.over.wait(), LIMIT_S)
        # Not the bytes themselves: what pytest says of those is longer than a log.
        assert len(came.data) == size and hash(came.data) == hash(sent)


async def test_mute_clients_of_one_address_make_room(authority: Authority) -> None:
    """With all places taken by handshakes that do not go on, the oldest of the greediest ends, counted."""
    async with Door(room=5, tls=authority.door()) as door:
        mute = [socket.create_connection(door.address, timeout=LIMIT_S) for _ in range(20)]
        _, writer = await asyncio.wait_for(
            asyncio.open_connection(*door.address, ssl=authority.context(), server_hostname=LOOPBACK), LIMIT_S
        )
        came = await door.next()
        assert door.failed("full") >= 15
        for transport in (came.transport, writer.transport):
            transport.abort()
    for client in mute:
        client.close()


async def test_what_was_sent_is_read_by_who_stops_and_goes_at_once(authority: Authority) -> None:
    """An earlier step of going on must not open the socket for a later one: the end is found first then."""
    loop = asyncio.get_running_loop()
    async with Door(tls=authority.door()) as door:
        context = authority.context()
        # Else tickets wait unread, and closing is a reset.
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        plain = socket.create_connection(door.address, timeout=LIMIT_S)
        client = await asyncio.to_thread(context.wrap_socket, plain, server_hostname=LOOPBACK)
        came = await door.next()

        def turn() -> None:
            loop.call_soon(came.transport.resume_reading)
            came.transport.resume_reading()
            came.transport.pause_reading()
            client.sendall(bytes(1_000))
            client.close()

        loop.call_soon(turn)
        await asyncio.wait_for(came.over.wait(), LIMIT_S)
        assert len(came.data) == 1_000


async def test_reading_on_just_when_the_connection_is_lost(authority: Authority) -> None:
    """TLS has lost its socket a turn before its owner hears of it."""
    said = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: said.append(context))
    async with Door(paused=True, tls=authority.door()) as door:
        reader, writer = await asyncio.open_connection(
            *door.address, ssl=authority.context(), server_hostname=LOOPBACK
        )
        writer.write(bytes(3_000))
        came = await door.next()
        await asyncio.sleep(0.1)
        came.transport.abort()
        came.transport.resume_reading()
        came.transport.pause_reading()
        came.transport.resume_reading()
        await asyncio.wait_for(came.over.wait(), LIMIT_S)
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.transport.abort()
    assert not said
