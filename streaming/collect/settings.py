"""Sections of weir.yaml: `collect_pulsar:` and, of backlogs there and on Kafka, `backlog:`."""

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
    """The collector of Pulsar's usage: how brokers are read, and what is pushed into their own limiters."""

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
    at_stop: AtStop = setting(AtStop.KEEP, "what becomes of pushed limits when the collector stops")


class BacklogSettings(Settings):
    """The collectors of backlogs. How often they look is a policy: `backlogQuotaCheckIntervalInSeconds`."""

    enabled: bool = setting(
        True, "look after backlogs: report them, and evict where a quota has `actions: true`"
    )
    cluster: str = setting(
        "",
        "what a Kafka cluster is called in metrics and actions; empty: its own id. Pulsar's name is"
        " collect_pulsar.cluster",
    )
    topic_metrics: bool = setting(
        True,
        "metrics of each topic, 5,000 at most, as Pulsar's exposeTopicLevelMetricsInPrometheus; else of each"
        " namespace",
    )
