"""Handshakes with clients and brokers on real sockets, row by row: who comes in as whom, who does not.

The rows are those of Kroxylicious' TlsIT and of Kafka's SslTransportLayerTest, and what those lack.
"""

import asyncio
import contextlib
import resource
import socket
import ssl
import warnings
from typing import Any, NamedTuple

import pytest
import uvloop
from door_kit import LIMIT_S, Came, Door
from tls_kit import DOMAIN, LOOPBACK, Authority, Pair

from enforcer.core.security.tls import UpstreamTlsSettings, client_context
from enforcer.host.dial import dial
from enforcer.host.doors import entrance
from enforcer.host.secured import Secured

LOOP = uvloop.new_event_loop
NEW, OLD, OLDER = ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_1
AS_USERS = {"principal_mapping_rules": "RULE:^.*CN=([^,]*).*$/$1/"}
NEW_ONLY, OLD_ONLY, ALL = ["TLSv1.3"], ["TLSv1.2"], ["TLSv1.2", "TLSv1.3"]


class Authorities(NamedTuple):
    """Ours, and one that nobody here trusts."""

    own: Authority
    other: Authority

    def pair(self, kind: str) -> Pair | None:
        """What a client shows."""
        return {
            "": lambda: None, "good": lambda: self.own.client("alice"),
            "untrusted": lambda: self.other.client("alice"), "expired": lambda: self.own.expired("alice"),
            "early": lambda: self.own.early("alice"), "server": self.own.server,
        }[kind]()  # fmt: skip


