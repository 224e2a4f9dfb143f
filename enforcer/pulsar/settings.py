"""Settings of the Pulsar proxy alone (section `pulsar:`); `proxy:` holds what all proxies share."""

from streaming.policy.settings import Settings, setting


class PulsarSettings(Settings):
    """What only the proxy of Pulsar's binary protocol has; units end the names."""

    targets: list[str] = setting(
        [],
        "brokers that clients may ask for beside those that lookups have named and that of --pulsar,"
        " HOST:PORT with * for any part of a name or any port, such as ['broker-*.internal:6650']; at the end"
        " of a host it stands for no dot",
    )
    targets_max: int = setting(1_000, "brokers that are known from lookups; the oldest go first", minimum=1)
    first_frame_timeout_ms: int = setting(
        30_000, "how long a new client may take for its CONNECT, and its login after that, ms", minimum=100
    )
    lookup_timeout_ms: int = setting(
        10_000, "how long a lookup is followed from broker to broker, ms", minimum=100
    )
    lookup_hops_max: int = setting(20, "brokers that one lookup is followed to", minimum=1)
    lookups_max: int = setting(
        1_000, "lookups of one connection that may be followed; with more, some fail and are tried again",
        minimum=1,
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
    publish_queue_bytes: int = setting(
        16_777_216,
        "SENDs of one connection that wait; above it the client is not read until half of them are"
        " gone, bytes",
        minimum=1,
    )
    publish_queue_total_bytes: int = setting(
        134_217_728,
        "the same of all connections; above it those are not read that hold more than their part, bytes",
        minimum=1,
    )
    pending_sends_max: int = setting(
        1_000,
        "limited SENDs of one connection without a receipt; further ones wait until half are answered, as the"
        " broker reads no more and drops those of non-persistent topics",
        minimum=1,
    )
    producers_max: int = setting(
        10_000, "producers of one connection; further ones are refused (NotAllowed)", minimum=1
    )
    exempt_users: list[str] = setting(
        [], "users whose SENDs are neither limited nor counted, such as that of geo-replication"
    )
    consumers_max: int = setting(
        20_000, "consumers of one connection; one that subscribes more ends", minimum=1
    )
    held_message_bytes: int = setting(
        33_554_432,
        "messages for one connection that wait for a limit of dispatch, bytes; beyond it its broker is not"
        " read until half is gone",
        minimum=1,
    )
    held_message_bytes_total: int = setting(
        268_435_456, "the same of all connections together; then of each one that adds to it", minimum=1
    )
    held_unstored_max: int = setting(
        1_000,
        "messages of a topic that is not stored that wait for one consumer; further ones are lost, as at a"
        " broker without permits",
        minimum=0,
    )
    permit_answer_ms: int = setting(
        5_000,
        "how long a broker may take to say how many permits a consumer has, when a limit begins while it"
        " reads",
        minimum=100,
    )
    create_wait_ms: int = setting(
        12_000,
        "how long a request that creates a topic beyond the quota on partition mutations is kept rather than"
        " refused, ms; clients wait 30 s in all",
        minimum=0,
        maximum=20_000,
    )
    create_question_ms: int = setting(
        5_000,
        "how long a broker may take to say whether a topic exists, ms; then the client is to try again",
        minimum=1,
        maximum=10_000,
    )
    creations_max: int = setting(
        1_000,
        "requests of one connection looked at at a time that may create topics; then reading stops",
        minimum=1,
    )
    known_topic_ms: int = setting(
        5_000,
        "how long a topic that was there is believed to be, ms; one deleted and created again within it may"
        " cost nothing",
        minimum=0,
    )
    known_topics_max: int = setting(10_000, "topics known that way", minimum=1)
