"""When the oldest unacknowledged record of a group was published: the record at its offset is read.

It is read once for each offset, since a record does not change. The first record at or after it counts, where
compaction has taken it or it only ends a transaction.
"""

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, Message, TopicPartition

from streaming.collect.kafka.partitions import Partition
from streaming.contract.topics import Cluster
from streaming.kafka_io.reader import Reader

PUBLISH_TIMES_MS: Final = 3_000
"""For so long records are read in one check, to know when they were published."""
PUBLISH_TIMES_AT_ONCE: Final = 2_000
"""Partitions of which records are read at a time."""
PUBLISH_TIMES_BUFFER_BYTES: Final = 16 * 1024 * 1024
"""Limit of records that are buffered meanwhile."""

_POLL_S: Final = 0.2
_AT_ONCE: Final = 500
_BATCH_BYTES: Final = 32 * 1024
_ANSWER_BYTES: Final = 4 * 1024 * 1024


class Spot(NamedTuple):
    """A place in a log: the topic's id tells one from another of the same name."""

    topic_id: Any
    partition: Partition
    offset: int


class PublishTimes:
    """Reads records, and remembers when they were published."""

    def __init__(self, cluster: Cluster) -> None:
        self._known: dict[Spot, int] = {}
        self._cluster = cluster
        self._own: dict[str, Any] = {
            "client.id": "weir-collect",
            "group.id": "weir-collect",
            "auto.offset.reset": "error",
            "isolation.level": "read_uncommitted",
            # One record a partition is wanted, and batches come whole: of most partitions in one answer if
            # they are as small as that, else of one an answer (KIP-74).
            "fetch.message.max.bytes": _BATCH_BYTES,
            "fetch.max.bytes": _ANSWER_BYTES,
            "queued.min.messages": 1,
            "queued.max.messages.kbytes": max(1, PUBLISH_TIMES_BUFFER_BYTES // 1024),
            "fetch.wait.max.ms": 50,
            # Else a partition that has brought its record stands in the way of the others for a second.
            "fetch.queue.backoff.ms": 1,
        }
        self._reader: Reader | None = None

    def read(self, wanted: Iterable[Spot]) -> dict[Spot, int | None]:
        """The publish times of the records at these spots, as far as they were reached; blocks.

        None: there is no record. Other spots are forgotten.

        Raises:
            WeirError: no consumer can be made.
        """
        asked = set(wanted)
        self._known = {spot: at for spot, at in self._known.items() if spot in asked}
        ends = time.monotonic() + PUBLISH_TIMES_MS / 1000
        found: dict[Spot, int | None] = dict(self._known)
        for turn in _turns(asked - found.keys(), PUBLISH_TIMES_AT_ONCE):
            if time.monotonic() >= ends:
                break
            found |= self._turn(turn, ends)
        self._known = {spot: at for spot, at in found.items() if at is not None}
        return found

    def _turn(self, turn: Sequence[Spot], ends: float) -> dict[Spot, int | None]:
        """Read of partitions that are all different."""
        if self._reader is None:
            self._reader = Reader(self._cluster.bootstrap, self._cluster.client, self._own)
        consumer, waiting = self._reader.consumer, {spot.partition: spot for spot in turn}
        found: dict[Spot, int | None] = {}
        consumer.assign([TopicPartition(*spot.partition, spot.offset) for spot in turn])
        try:
            while waiting and (left := ends - time.monotonic()) > 0:
                done = []
                for message in consumer.consume(_AT_ONCE, timeout=min(_POLL_S, left)):
                    spot, error = waiting.get(_where(message)), message.error()
                    refused = error is not None and error.code() != KafkaError._PARTITION_EOF
                    # One of an earlier turn may still be under way, which reads another place.
                    if spot is None or (not refused and (message.offset() or 0) < spot.offset):
                        continue
                    # One that cannot be read now must not have the others' turns wait for it to their end.
                    del waiting[spot.partition]
                    done.append(TopicPartition(*spot.partition))
                    if not refused:
                        at = -1 if error is not None else message.timestamp()[1]
                        found[spot] = None if at < 0 else at
                if done:
                    # What they would still bring nobody needs.
                    consumer.incremental_unassign(done)
        finally:
            consumer.unassign()
        return found

    def close(self) -> None:
        """Close the connections."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def _where(message: Message) -> Partition:
    number = message.partition()
    return Partition(message.topic() or "", -1 if number is None else number)


def _turns(spots: Iterable[Spot], most: int) -> list[list[Spot]]:
    """In pieces in which each partition stands once, the oldest of each first."""
    layers: list[list[Spot]] = []
    depth: dict[Partition, int] = {}
    for spot in sorted(spots, key=lambda one: (one.partition, one.offset)):
        layer = depth.get(spot.partition, 0)
        depth[spot.partition] = layer + 1
        if layer == len(layers):
            layers.append([])
        layers[layer].append(spot)
    return [layer[begin : begin + most] for layer in layers for begin in range(0, len(layer), most)]
