"""Sections `kafka:`, `local:` and `collect:` of weir.yaml, and how our own connections are made."""

from typing import Any

from streaming.contract.topics import KEPT_MS
from streaming.policy.secrets import SecretText
from streaming.policy.settings import Settings, setting

LOCAL_KAFKA_PORT = 19192
DEFAULT_LISTEN = "127.0.0.1:19092"
"""Where the proxy of Kafka waits for clients."""
DEFAULT_PULSAR_LISTEN = "127.0.0.1:16650"
"""The same of Pulsar's."""
DEFAULT_ADMIN = "127.0.0.1:18080"
"""Where the admin API does."""
DEFAULT_METRICS = "127.0.0.1:19100"
"""Where `weir up` shows the metrics of all parts."""
LOCAL_PULSAR_PORT, LOCAL_PULSAR_ADMIN_PORT = 16750, 18180
PORT_MAX = 65_535


def _port(default: int, doc: str) -> Any:
    return setting(default, f"{doc}; any free one if it is taken, or with 0", minimum=0, maximum=PORT_MAX)


class PartClients(Settings):
    """What differs for one part of those that read one file, as `weir up` starts them."""

    job: dict[str, SecretText] = setting({}, "of `weir job`; Spark's own are job.kafka_options")
    proxy: dict[str, SecretText] = setting({}, "of `weir proxy`, also of Pulsar's")
    admin: dict[str, SecretText] = setting({}, "of `weir admin`")
    collect_kafka: dict[str, SecretText] = setting({}, "of `weir collect kafka`")
    collect_pulsar: dict[str, SecretText] = setting({}, "of `weir collect pulsar`")


class KafkaSettings(Settings):
    """Where Weir's own topics live; every part reads this section."""

    bootstrap: str = setting(
        f"127.0.0.1:{LOCAL_KAFKA_PORT}", "HOST:PORT of the guarded cluster; --kafka wins over it"
    )
    topic_prefix: str = setting("weir.", "what the names of Weir's five topics begin with")
    client: dict[str, SecretText] = setting(
        {},
        "librdkafka properties of Weir's own connections, such as security.protocol and sasl.*; "
        "${dir:/run/secrets:password} stands for the content of that file",
    )
    clients: PartClients | None = setting(
        None, "properties of one part's connections over those of `client`, such as a user of its own"
    )
    topics_kept_ms: int = setting(
        KEPT_MS,
        "how long Weir's topics hold events and decisions, ms; they are made so, and parts complain of one "
        "that holds less. A job that was away for longer misses what it did not read",
        minimum=3_600_000,
    )

    def client_of(self, part: str) -> dict[str, str]:
        """librdkafka properties of a part, by its name in PartClients; of any other command, `client`."""
        return self.client | getattr(self.clients, part, {})

    @property
    def parts(self) -> list[str]:
        """Parts that have connections of their own, by their names in PartClients."""
        return [] if self.clients is None else [part for part, given in self.clients if given]


class LocalSettings(Settings):
    """The stack of `weir up`."""

    kafka_port: int = _port(LOCAL_KAFKA_PORT, "port of the local Kafka")
    pulsar_port: int = _port(LOCAL_PULSAR_PORT, "port of the local Pulsar")
    pulsar_admin_port: int = _port(LOCAL_PULSAR_ADMIN_PORT, "port of its admin API")
    pulsar_heap_mb: int = setting(
        1_024, "limit of the local Pulsar's heap, MiB; it may use 1 GiB outside of it besides", minimum=256
    )
    partitions: int = setting(
        1, "partitions of a topic of Weir when it is created; one has the lowest latency", minimum=1
    )


class CollectSettings(Settings):
    """The collector: what it takes over from the cluster."""

    quotas_from_kafka: bool = setting(
        True, "publish the cluster's own client quotas (kafka-configs) as policies; a file's entry wins"
    )
