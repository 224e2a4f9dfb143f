"""Topics filled with batches of a given size, and real consumers that note when each record came."""

import time
from collections import Counter
from collections.abc import Sequence

from confluent_kafka import Consumer, Producer, TopicPartition
from stack_kit import new_topics
from threaded import Threaded

_LIMIT_S = 60.0
_APART_S = 0.2
"""A longer silence is between two bursts."""


def fill(
    bootstrap: str, topic: str, records: int, *, batch: int = 1, size: int = 100, partitions: int = 1
) -> None:
    """Make a topic, and fill each partition with so many records in batches of so many.

    Args:
        bootstrap: of the broker itself.
        topic: its name; a record's value is its number in its partition.
        records: a multiple of `batch`.
        batch: records in each.
        size: bytes of a value.
        partitions: how many.
    """
    new_topics(bootstrap, topic, partitions=partitions)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap, "linger.ms": 10_000, "batch.num.messages": batch,
            "batch.size": 100_000_000, "message.max.bytes": 100_000_000, "acks": 1, "log_level": 0,
            "queue.buffering.max.messages": 0, "enable.idempotence": False, "max.in.flight": 1,
        }
    )  # fmt: skip
    for partition in range(partitions):
        for number in range(records):
            producer.produce(topic, b"%0*d" % (size, number), partition=partition)
    assert producer.flush(_LIMIT_S) == 0


class Reading(Threaded):
    """A consumer of a group in a thread.

    Attributes:
        came: (monotonic time, topic, bytes of the value) of each record, in order.
        numbers: (topic, partition) -> how often each record's number came.

    Args:
        bootstrap: where it connects.
        group: of the consumer.
        topics: it reads.
        properties: of librdkafka, besides.
    """

    def __init__(self, bootstrap: str, group: str, topics: Sequence[str], **properties: str) -> None:
        super().__init__(self._run, name=f"reads as {group}", limit_s=_LIMIT_S)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap, "group.id": group, "client.id": group,
                "auto.offset.reset": "earliest", "enable.auto.commit": "false", "log_level": 0,
                **{name.replace("_", "."): value for name, value in properties.items()},
            }
        )  # fmt: skip
        self._topics = list(topics)
        self.came: list[tuple[float, str, int]] = []
        self.numbers: dict[tuple[str, int], Counter[int]] = {}
        self.lost: list[TopicPartition] = []
        """Partitions that were taken from it while it ran."""

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._consumer.close()

    def count(self, topic: str) -> int:
        """Records of a topic so far."""
        return sum(name == topic for _, name, _ in self.came)

    def rate(self, topic: str, seconds: float, unit: str = "msgs") -> float:
        """What came a second in the last whole deliveries of a time; see `pace`."""
        since = time.monotonic() - seconds
        return pace([(at, size) for at, name, size in self.came if name == topic and at >= since], unit)

    def _run(self) -> None:
        self._consumer.subscribe(self._topics, on_lost=lambda _, parts: self.lost.extend(parts))
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, 0.05):
                if message.error() is not None:
                    continue
                value = message.value() or b""
                topic, partition = message.topic() or "", message.partition() or 0
                self.came.append((time.monotonic(), topic, len(value)))
                self.numbers.setdefault((topic, partition), Counter())[int(value)] += 1


def pace(came: Sequence[tuple[float, int]], unit: str) -> float:
    """Messages or bytes a second of a stretch, from the beginning of one burst to that of another.

    What comes in a period comes at once, and what comes too much is paid for by silence afterwards, so from a
    burst's beginning to another one's the mean is the rate, however large the bursts are.

    >>> pace([(0.0, 5)] * 6 + [(3.0, 5)] * 6 + [(6.0, 5)] * 6, "msgs")
    2.0

    Args:
        came: when, and how many bytes.
        unit: msgs or bytes.
    """
    begins = [0] + [n for n in range(1, len(came)) if came[n][0] - came[n - 1][0] > _APART_S]
    first, last = came[begins[0]][0], came[begins[-1]][0]
    counted = came[: begins[-1]]
    amount = len(counted) if unit == "msgs" else sum(size for _, size in counted)
    return amount / (last - first)
