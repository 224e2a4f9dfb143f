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
    requests_at_once: int = setting(4, "requests under way at a time", minimum=1, maximum=64)
    partitions_per_request: int = setting(
        1_000, "partitions in one request, which bounds its answer", minimum=1, maximum=100_000
    )
    offsets_per_request: int = setting(
        4_000,
        "committed offsets in one answer, by what each group had at the last check; a group is not divided",
        minimum=1,
        maximum=1_000_000,
    )
    answer_max_bytes: int = setting(
        64 * 1024 * 1024, "limit of one answer, bytes; a larger one is a failure", minimum=1024 * 1024
    )
    partitions_max: int = setting(
        100_000, "partitions whose stretches are kept; others are counted as unread", minimum=1
    )
    groups_max: int = setting(
        200_000, "groups that are read; if there are more, no topic's are known and all are unread", minimum=1
    )
    ledgers_max: int = setting(
        64,
        "stretches that are kept of a partition; beyond it neighbours are merged",
        minimum=8,
        maximum=4_096,
    )
    first_step_ms: int = setting(
        60_000,
        "a topic that is seen first is divided at this age, ms, and at twice, four times it and so on",
        minimum=1_000,
    )
    first_steps: int = setting(12, "how many such divisions there are at most", minimum=0, maximum=40)
    publish_times_ms: int = setting(
        3_000, "for which records are read in one check, ms, to know when they were published", minimum=100
    )
    publish_times_at_once: int = setting(
        2_000, "partitions of which records are read at a time", minimum=1, maximum=100_000
    )
    publish_times_buffer_bytes: int = setting(
        16 * 1024 * 1024, "limit of records that are buffered meanwhile, bytes", minimum=1024 * 1024
    )
