"""Settings of the Pulsar proxy alone (section `pulsar:`); `proxy:` holds what all proxies share."""

from enforcer.core.security.doors import GateSettings
from enforcer.core.security.tls import UpstreamTlsSettings
from streaming.policy.settings import setting


class PulsarSettings(GateSettings):
    """What only the proxy of Pulsar's binary protocol has; units end the names."""

    upstream_tls: UpstreamTlsSettings | None = setting(
        None, "TLS to Pulsar's brokers, as proxy.upstream_tls; absent: plain text; {}: the system's CAs"
    )
    targets: list[str] = setting(
        [],
        "brokers that clients may ask for beside those that lookups have named and that of --pulsar,"
        " HOST:PORT with * for any part of a name or any port, such as ['broker-*.internal:6650']; at the end"
        " of a host it stands for no dot",
    )
    token_claim: str = setting("sub", "claim of a token that names the user, as on the brokers")
    proxy_roles: list[str] = setting(
        [],
        "users that are proxies themselves (proxyRoles of the brokers): the user is whom they name in turn",
    )
    auth_methods: list[str] = setting(
        ["token", "basic"],
        "logins that brokers check, whose names are believed; a client with any other is ANONYMOUS",
    )
    migrated_url: str = setting(
        "",
        "where clients of topics that were migrated to another cluster go, pulsar://HOST:PORT of its proxy;"
        " empty: their connections end",
    )
    publish_wait_ms: int = setting(
        20_000,
        "a SEND that has waited so long for a group or user may pass in spite of the debt, one of each in"
        " such a time, and a CLOSE_PRODUCER waits no longer for its SENDs, ms; to be below the clients' 30 s",
        minimum=100,
    )
    exempt_users: list[str] = setting(
        [], "users whose SENDs are neither limited nor counted, such as that of geo-replication"
    )
    create_wait_ms: int = setting(
        12_000,
        "how long a request that creates a topic beyond the quota on partition mutations is kept rather than"
        " refused, ms; clients wait 30 s in all",
        minimum=0,
        maximum=20_000,
    )
