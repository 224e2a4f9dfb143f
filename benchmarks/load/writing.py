"""Topics made and filled, events written as fast as one process can, and what stands on a topic counted."""

import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Self

import pyarrow as pa
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from streaming.columns.packed import CONTENT_TYPE, HEADER, is_packed
from streaming.contract.errors import WeirError

BUFFER_MAX: Final = 200_000
_DELIVERY_LIMIT_S: Final = 60.0
_ASK_LIMIT_S: Final = 10.0
_POLL_S: Final = 0.05
_QUIET_S: Final = 3.0
_TOPICS_LIMIT_S: Final = 120.0
_MADE_AT_ONCE: Final = 500
_BY_KEY: Final = -1
"""As a partition: the one that the key says (librdkafka, RD_KAFKA_PARTITION_UA)."""
Record = tuple[bytes, bytes] | tuple[bytes, bytes, int]


def make_topics(bootstrap: str, *names: str) -> None:
    """Make them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for begin in range(0, len(names), _MADE_AT_ONCE):
        new = [NewTopic(name, 1, 1) for name in names[begin : begin + _MADE_AT_ONCE]]
        for made in admin.create_topics(new, request_timeout=_TOPICS_LIMIT_S).values():
            made.result(_TOPICS_LIMIT_S)


def fill_topics(bootstrap: str, names: list[str], records: int, size: int, *, batch: int = 10_000) -> None:
    """Put so many records of so many bytes into each, up to `batch` of them in one.

    Raises:
        WeirError: Kafka did not take all of them in time.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap, "linger.ms": 50, "batch.num.messages": batch, "log_level": 0,
            "queue.buffering.max.messages": 0,
        }
    )  # fmt: skip
    for _ in range(records):
        for name in names:
            producer.produce(name, bytes(size), partition=0)
        producer.poll(0)
    if producer.flush(_TOPICS_LIMIT_S):
        raise WeirError(f"records were not written in {_TOPICS_LIMIT_S:g} s")


def delete_topic(bootstrap: str, name: str) -> None:
    """Delete one."""
    # Kept until the answer is there: with the client goes what it asked.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name])[name].result(_TOPICS_LIMIT_S)


def topic_id(bootstrap: str, name: str) -> bytes:
    """A topic's id, as requests have it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_topics(TopicCollection([name]))[name].result(_TOPICS_LIMIT_S).topic_id
    halves = (found.get_most_significant_bits(), found.get_least_significant_bits())
    return b"".join(int(half).to_bytes(8, "big", signed=True) for half in halves)


class Writer:
    """Writes records to one cluster and waits until they stand there; a context manager.

    One for many calls is as a proxy writes: a new producer first asks for its id, for which librdkafka takes
    half a second.

    Args:
        bootstrap: `HOST:PORT` of the cluster.
    """

    def __init__(self, bootstrap: str) -> None:
        self._failed: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",  # as the proxy's
                "linger.ms": 20,
                "batch.num.messages": 10_000,
                "queue.buffering.max.messages": BUFFER_MAX,
                "message.timeout.ms": int(_DELIVERY_LIMIT_S * 1000),
                # Only failures are reported: a call into Python for each record would halve the rate.
                "delivery.report.only.error": True,
                "on_delivery": lambda error, message: self._failed.append(error.str()),
            }
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # What a failure left here must not hold up the end of the benchmark.
        self._producer.purge()
        self._producer.flush(_ASK_LIMIT_S)

    def write(self, topic: str, records: Iterable[Record], *, packed: bool = False) -> None:
        """Write records and wait until all of them stand on the topic.

        Args:
            topic: where to.
            records: what: (key, value), or (key, value, partition) where the key does not say it.
            packed: they are packed ones.

        Raises:
            WeirError: not all of them were, within a minute of the last.
        """
        count = 0
        headers: list[tuple[str, str | bytes | None]] = [(HEADER, CONTENT_TYPE)] if packed else []
        for record in records:
            key, value, partition = (*record, _BY_KEY)[:3]
            while True:
                try:
                    self._producer.produce(topic, value, key, partition, headers=headers)
                    break
                except BufferError:
                    self._producer.poll(_POLL_S)
            count += 1
        left = self._producer.flush(_DELIVERY_LIMIT_S)
        if left or self._failed:
            lost = left + len(self._failed)
            raise WeirError(f"{lost} of {count} events were not written to {topic}: {self._failed[:1]}")


def produce(bootstrap: str, topic: str, records: Iterable[Record], *, packed: bool = False) -> None:
    """Write records by a producer of their own; see `Writer.write`."""
    with Writer(bootstrap) as writer:
        writer.write(topic, records, packed=packed)


class RowCounter:
    """Counts the rows that come to a topic, of packed records and single ones; a context manager.

    Args:
        bootstrap: `HOST:PORT` of the cluster.
        topic: it exists.
        column: number of a column that is small when it is packed; no other is read.
    """

    def __init__(self, bootstrap: str, topic: str, column: int) -> None:
        self._options = pa.ipc.IpcReadOptions(included_fields=[column], use_threads=False)
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "weir-benchmark", "fetch.wait.max.ms": 20}
        )
        try:
            found = self._consumer.list_topics(topic, timeout=_ASK_LIMIT_S).topics[topic].partitions
        except KafkaException as error:
            raise WeirError(f"{topic} cannot be read on {bootstrap}: {error}") from error
        self._consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in sorted(found)])
        self.count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def wait(self, wanted: int, limit_s: float, look: Callable[[], None]) -> None:
        """Wait until so many rows have come in all.

        Args:
            wanted: how many.
            limit_s: for all of it.
            look: called now and then; may raise.

        Raises:
            WeirError: not so many came in time.
        """
        until = time.monotonic() + limit_s
        while self.count < wanted:
            for message in self._consumer.consume(1_000, _POLL_S):
                self.count += self._rows(message)
            look()
            if time.monotonic() > until:
                raise WeirError(f"{self.count} of {wanted} rows came within {limit_s:.0f} s")

    def wait_quiet(self, limit_s: float) -> None:
        """Wait until nothing has come for a while.

        Raises:
            WeirError: it never ended.
        """
        until = time.monotonic() + limit_s
        while messages := self._consumer.consume(1_000, _QUIET_S):
            self.count += sum(map(self._rows, messages))
            if time.monotonic() > until:
                raise WeirError(f"rows still came after {limit_s:.0f} s")

    def _rows(self, message: Message) -> int:
        if message.error() is not None:
            raise KafkaException(message.error())
        headers: Any = message.headers()
        if not is_packed(headers):
            return 1
        with pa.ipc.open_stream(message.value(), options=self._options) as reader:
            return sum(batch.num_rows for batch in reader)
