"""Topics beyond their backlog quota on a real broker, proxies before it, and producers that keep count."""

from contextlib import ExitStack
from typing import Any

from backlog_kit import HOLD, BacklogWriter, full, now_ms, until_blocked
from cluster_kit import Cluster, fresh
from confluent_kafka import KafkaError, Producer
from proxy_kit import ProxyThread, until
from stack_kit import new_topics, records

from streaming.contract.topics import Topics

IDEMPOTENT = {"enable.idempotence": "true", "batch.num.messages": "1"}


class World:
    """An installation of its own on the shared broker."""

    def __init__(self, cluster: Cluster, topics: Topics, stack: ExitStack) -> None:
        self.cluster, self.topics, self._stack = cluster, topics, stack
        self.writer = BacklogWriter(cluster, topics)

    def proxy(self, **settings: Any) -> ProxyThread:
        """A proxy of it."""
        config = self.cluster.config(id=fresh("blocks"), topics=self.topics, **settings)
        return self._stack.enter_context(ProxyThread(config))

    def topic(self, partitions: int = 1) -> str:
        """A new topic."""
        name = fresh("backlog")
        new_topics(self.cluster.kafka.bootstrap, name, partitions=partitions)
        return name

    def block(self, proxy: ProxyThread, topic: str, policy: str = HOLD) -> None:
        """Put a topic beyond its quota."""
        self.writer.limit(topic, policy)
        until(lambda: self.knows(proxy, topic), what="the policy")
        self.writer.say(full(topic), 10_240)
        until_blocked(proxy, full(topic))

    def lift(self, proxy: ProxyThread, topic: str) -> None:
        """And inside again."""
        self.writer.say(full(topic), 100)
        until_blocked(proxy, full(topic), blocked=False)

    def read(self, topic: str, partition: int = 0) -> list[str]:
        """What stands in a partition."""
        there = records(self.cluster.kafka.bootstrap, topic)
        return [record.value.decode() for record in there if record.partition == partition]

    def knows(self, proxy: ProxyThread, topic: str) -> bool:
        """Whether a proxy has read the policy of a topic."""
        return f"topics.{full(topic)}" in proxy.proxy.coordinator.policies.at(now_ms()).entries


class Writer:
    """A confluent-kafka producer that notes what became of each record."""

    def __init__(self, proxy: ProxyThread, **properties: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": proxy.bootstrap, "linger.ms": "0", "log_level": "0", **properties}
        )
        self.errors: dict[str, KafkaError | None] = {}

    def write(self, topic: str, values: list[str], partition: int = 0) -> None:
        """Hand records over."""
        for value in values:
            self._producer.produce(topic, value, partition=partition, on_delivery=self._note)
            self._producer.poll(0)

    def done(self, limit_s: float = 40.0) -> dict[str, KafkaError | None]:
        """What became of all."""
        assert self._producer.flush(limit_s) == 0
        return self.errors

    def arrived(self, value: str) -> bool:
        """Whether a record was written."""
        self._producer.poll(0)
        return value in self.errors and self.errors[value] is None

    def _note(self, error: KafkaError | None, message: Any) -> None:
        self.errors[message.value().decode()] = error