@pytest.fixture(scope="module")
def authorities(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Authorities:
    """Made once."""
    return Authorities(authority, Authority(tmp_path_factory.mktemp("other")))


def limited(context: ssl.SSLContext, version: ssl.TLSVersion | None, ciphers: str) -> ssl.SSLContext:
    """It speaks this one version, and these ciphers of TLS 1.2 and before, if any."""
    if ciphers or version is OLDER:
        context.set_ciphers(f"{ciphers or 'ALL'}:@SECLEVEL=0")
    if version is not None:
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            context.minimum_version = context.maximum_version = version
    return context


def shake(address: tuple[str, int], context: ssl.SSLContext, name: str | None) -> ssl.SSLSocket:
    """A client's handshake, and its first bytes."""
    plain = socket.create_connection(address, timeout=LIMIT_S)
    try:
        client = context.wrap_socket(plain, server_hostname=name)
        client.sendall(b"hello")
    except OSError:
        plain.close()
        raise
    return client


def is_refused(address: tuple[str, int], context: ssl.SSLContext, name: str) -> None:
    """TLS 1.3 tells a client what is wrong with its certificate once it reads."""
    with pytest.raises((ssl.SSLError, ConnectionError)), shake(address, context, name) as client:
        if not client.recv(1):
            raise ConnectionError("it ended without a word")


async def comes_in(door: Door, context: ssl.SSLContext, name: str | None = LOOPBACK) -> tuple[Came, str, str]:
    """Who is let in, by which version and cipher."""
    client = await asyncio.to_thread(shake, door.address, context, name)
    came = await door.next()
    version, cipher = client.version(), client.cipher()
    client.close()
    assert version and cipher
    return came, version, cipher[0]


async def test_whoever_closes_when_its_client_ends_says_goodbye_once(
    authorities: Authorities, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would undo the first one's time limit, which holds the connection until it is over."""
    bound, end = list[Secured](), Secured._bound_end

    def noted(secured: Secured) -> None:
        bound.append(secured)
        end(secured)

    class Closing(Came):
        def eof_received(self) -> None:
            self.transport.close()

    monkeypatch.setattr(Secured, "_bound_end", noted)
    async with Door(made=Closing, tls=authorities.own.door()) as door:
        context = ssl.create_default_context(cafile=authorities.own.ca)
        client = await asyncio.to_thread(shake, door.address, context, LOOPBACK)
        came = await door.next()
        with contextlib.suppress(OSError):
            await asyncio.to_thread(client.unwrap)
        client.close()
        await asyncio.wait_for(came.over.wait(), LIMIT_S)
    assert len(bound) == 1


@pytest.mark.parametrize(
    ("server", "version", "ciphers", "shown", "name", "seen"),
    [
        ({}, None, "", "", LOOPBACK, "TLSv1.3"),
        ({}, OLD, "", "", LOOPBACK, "TLSv1.2"),
        ({"protocols": OLD_ONLY}, None, "", "", LOOPBACK, "TLSv1.2"),
        ({"protocols": NEW_ONLY}, None, "", "", LOOPBACK, "TLSv1.3"),
        ({"protocols": OLD_ONLY, "ciphers": "ECDHE+CHACHA20"}, None, "", "", LOOPBACK, "CHACHA20"),
        ({}, OLD, "ECDHE+AES256", "", LOOPBACK, "AES256"),
        ({}, None, "", "", None, "ANONYMOUS"),
        ({}, None, "", "", DOMAIN, "ANONYMOUS"),
        ({"client_auth": "none"}, None, "", "", LOOPBACK, "ANONYMOUS"),
        ({"client_auth": "none"}, None, "", "good", LOOPBACK, "ANONYMOUS"),
        ({"client_auth": "none"}, None, "", "untrusted", LOOPBACK, "ANONYMOUS"),
        ({"client_auth": "requested"}, None, "", "", LOOPBACK, "ANONYMOUS"),
        ({"client_auth": "requested"}, None, "", "good", LOOPBACK, "alice"),
        ({"client_auth": "required"}, None, "", "good", LOOPBACK, "alice"),
        ({"client_auth": "required", "protocols": OLD_ONLY}, None, "", "good", LOOPBACK, "alice"),
    ],
)  # fmt: skip
async def test_good_handshakes(
    authorities: Authorities, server: dict[str, Any], version: ssl.TLSVersion | None, ciphers: str,
    shown: str, name: str | None, seen: str,
) -> None:  # fmt: skip
    """Who comes in is known by a certificate that was asked for, and by nothing else."""
    context = limited(authorities.own.context(authorities.pair(shown)), version, ciphers)
    context.check_hostname = name is not None
    async with Door(tls=authorities.own.door(**AS_USERS, **server)) as door:
        came, spoken, cipher = await comes_in(door, context, name)
        assert seen in spoken or seen in cipher or seen == came.visitor.user
        assert came.visitor.user == (seen if seen == "alice" else "ANONYMOUS")
        assert came.visitor.name == (DOMAIN if name == DOMAIN else "")


@pytest.mark.parametrize(
    ("server", "version", "ciphers", "shown", "name", "reason"),
    [
        ({"client_auth": "required"}, None, "", "", LOOPBACK, "no_certificate"),
        ({"client_auth": "required"}, OLD, "", "", LOOPBACK, "no_certificate"),
        ({"client_auth": "required"}, None, "", "untrusted", LOOPBACK, "untrusted"),
        ({"client_auth": "requested"}, None, "", "untrusted", LOOPBACK, "untrusted"),
        ({"client_auth": "required"}, OLD, "", "untrusted", LOOPBACK, "untrusted"),
        ({"client_auth": "required"}, None, "", "expired", LOOPBACK, "expired"),
        ({"client_auth": "requested"}, None, "", "expired", LOOPBACK, "expired"),
        ({"client_auth": "required"}, None, "", "early", LOOPBACK, "untrusted"),
        ({}, OLDER, "", "", LOOPBACK, "protocol"),
        ({"protocols": NEW_ONLY}, OLD, "", "", LOOPBACK, "protocol"),
        ({"protocols": OLD_ONLY}, NEW, "", "", LOOPBACK, "protocol"),
        ({"protocols": OLD_ONLY, "ciphers": "ECDHE+CHACHA20"}, OLD, "ECDHE+AES256", "", LOOPBACK, "cipher"),
        ({"protocols": ALL}, OLD, "aNULL", "", LOOPBACK, "cipher"),
        ({}, None, "", "", f"a.b.{DOMAIN}", "refused_by_client"),
        ({}, None, "", "distrusts", LOOPBACK, "refused_by_client"),
    ],
)  # fmt: skip
async def test_bad_handshakes(
    authorities: Authorities, server: dict[str, Any], version: ssl.TLSVersion | None, ciphers: str,
    shown: str, name: str, reason: str,
) -> None:  # fmt: skip
    """Nobody comes in, so nobody's quota is touched; it is counted by its reason, the next is served."""
    whom = authorities.other if shown == "distrusts" else authorities.own
    context = limited(whom.context(authorities.pair("" if shown == "distrusts" else shown)), version, ciphers)
    tls = authorities.own.door(**server)
    async with Door(tls=tls) as door:
        await asyncio.to_thread(is_refused, door.address, context, name)
        await door.fails(reason)
        assert door.came.empty()
        await comes_in(door, authorities.own.context(authorities.pair("good")), DOMAIN)


def hello(name: str = LOOPBACK) -> bytes:
    """What a client says first."""
    sent, got = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(got, sent, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


@pytest.mark.parametrize(
    ("said", "ends", "reason"),
    [
        (b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\0\0", False, "no_tls"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", False, "no_tls"),
        (b"", True, "closed"), (hello()[:5], True, "closed"), (hello(), True, "closed"),
        (b"", False, "timeout"), (hello()[:60], False, "timeout"), (hello(), False, "timeout"),
        (b"\x16\x03\x01\xff\xff" + bytes(70_000), False, "other"),
        (b"\x15\x03\x01\0\2\2\x28", False, "other"),
        # Python's own callback writes that such a name cannot be read, to nobody.
        pytest.param(
            hello(DOMAIN).replace(b"kafka", b"kafk\xe4"), False, "unknown_name",
            marks=pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
        ),
    ],
    ids=lambda value: f"{value[:6]!r}-{len(value)}" if isinstance(value, bytes) else str(value),
)  # fmt: skip
async def test_what_is_no_handshake(
    authorities: Authorities, said: bytes, ends: bool, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain text, half a hello, a hello and nothing more, too long a record, a name that is no ASCII."""
    if reason == "timeout":
        monkeypatch.setattr(entrance, "HANDSHAKE_S", 0.3)
    async with Door(tls=authorities.own.door()) as door:
        reader, writer = await door.connect(said)
        if ends:
            writer.write_eof()
        with contextlib.suppress(ConnectionError):
            # Nothing but TLS's own: a hello's answer, an alert.
            assert (await asyncio.wait_for(reader.read(), LIMIT_S))[:1] in (b"", b"\x15", b"\x16")
        await door.fails(reason)
        writer.close()
        assert door.came.empty()
        monkeypatch.undo()
        await comes_in(door, authorities.own.context())


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.soak)])
async def test_a_flood_of_hellos(authorities: Authorities, count: int) -> None:
    """Each is answered, and nothing follows: others come in meanwhile, memory stays, all are counted."""
    said = hello()

    async def abandon(door: Door, places: asyncio.Semaphore) -> None:
        async with places:
            reader, writer = await door.connect(said)
            await asyncio.wait_for(reader.read(1), LIMIT_S)
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async with Door(room=1_000, tls=authorities.own.door()) as door:
        await comes_in(door, authorities.own.context())
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        places = asyncio.Semaphore(200)
        async with asyncio.TaskGroup() as hellos:
            for _ in range(count):
                hellos.create_task(abandon(door, places))
            await comes_in(door, authorities.own.context())
        await door.fails("closed", count)
        assert door.came.empty()
        await comes_in(door, authorities.own.context())
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


class Brief(asyncio.Protocol):
    """A connection that is not used."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        transport.close()


@pytest.mark.parametrize(
    ("kind", "version", "check_hostname", "spoken_to"),
    [
        ("good", None, True, True), ("good", OLD, True, True), ("good", NEW, True, True),
        ("elsewhere", None, False, True), ("elsewhere", None, True, False), ("untrusted", None, True, False),
        ("untrusted", None, False, False), ("expired", None, False, False), ("good", OLDER, True, False),
    ],
)  # fmt: skip
async def test_brokers(
    authorities: Authorities, kind: str, version: ssl.TLSVersion | None, check_hostname: bool,
    spoken_to: bool, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Only those with a certificate of the settings' CA, by TLS 1.2 or 1.3, whatever host is expected."""
    asked = UpstreamTlsSettings(ca=authorities.own.ca, check_hostname=check_hostname)
    broker = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = {
        "good": authorities.own.server, "untrusted": authorities.other.server,
        "expired": lambda: authorities.own.expired("broker"), "elsewhere": lambda: authorities.own.issue("x"),
    }[kind]()  # fmt: skip
    broker.load_cert_chain(*pair)
    limited(broker, version, "")
    listener = socket.create_server((LOOPBACK, 0))

    def serve() -> None:
        client, _ = listener.accept()
        client.settimeout(LIMIT_S)
        with client, contextlib.suppress(OSError), broker.wrap_socket(client, server_side=True) as secured:
            secured.recv(1)

    with listener:
        serving = asyncio.create_task(asyncio.to_thread(serve))
        with contextlib.nullcontext() if spoken_to else pytest.raises(ssl.SSLError):
            await dial(Brief, listener.getsockname(), client_context(asked))
        await serving
    assert ("cannot be spoken to by TLS" in caplog.text) != spoken_to
