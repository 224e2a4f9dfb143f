"""What all who listen share: settings (who may come, how often, for how long), and what is one place."""

import random
from enum import StrEnum
from ipaddress import IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from pydantic import ValidationInfo, field_validator

from enforcer.core.security.tls import TlsSettings
from streaming.policy.settings import Settings, setting
from streaming.policy.validation import wrong

_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_IPV6_SITE_BITS: Final = 64
"""What one customer gets at least, so addresses within it are one."""


class ProxyProtocol(StrEnum):
    """Whether a load balancer says in front of each connection whose it is (HAProxy's PROXY protocol)."""

    DISABLED = "disabled"
    REQUIRED = "required"


class DoorSettings(Settings):
    """What all listeners share; addresses are those of the PROXY header, where there is one."""

    tls: TlsSettings | None = setting(None, "TLS to clients; absent: plain text")
    proxy_protocol: ProxyProtocol = setting(
        ProxyProtocol.DISABLED,
        "PROXY protocol, v1 and v2: disabled, or required: each connection begins with the header of a load"
        " balancer, whose word is believed",
    )
    proxy_protocol_from: list[str] = setting(
        [],
        "addresses and networks that load balancers come from, such as [10.0.0.0/8]; others are closed;"
        " empty: anybody's word is believed, so let nobody else reach the port",
    )
    connections_per_address: int = setting(
        0,
        "connections of one address, of this machine, or of an IPv6 network (/64), in each process; further"
        " ones are closed at once; 0: no bound",
        minimum=0,
    )
    connection_creation_rate: int = setting(
        0,
        "new ones a second of such an address, in each process; further ones are closed at once; 0: no bound",
        minimum=0,
    )
    connection_age_max_s: int = setting(
        0,
        "a connection ends at such an age, or up to a tenth earlier, when what is under way is answered, s;"
        " 0: no bound",
        minimum=0,
    )

    def lifetime_s(self) -> float:
        """How long a connection may last: those that came together do not come back together; 0: no bound."""
        return self.connection_age_max_s * random.uniform(0.9, 1.0)

    @field_validator("proxy_protocol_from")
    @classmethod
    def _networks(cls, value: list[str], said: ValidationInfo) -> list[str]:
        if value and said.data.get("proxy_protocol") is ProxyProtocol.DISABLED:
            raise wrong("is of no use; expected proxy_protocol: required beside it")
        for item in value:
            try:
                network = ip_network(item)
                if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
                    raise ValueError("addresses of IPv4 are compared as such")
            except ValueError:
                raise wrong(f"holds {item!r}; expected addresses and networks, such as 10.0.0.0/8") from None
        return value


class GateSettings(DoorSettings):
    """What the proxies of both protocols share beside: users, and what brokers hear of their clients."""

    connections_per_user: int = setting(
        0,
        "connections of one user (a login's or a certificate's, not ANONYMOUS) in each process; a further one"
        " ends when its login is over; 0: no bound",
        minimum=0,
    )
    login_timeout_s: int = setting(
        0,
        "a client that is ANONYMOUS so long after it came ends, s; for clusters where all log in; 0: no bound"
        " (Pulsar: 30 s for its CONNECT and what follows, as its brokers)",
        minimum=0,
    )
    upstream_proxy_protocol: bool = setting(
        False,
        "each connection to a broker begins with a PROXY header (v2) of the client's address, and the name"
        " that it asked for by TLS (SNI), for brokers that demand one (Pulsar's haProxyProtocolEnabled) or"
        " stand behind what does",
    )


def source_of(address: str) -> str:
    """What shares a limit of connections with an address.

    >>> source_of("127.8.9.10"), source_of("::ffff:192.0.2.7"), source_of("2001:db8::1")
    ('this machine', '192.0.2.7', '2001:db8::/64')
    """
    try:
        ip = ip_address(address)
    except ValueError:
        return address
    if isinstance(ip, IPv6Address):
        ip = ip.ipv4_mapped or ip
    if ip.is_loopback:
        return "this machine"
    if isinstance(ip, IPv6Address):
        return str(ip_network((ip.packed, _IPV6_SITE_BITS), strict=False))
    return str(ip)
