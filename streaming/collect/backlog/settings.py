"""Section `backlog:` of weir.yaml: how backlogs are looked at and relieved, on whatever kind of cluster."""

from streaming.policy.settings import Settings, setting


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
    order_timeout_ms: int = setting(
        15_000,
        "limit of each step of an eviction, ms; what was begun or left without an answer so long ago is"
        " settled",
        minimum=100,
    )
    topic_metrics: bool = setting(
        True, "metrics of each topic, as Pulsar's exposeTopicLevelMetricsInPrometheus; else of each namespace"
    )
    metrics_topics_max: int = setting(5_000, "topics that metrics show; the others are counted", minimum=1)
