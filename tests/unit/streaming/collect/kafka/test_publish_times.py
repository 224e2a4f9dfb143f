"""What one partition that cannot be read costs the publish times of the others: nothing."""

import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from streaming.collect.kafka import publish_times
from streaming.collect.kafka.partitions import Partition
from streaming.collect.kafka.publish_times import PublishTimes, Spot
from streaming.contract.topics import Cluster

REFUSED, OPEN = Partition("refused", 0), Partition("open", 0)


class Records:
    """Stands for the library's consumer: record n of `open` is of time 1,000 + n; `refused` is refused."""

    def __init__(self) -> None:
        self._ready: list[Any] = []

    def assign(self, places: Sequence[TopicPartition]) -> None:
        """As the library's; it tells an error once, without an offset."""
        self._ready = [self._message(place.topic, place.offset) for place in places]

    def consume(self, _most: int, timeout: float) -> list[Any]:
        """As the library's."""
        ready, self._ready = self._ready, []
        if not ready:
            time.sleep(timeout)
        return ready

    def incremental_unassign(self, places: Sequence[TopicPartition]) -> None:
        """As the library's."""

    def unassign(self) -> None:
        """As the library's."""

    @staticmethod
    def _message(topic: str, offset: int) -> Any:
        refused = topic == REFUSED.topic
        error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED) if refused else None
        return SimpleNamespace(
            topic=lambda: topic, partition=lambda: 0, offset=lambda: None if refused else offset,
            error=lambda: error, timestamp=lambda: (1, 1_000 + offset),
        )  # fmt: skip


def test_a_partition_that_may_not_be_read_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """All groups' places of the others are read; one whose reader moves on would take every check's turn."""
    monkeypatch.setattr(publish_times, "PUBLISH_TIMES_MS", 300)
    records = Records()
    monkeypatch.setattr(publish_times, "Reader", lambda *_: SimpleNamespace(consumer=records))
    times = PublishTimes(Cluster("127.0.0.1:1"))
    stuck = Spot("1", REFUSED, 5)
    for moved in (7, 8):
        spots = [stuck, Spot("2", OPEN, moved), Spot("2", OPEN, 20 + moved)]
        found = times.read(spots)
        assert [found.get(spot) for spot in spots] == [None, 1_000 + moved, 1_020 + moved]
        assert stuck not in found
