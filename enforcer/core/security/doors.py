"""Settings of whatever listens: who may come, by which protocols, how often and for how long."""

from enum import StrEnum

from enforcer.core.security.tls import TlsSettings
from streaming.policy.settings import Settings, setting


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
        " balancer, whose word is believed; let nobody else reach the port",
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
