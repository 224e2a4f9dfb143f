"""Connections to brokers: one that cannot be made is told, and nothing is sent into the middle of a frame."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvloop
from connection_kit import FakeTransport, Rig
from context_kit import SERVER_NAME
from door_kit import Door
from pulsar_rig import PulsarRig
from tls_kit import Authority

from enforcer.host.dial import Upstream, dial
from enforcer.host.doors.proxy_header import header_of, parse
from enforcer.host.server import Host
from enforcer.host.sockets import Address

LOOP = uvloop.new_event_loop


class Owner:
    """A connection that notes what it is told."""

    def __init__(self) -> None:
        self.peer: object = None
        self.failed = asyncio.get_running_loop().create_future()

    def upstream_failed(self, reason: str) -> None:
        """See dial.Owner."""
        self.failed.set_result(reason)

    def upstream_received(self, data: bytes) -> None:
        """See dial.Owner."""

    def upstream_changed(self) -> None:
        """See dial.Owner."""


async def test_an_address_that_is_none_is_a_failure_like_any_other() -> None:
    """Its client is told; names with parts of more than 63 characters cannot be asked for at all."""
    owner: Any = Owner()
    upstream = Upstream(owner)
    upstream.dial(("x" * 64, 6650))
    assert await asyncio.wait_for(owner.failed, 5) == "refused" and upstream.closed


async def test_what_was_made_as_its_time_was_over_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner sends requests by then, which would be given up with their client; its end is told once."""
    owner: Any = Owner()
    upstream, broker = Upstream(owner), FakeTransport()

    async def late(make: Callable[[], asyncio.Protocol], *_: object) -> None:
        make().connection_made(cast(asyncio.Transport, broker))
        raise TimeoutError

    monkeypatch.setattr("enforcer.host.dial.dial", late)
    upstream.dial(("broker", 9_092))
    await asyncio.sleep(0)
    assert upstream.writable and not owner.failed.done()
    upstream.connection_lost(None)
    assert await owner.failed == "lost"


async def test_a_broker_that_says_nothing_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its handshake counts, too."""
    owner: Any = Owner()
    monkeypatch.setattr("enforcer.host.dial.CONNECT_TIMEOUT_MS", 100)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        upstream = Upstream(owner, ssl.create_default_context())
        upstream.dial(silent.getsockname())
        assert await asyncio.wait_for(owner.failed, 5) == "timeout" and upstream.closed


@pytest.mark.parametrize("heard", [False, True])
async def test_an_end_by_tls_is_a_refusal_only_at_first(heard: bool) -> None:
    """With TLS 1.3 a certificate is refused after the handshake; who has been heard is lost."""
    owner: Any = Owner()
    upstream = Upstream(owner)
    upstream.connection_made(cast(asyncio.Transport, FakeTransport()))
    if heard:
        upstream.data_received(b"x")
    upstream.connection_lost(ssl.SSLError(1, "alert"))
    assert await owner.failed == ("lost" if heard else "tls")


async def test_nothing_is_sent_into_the_middle_of_a_request() -> None:
    """What the proxy itself sends waits for the rest of a request that is passing."""
    owner: Any = Owner()
    upstream, broker = Upstream(owner), FakeTransport()
    upstream.connection_made(cast(asyncio.Transport, broker))
    upstream.pass_on(b"begin", True)
    assert upstream.send(b"own", b"4")
    upstream.pass_on(b"more", True)
    assert broker.data == b"beginmore"
    upstream.pass_on(b"end", False)
    assert upstream.send(b"next", b"5")
    assert broker.data == b"beginmoreend4own5next"
    upstream.send(bytes(300_000), b"6")
    assert broker.data.endswith(b"next6" + bytes(300_000))


async def test_what_is_given_up_is_not_closed_first() -> None:
    """TLS would take all that waits, only to throw it away."""
    owner: Any = Owner()
    upstream, broker = Upstream(owner), FakeTransport()
    upstream.connection_made(cast(asyncio.Transport, broker))
    ends: list[str] = []
    broker.close, broker.abort = lambda: ends.append("close"), lambda: ends.append("abort")  # type: ignore[method-assign]
    upstream.abort()
    assert ends == ["abort"]
    upstream.close()
    assert ends == ["abort", "close"]


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("client", [("192.0.2.7", 4_321), ("2001:db8::7", 65_535), None])
async def test_a_broker_hears_of_the_client_before_all_else(
    authority: Authority, client: Address | None, secure: bool
) -> None:
    """Also before TLS; of a client that is gone it hears nothing, and the address of the socket stands."""
    async with Door(proxy_protocol="required", tls=authority.door() if secure else None) as door:
        context = ssl.create_default_context(cafile=authority.ca) if secure else None
        await dial(asyncio.Protocol, door.address, context, header_of(client, ("127.0.0.1", 9_092)))
        came = await door.next()
        told = came.visitor.peer
        assert isinstance(told, tuple) and (told == client if client else told[0] == door.address[0])
        came.transport.abort()


async def test_a_header_in_front_of_a_connection_that_fails() -> None:
    """It is told as without one."""
    door = Door()
    await door.close()
    door._listener.close()
    for address in (door.address, ("x" * 64, 6650), ("no.such.host.invalid", 6650)):
        with pytest.raises(OSError):
            await asyncio.wait_for(dial(asyncio.Protocol, address, header=header_of(None, address)), 10)


async def test_a_family_that_the_machine_has_not_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker with both kinds of addresses was never reached where IPv6 is switched off."""
    found = [(255, socket.SOCK_STREAM, 0, "", ("::1", 1))]
    async with Door(proxy_protocol="required") as door:
        found.append((socket.AF_INET, socket.SOCK_STREAM, 0, "", door.address))
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        await dial(asyncio.Protocol, door.address, header=header_of(None, door.address))
        (await door.next()).transport.abort()


def test_the_address_of_another_family_is_left_out() -> None:
    """A client by IPv6 at a listener by IPv4, as with a load balancer that listens on both."""
    for host in ("2001:db8::7", "::ffff:192.0.2.7"):
        header = header_of((host, 1), ("::ffff:127.0.0.1", 2))
        assert parse(header) == (len(header), (host.removeprefix("::ffff:"), 1))


@pytest.mark.parametrize("made", [lambda: Rig().connection, lambda: PulsarRig().connection])
def test_a_broker_hears_what_a_connection_asked_for(made: Callable[[], Any]) -> None:
    """Of either protocol, if brokers hear of clients at all."""
    connection, listen = made(), ("127.0.0.1", 2)
    connection.peer = ("192.0.2.7", 1)
    header = header_of(connection.peer, listen, SERVER_NAME)
    for introduces, told in ((True, header), (False, b"")):
        host = cast(Any, SimpleNamespace(_introduces=introduces, listen=listen))
        assert Host.introduce(host, connection) == told


def test_the_name_that_a_client_asked_for_is_told() -> None:
    """As PP2_TYPE_AUTHORITY, after the addresses, in bytes of UTF-8."""
    for name in ("broker-3.kafka.test", "ü" * 100):
        header, plain = (header_of(("192.0.2.7", 1), ("127.0.0.1", 2), one) for one in (name, ""))
        said = name.encode()
        assert header[16:] == plain[16:] + b"\x02" + len(said).to_bytes(2, "big") + said
        assert parse(header) == (len(header), ("192.0.2.7", 1)) and len(plain) == 28
