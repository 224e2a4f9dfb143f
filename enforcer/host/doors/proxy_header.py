"""The PROXY protocol's header, v1 and v2: what a load balancer says of a client before its first byte.

https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt
"""

import asyncio
import re
import socket
import struct
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

from enforcer.host.doors.sources import TurnedAway
from enforcer.host.sockets import Address

TEXT_MAX_BYTES: Final = 107
"""Of a v1 header, with its end of line."""
MAX_BYTES: Final = 4_096
"""Of a v2 header; beside 16 and at most 216 bytes of addresses all is for extensions, which nobody reads."""
SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"

_TEXT: Final = b"PROXY "
_UNKNOWN: Final = b"PROXY UNKNOWN"
_PORT: Final = re.compile("0|[1-9][0-9]{0,4}")
_FIXED: Final = struct.Struct("!12sBBH")
_LOCAL, _PROXY = 0x20, 0x21
_UNSPEC: Final = 0
_EXTENSION: Final = struct.Struct("!BH")
_AUTHORITY: Final = 0x02
"""PP2_TYPE_AUTHORITY: the name that a client asked for by TLS."""
_ADDRESSES: Final = {
    0x11: struct.Struct("!4s4sHH"), 0x21: struct.Struct("!16s16sHH"), 0x31: struct.Struct("216s"),
}  # fmt: skip
"""By family and protocol: TCP over IPv4, over IPv6, a Unix socket."""


class Header(NamedTuple):
    """A whole header.

    Attributes:
        length: in bytes; what follows is the client's own.
        address: the client's; None: it says none, that of the socket stands.
    """

    length: int
    address: Address | None


def header_of(client: Address | None, ours: Address, name: str = "") -> bytes:
    """What a broker is told of a client (v2).

    Args:
        client: its address; None: it is gone, and the connection is our own.
        ours: where it came to; left out where that is of the other family.
        name: the server that it asked for (SNI); empty: none.
    """
    if client is None:
        return _FIXED.pack(SIGNATURE, _LOCAL, _UNSPEC, 0)
    source, target = (plain(address[0]) for address in (client, ours))
    family = 0x11 if source.version == 4 else 0x21
    aim = target.packed if source.version == target.version else bytes(len(source.packed))
    layout = _ADDRESSES[family]
    rest = layout.pack(source.packed, aim, client[1], ours[1])
    if asked := name.encode():
        rest += _EXTENSION.pack(_AUTHORITY, len(asked)) + asked
    return _FIXED.pack(SIGNATURE, _PROXY, family, len(rest)) + rest


def plain(host: str) -> IPv4Address | IPv6Address:
    """An address, of IPv4 also where a socket for both has it as one of IPv6."""
    found = ip_address(host)
    return getattr(found, "ipv4_mapped", None) or found


def parse(data: bytes) -> Header | None:
    """The header that these bytes begin with; None: the rest of it is to come.

    Raises:
        TurnedAway: there is none, or it is wrong.
    """
    if SIGNATURE.startswith(data[: len(SIGNATURE)]):
        return _binary(data)
    if _TEXT.startswith(data[: len(_TEXT)]):
        return _text(data)
    raise TurnedAway("no_header")


def _text(data: bytes) -> Header | None:
    end = data.find(b"\r\n", 0, TEXT_MAX_BYTES)
    if end < 0:
        if len(data) < TEXT_MAX_BYTES:
            return None
        raise TurnedAway("bad_header")
    line, length = data[:end], end + 2
    if line == _UNKNOWN or line.startswith(_UNKNOWN + b" "):
        return Header(length, None)
    try:
        _, family, *hosts, source_port, target_port = line.decode("ascii").split(" ")
        make = {"TCP4": IPv4Address, "TCP6": IPv6Address}[family]
        source, _target = (make(host) for host in hosts if "%" not in host)
        ports = [int(port) for port in (source_port, target_port) if _PORT.fullmatch(port)]
        if len(hosts) != len(ports) or max(ports) > 65_535:
            raise ValueError
    except (ValueError, KeyError):
        raise TurnedAway("bad_header") from None
    return Header(length, (str(source), ports[0]))


def _binary(data: bytes) -> Header | None:
    if len(data) < _FIXED.size:
        return None
    _, command, family, rest = _FIXED.unpack_from(data)
    length = _FIXED.size + rest
    if command not in (_LOCAL, _PROXY) or length > MAX_BYTES:
        raise TurnedAway("bad_header")
    if len(data) < length:
        return None
    if command == _LOCAL or family >> 4 == _UNSPEC:
        return Header(length, None)
    layout = _ADDRESSES.get(family)
    if layout is None or rest < layout.size:
        raise TurnedAway("bad_header")
    said = layout.unpack_from(data, _FIXED.size)
    if len(said) == 1:
        return Header(length, None)
    make = IPv4Address if len(said[0]) == 4 else IPv6Address
    return Header(length, (str(make(said[0])), said[2]))


async def read_header(client: socket.socket, limit_s: float) -> Address | None:
    """Take the header off a new connection, and not a byte more; who it says has come, if it does.

    Raises:
        TurnedAway: there is none in that time, or it is wrong.
    """
    seen = b""
    try:
        async with asyncio.timeout(limit_s):
            while True:
                await _readable(client)
                data = client.recv(MAX_BYTES, socket.MSG_PEEK)
                if not data:
                    raise TurnedAway("closed")
                header = parse(seen + data)
                seen += client.recv(header.length - len(seen) if header else len(data))
                if header:
                    return header.address
    except TimeoutError:
        raise TurnedAway("header_timeout") from None
    except OSError:
        raise TurnedAway("closed") from None


async def _readable(client: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    loop.add_reader(client, came.set)
    try:
        await came.wait()
    finally:
        loop.remove_reader(client)
