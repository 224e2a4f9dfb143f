"""Headers of the PROXY protocol, as load balancers write them."""

import struct
from collections.abc import Callable
from ipaddress import ip_address

from enforcer.host.doors.proxy_header import SIGNATURE

CLIENTS = {"tcp4": ("192.0.2.7", 40_001), "tcp6": ("2001:db8::7", 40_002)}


def text(host: str, port: int) -> bytes:
    """A v1 header of a client."""
    family, target = ("TCP6", "2001:db8::9") if ":" in host else ("TCP4", "192.0.2.9")
    return f"PROXY {family} {host} {target} {port} 9092\r\n".encode()


def binary(command: int, family: int, rest: bytes) -> bytes:
    """A v2 header."""
    return SIGNATURE + struct.pack("!BBH", command, family, len(rest)) + rest


def of_client(host: str, port: int, extensions: bytes = b"") -> bytes:
    """A v2 header of a client."""
    packed = ip_address(host).packed
    family = 0x11 if len(packed) == 4 else 0x21
    return binary(0x21, family, packed * 2 + struct.pack("!HH", port, 9092) + extensions)


HEADERS: dict[str, Callable[[str, int], bytes]] = {
    "v1": text, "v2": of_client, "none": lambda _host, _port: b"",
}  # fmt: skip
