"""Topics with groups that lag behind, on the Kafka of a whole stack."""

import time
from typing import Any

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from kafka_backlog_kit import full_name as full
from proxy_kit import PolicyWriter
from stack_kit import new_topics, read_all, series_at

from streaming.contract.topics import Topics

WAIT_S = 60.0
LIMIT = 4_000
VALUE = b"x" * 100
RECORDS = 100
EVICTS = {"limitSize": LIMIT, "policy": "consumer_backlog_eviction", "actions": True}


class Backlogs:
    """Topics with groups that lag behind on a stack's Kafka.

    Args:
        kafka: its address.
        topics: names as `acme.orders.t1`.
    """

    def __init__(self, kafka: str, *topics: str) -> None:
        self.kafka, self.topics = kafka, topics
        self._policies = PolicyWriter(kafka, Topics())
        new_topics(kafka, *topics)
        self._tail: Consumer | None = None
        self._producer = Producer({"bootstrap.servers": kafka, "batch.num.messages": 1})

    def write(self, count: int = RECORDS) -> None:
        """So many records more in each topic."""
        for topic in self.topics:
            for _ in range(count):
                self._producer.produce(topic, VALUE)
        assert self._producer.flush(WAIT_S) == 0

    def commit(self, group: str, offset: int) -> None:
        """Where a group, which is not active, stands in all topics."""
        consumer = self._consumer(group)
        consumer.commit(
            offsets=[TopicPartition(topic, 0, offset) for topic in self.topics], asynchronous=False
        )
        consumer.close()

    def committed(self, group: str) -> list[int]:
        """The same as Kafka says it."""
        consumer = self._consumer(group)
        found = consumer.committed([TopicPartition(topic, 0) for topic in self.topics], timeout=WAIT_S)
        consumer.close()
        return [int(one.offset) for one in found]

    def limit(self, quota: dict[str, Any] | None) -> None:
        """Give each topic a quota of size, or take it away."""
        for topic in self.topics:
            value = None if quota is None else {"backlogQuotaMap": {"destination_storage": quota}}
            self._policies.put(f"topics.{full(topic)}", value)

    def read(self, topic: str, offset: int) -> int:
        """How many records can be read from an offset on, to the end."""
        consumer = self._consumer("reader")
        place = TopicPartition(topic, 0, offset)
        _, end = consumer.get_watermark_offsets(place, timeout=WAIT_S)
        consumer.assign([place])
        count, deadline = 0, time.monotonic() + WAIT_S
        while offset + count < end and time.monotonic() < deadline:
            count += len(consumer.consume(end - offset - count, timeout=1.0))
        consumer.close()
        return count

    def actions(self, topic: str) -> list[dict[str, Any]]:
        """What the log says of a topic, in order."""
        found = map(orjson.loads, read_all(self.kafka, Topics().decisions))
        return [one for one in found if one["type"] == "backlog_action" and one["topic"] == full(topic)]

    def await_action(self) -> None:
        """Until something new is begun."""
        if self._tail is None:
            self._tail = self._consumer("tail")
            self._tail.assign([TopicPartition(Topics().decisions, 0, OFFSET_BEGINNING)])
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            for record in self._tail.consume(1000, timeout=0.02):
                if b'"step":"begun"' in (record.value() or b""):
                    return
        raise AssertionError("nothing was begun")

    def _consumer(self, group: str) -> Consumer:
        return Consumer({"bootstrap.servers": self.kafka, "group.id": group, "enable.auto.commit": False})


def series(url: str, name: str, *labels: str) -> float | None:
    """The value of the series on a page of metrics that has all these labels."""
    found = (pair for pair in series_at(url).items() if pair[0].startswith(f"{name}{{"))
    return next((value for key, value in found if all(label in key for label in labels)), None)
