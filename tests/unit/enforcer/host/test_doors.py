"""What TLS changes at a socket, on real ones: nothing that was sent is lost, and nobody keeps others out."""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import cast

import pytest
import uvloop
from prometheus_client import CollectorRegistry, Counter
from tls_kit import LOOPBACK, Authority

from enforcer.core.security.tls import ClientAuth, TlsSettings
from enforcer.host.doors.certificates import ServerTls
from enforcer.host.doors.entrance import Entrance
from enforcer.host.doors.listening import listen_at
from enforcer.host.sockets import is_secure, pause_reading, resume_reading

LIMIT_S = 10.0
SENT = bytes(range(256)) * 400


class Door:
    """An entrance whose clients are kept."""

    def __init__(self, authority: Authority, room: int = 100) -> None:
        pair = authority.server()
        tls = TlsSettings(certificate=pair.certificate, key=pair.key, client_auth=ClientAuth.NONE)
        self.failures = Counter("failures", "of handshakes", ["reason"], registry=CollectorRegistry())
        self.came = asyncio.Queue[Came]()
        self._listener = listen_at((LOOPBACK, 0))
        self.address = self._listener.getsockname()
        self.entrance = Entrance(ServerTls(tls, lambda _name: True), lambda: room, self.failures, 1.0)

    async def open(self) -> None:
        """Let clients in."""
        await self.entrance.open(self._listener, lambda: Came(self.came))

    async def close(self) -> None:
        """Let nobody in any more."""
        self.entrance.close()
        # What was cancelled ends.
        await asyncio.sleep(0.1)

    def counted(self, reason: str) -> float:
        """Failures of this reason."""
        return float(self.failures.labels(reason)._value.get())


class Came(asyncio.Protocol):
    """A client that is not read at first."""

    def __init__(self, came: "asyncio.Queue[Came]") -> None:
        self._came, self.data, self.over = came, b"", asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is in."""
        assert is_secure(transport)
        self.transport = cast(asyncio.Transport, transport)
        pause_reading(self.transport)
        self._came.put_nowait(self)

    def data_received(self, data: bytes) -> None:
        """What it sent."""
        self.data += data

    def connection_lost(self, _exc: Exception | None) -> None:
        """It is gone."""
        self.over.set()


@pytest.mark.parametrize("farewell", ["close", "close_notify"])
def test_what_was_sent_before_an_end_is_read(tmp_path: Path, farewell: str) -> None:
    """Also by who reads only later: a held client that leaves has sent what it has sent."""

    def send(address: tuple[str, int], context: ssl.SSLContext) -> None:
        plain = socket.create_connection(address, timeout=LIMIT_S)
        client = context.wrap_socket(plain, server_hostname=LOOPBACK)
        client.sendall(SENT)
        if farewell == "close_notify":
            client.settimeout(0.2)
            with pytest.raises((TimeoutError, OSError)):
                client.unwrap()
        client.close()

    async def run() -> None:
        authority = Authority(tmp_path)
        door = Door(authority)
        await door.open()
        await asyncio.to_thread(send, door.address, authority.context())
        came = await asyncio.wait_for(door.came.get(), LIMIT_S)
        await asyncio.sleep(0.2)
        assert not came.over.is_set()
        resume_reading(came.transport)
        await asyncio.wait_for(came.over.wait(), LIMIT_S)
        assert came.data == SENT
        await door.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def test_mute_clients_of_one_address_make_room(tmp_path: Path) -> None:
    """With all places taken by handshakes that do not go on, the oldest of the greediest ends, counted."""

    async def run() -> None:
        authority = Authority(tmp_path)
        door = Door(authority, room=5)
        await door.open()
        mute = [socket.create_connection(door.address, timeout=LIMIT_S) for _ in range(20)]
        _, writer = await asyncio.wait_for(
            asyncio.open_connection(*door.address, ssl=authority.context(), server_hostname=LOOPBACK), LIMIT_S
        )
        came = await asyncio.wait_for(door.came.get(), LIMIT_S)
        assert door.counted("full") >= 15
        for transport in (came.transport, writer.transport):
            transport.abort()
        await door.close()
        for client in mute:
            client.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
