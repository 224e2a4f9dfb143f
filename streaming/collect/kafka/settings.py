"""Section `collect_kafka:` of weir.yaml: how a Kafka cluster's backlogs are read and relieved."""

from streaming.policy.settings import Settings, setting


class KafkaBacklogSettings(Settings):
    """The collector of a Kafka cluster's backlogs."""

    look_timeout_ms: int = setting(
        30_000, "limit of reading the whole cluster, ms; what is not read by then is left out", minimum=1_000
    )
