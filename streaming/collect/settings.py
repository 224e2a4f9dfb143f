"""Section `collect_pulsar:` of weir.yaml: how Pulsar's brokers are read, and what is pushed into them."""

from enum import StrEnum

from streaming.policy.settings import Settings, setting

TOKEN_VARIABLE = "WEIR_PULSAR_TOKEN"


class Source(StrEnum):
    """Where counters are read."""

    METRICS = "metrics"
    STATS = "stats"


class AtStop(StrEnum):
    """What becomes of the limits that were pushed when the collector stops."""

    KEEP = "keep"
    REMOVE = "remove"


class PulsarCollectSettings(Settings):
    """The collector of Pulsar's usage, which can push limits into Pulsar's own limiters."""

    admin: str = setting("http://127.0.0.1:8080", "base URL of Pulsar's admin API; --admin wins over it")
    cluster: str = setting("", "name of the Pulsar cluster; empty: as its brokers say (clusterName)")
    token_file: str = setting(
        "", f"file with the admin API's token, read anew after a 401; empty: {TOKEN_VARIABLE}, else none"
    )
    ca_file: str = setting("", "certificates that an https admin API is checked by; empty: the system's")
    source: Source = setting(
        Source.METRICS, "where counters are read: each broker's metrics page, or stats of each topic"
    )
    notes_namespace: str = setting(
        "pulsar/system",
        "namespace in whose properties is noted what was pushed; not one with limits, whose buckets each"
        " note would refill",
    )
    interval_ms: int = setting(
        5_000, "how often the brokers' counters are read, ms; never longer than a round", minimum=500
    )
    request_timeout_ms: int = setting(10_000, "limit of one attempt of a REST call, ms", minimum=100)
    attempts_max: int = setting(3, "attempts of one REST call before it has failed", minimum=1, maximum=10)
    requests_at_once: int = setting(8, "REST calls under way at a time", minimum=1, maximum=256)
    answer_max_bytes: int = setting(
        256 * 1024 * 1024, "limit of one answer, bytes; a larger one is a failure", minimum=1024
    )
    topics_max: int = setting(
        100_000, "topics and subscriptions whose counters are kept; others are counted", minimum=1
    )
    push_change: float = setting(
        0.05, "relative change of a share from which on it is pushed", minimum=0.0, maximum=1.0
    )
    push_apart_ms: int = setting(
        9_000, "least time between rounds with pushes, ms: each push refills a bucket", minimum=0
    )
    pushes_max: int = setting(200, "limits pushed in one round; the others come in the next ones", minimum=1)
    newcomer_fraction: float = setting(
        0.05,
        "part of a group's limit for each topic without a limit of its own, set on the namespace",
        minimum=0.0001,
        maximum=1.0,
    )
    idle_rounds: int = setting(
        3, "rounds without traffic after which a topic's own limit is taken away", minimum=1
    )
    at_stop: AtStop = setting(AtStop.KEEP, "what becomes of pushed limits when the collector stops")
    eviction_wait_ms: int = setting(
        10_000, "how long an eviction may take until the subscription is seen to have moved, ms", minimum=100
    )
    eviction_sample: int = setting(
        100,
        "entries of one eviction that are asked how many messages they hold and, by time, whether they are"
        " old enough; of more, so many evenly apart",
        minimum=1,
        maximum=10_000,
    )
