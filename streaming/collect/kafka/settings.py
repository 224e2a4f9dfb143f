"""Section `collect_kafka:` of weir.yaml: how a Kafka cluster's backlogs are read and relieved."""

from streaming.policy.settings import Settings, setting


class KafkaBacklogSettings(Settings):
    """The collector of a Kafka cluster's backlogs."""

    request_timeout_ms: int = setting(
        10_000,
        "limit of one request to a broker, ms; what it was about is left out of that check",
        minimum=100,
    )
    look_timeout_ms: int = setting(
        30_000, "limit of reading the whole cluster, ms; what is not read by then is left out", minimum=1_000
    )
    offsets_per_request: int = setting(
        4_000,
        "committed offsets in one answer, by what each group had at the last check; a group is not divided",
        minimum=1,
        maximum=1_000_000,
    )
    partitions_max: int = setting(
        100_000, "partitions whose stretches are kept; others are counted as unread", minimum=1
    )
