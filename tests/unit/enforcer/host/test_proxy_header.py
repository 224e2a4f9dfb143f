"""The PROXY protocol's header: what is one, wherever it is cut, and what is none."""

import asyncio
import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address

import pytest
from each_kit import each
from hypothesis import given
from hypothesis import strategies as st
from proxy_header_kit import binary, of_client, text

from enforcer.host.doors.proxy_header import MAX_BYTES, SIGNATURE, TEXT_MAX_BYTES, parse, read_header
from enforcer.host.doors.sources import TurnedAway
from enforcer.host.sockets import Address

LIMIT_S = 5.0
PORT = st.integers(0, 65_535)
HOST = st.ip_addresses()


def headers() -> st.SearchStrategy[tuple[bytes, Address | None]]:
    """Good ones, and the address in each."""

    def whole(host: IPv4Address | IPv6Address, port: int, extensions: bytes | None) -> bytes:
        return text(str(host), port) if extensions is None else of_client(str(host), port, extensions)

    said = st.tuples(HOST, PORT, st.none() | st.binary(max_size=300)).map(
        lambda drawn: (whole(*drawn), (str(drawn[0]), drawn[1]))
    )
    rest = st.binary(max_size=300)
    silent = st.one_of(
        st.just(b"PROXY UNKNOWN\r\n"),
        st.just(b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n"),
        st.builds(lambda family, rest: binary(0x20, family, rest), st.integers(0, 255), rest),
        st.builds(lambda rest: binary(0x21, 0x00, rest), rest),
        st.builds(lambda rest: binary(0x21, 0x31, bytes(216) + rest), rest),
    ).map(lambda header: (header, None))
    return st.one_of(said, silent)


@given(headers(), st.binary(max_size=50))
def test_a_header_is_known_once_it_is_whole(drawn: tuple[bytes, Address | None], after: bytes) -> None:
    """Not one byte earlier, whatever follows it."""
    header, address = drawn
    for cut in range(1, len(header)):
        assert parse(header[:cut]) is None
    assert parse(header + after) == (len(header), address)


@given(st.binary(min_size=1, max_size=200))
def test_anything_else_is_refused_or_waited_for(data: bytes) -> None:
    """Nothing else comes out of it, also behind a good beginning."""
    for beginning in (b"", b"PROXY ", b"PROXY TCP4 ", SIGNATURE, SIGNATURE + b"\x21\x11"):
        try:
            found = parse(beginning + data)
        except TurnedAway as turned:
            assert turned.reason in ("no_header", "bad_header")
        else:
            assert found is None or found.length <= len(beginning + data)


@each(
    "header",
    [
        b"PROXY TCP4 192.0.2.7 192.0.2.9 1 2 3\r\n", b"PROXY TCP4 192.0.2.7 192.0.2.9 1\r\n",
        b"PROXY TCP4 192.0.2.07 192.0.2.9 1 2\r\n", b"PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n",
        b"PROXY TCP6 192.0.2.7 192.0.2.9 1 2\r\n", b"PROXY TCP6 fe80::1%lo fe80::2 1 2\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.9 65536 2\r\n", b"PROXY TCP4 192.0.2.7 192.0.2.9 01 2\r\n",
        b"PROXY TCP4  192.0.2.7 192.0.2.9 1 2\r\n", b"PROXY UDP4 192.0.2.7 192.0.2.9 1 2\r\n",
        b"PROXY UNKNOWNS\r\n", b"PROXY TCP4 \xff 192.0.2.9 1 2\r\n",
        b"PROXY UNKNOWN ".ljust(TEXT_MAX_BYTES, b"x"),
        binary(0x22, 0x11, bytes(12)), binary(0x11, 0x11, bytes(12)), binary(0x21, 0x11, bytes(11)),
        binary(0x21, 0x21, bytes(35)), binary(0x21, 0x12, bytes(12)), binary(0x21, 0x41, bytes(216)),
        binary(0x21, 0x11, bytes(MAX_BYTES - 15))[:16],
    ],
)  # fmt: skip
def test_a_wrong_header_is_refused(header: bytes) -> None:
    """Without waiting for more."""
    with pytest.raises(TurnedAway, match="bad_header"):
        parse(header)


@each("first", [b"\0", b"G", b"\x16\x03\x01", b"PROXy", b"proxy ", SIGNATURE[:11] + b"\0"])
def test_a_client_without_a_header_is_known_by_its_first_wrong_byte(first: bytes) -> None:
    """Kafka's, HTTP's and TLS's own first bytes are among them."""
    with pytest.raises(TurnedAway, match="no_header"):
        parse(first)


async def _read(parts: Iterable[bytes], limit_s: float = LIMIT_S) -> tuple[Address | None, bytes]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        reading = asyncio.create_task(read_header(ours, limit_s))
        for part in parts:
            theirs.sendall(part)
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
        theirs.shutdown(socket.SHUT_WR)
        address = await reading
        rest = b""
        while data := ours.recv(65_536):
            rest += data
        return address, rest


@pytest.mark.parametrize("header", [text("192.0.2.7", 1), of_client("2001:db8::7", 2, bytes(20))])
async def test_what_follows_is_left_wherever_it_is_cut(header: bytes) -> None:
    """In two packets, byte by byte, and all at once."""
    after = b"\0\0\0\x0a\r\nrequests"
    whole = header + after
    cuts = [(whole[:cut], whole[cut:]) for cut in range(len(whole))]
    for parts in (*cuts, tuple(bytes([byte]) for byte in whole)):
        address, rest = await _read(parts)
        assert address in (("192.0.2.7", 1), ("2001:db8::7", 2)) and rest == after


@pytest.mark.parametrize("whole", [True, False])
async def test_a_header_that_does_not_come(whole: bool) -> None:
    """Its client has gone, or takes too long."""
    with pytest.raises(TurnedAway, match="closed"):
        await _read([b"PROXY TCP4"] if whole else [])
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        theirs.sendall(b"PROXY TCP4")
        with pytest.raises(TurnedAway, match="header_timeout"):
            await read_header(ours, 0.05)
