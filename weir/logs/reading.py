"""Read Kafka topics from the command line: spans of partitions, with a limit on every wait."""

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from streaming.columns.json_rows import objects
from streaming.columns.packed import is_packed, type_of, unpack
from streaming.contract.errors import BadEvent, WeirError

ASK_LIMIT_S = 10.0
STALL_LIMIT_S = 30.0
BATCH_MAX = 1_000
_POLL_S = 0.5

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One Kafka record, or one row of a packed one.

    Attributes:
        ts: its timestamp, ms since the epoch; of a topic with LogAppendTime the time of arrival.
        value: its bytes, empty for a tombstone; of a row its JSON object.
        row: number of the row, from 0; None: it is not packed, or cannot be unpacked.
    """

    topic: str
    partition: int
    offset: int
    ts: int
    value: bytes
    row: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Offsets of one partition, from `start` up to but without `end`."""

    topic: str
    partition: int
    start: int
    end: int

    def at_end(self) -> "Span":
        """The empty span behind this one, where what comes next will be."""
        return Span(topic=self.topic, partition=self.partition, start=self.end, end=self.end)


class TopicReader:
    """Reads without a group, so it disturbs nobody and leaves nothing behind.

    Args:
        bootstrap: `HOST:PORT` of the cluster.
        client: librdkafka properties of our own connections.
    """

    def __init__(self, bootstrap: str, client: Mapping[str, str]) -> None:
        self._bootstrap = bootstrap
        self._consumer = Consumer(
            {
                **client,
                "bootstrap.servers": bootstrap,
                # The library wants a name; nothing is ever joined or committed.
                "group.id": "weir-read",
                "enable.auto.commit": "false",
                "auto.offset.reset": "earliest",
                "allow.auto.create.topics": "false",
                "enable.partition.eof": "false",
                "fetch.wait.max.ms": "100",
                "log_level": "0",
            }
        )

    def spans(self, topic: str, from_ms: int, to_ms: int | None) -> list[Span]:
        """Where a topic's records of [from_ms, to_ms) are, one span a partition; `to_ms` None: its end.

        Raises:
            WeirError: the cluster does not answer or has no such topic.
        """
        try:
            known = self._consumer.list_topics(topic, timeout=ASK_LIMIT_S).topics[topic]
            if known.error is not None or not known.partitions:
                raise WeirError(f"topic {topic} is not there on {self._bootstrap}")
            found = []
            for number in sorted(known.partitions):
                edges = self._consumer.get_watermark_offsets(
                    TopicPartition(topic, number), timeout=ASK_LIMIT_S
                )
                if edges is None:
                    raise WeirError(f"{self._bootstrap} did not tell the offsets of {topic} in time")
                low, high = edges
                start = low if from_ms <= 0 else self._offset_at(topic, number, from_ms, high)
                end = high if to_ms is None else self._offset_at(topic, number, to_ms, high)
                found.append(Span(topic=topic, partition=number, start=max(low, start), end=end))
        except KafkaException as failure:
            raise WeirError(f"{self._bootstrap} does not answer: {failure.args[0].str()}") from failure
        return found

    def read(self, span: Span, types: Collection[str] = ()) -> Iterator[Record]:
        """The records of one span, in order.

        Args:
            span: where they are.
            types: packed records of other types are left out unread; none: no record is.

        Raises:
            WeirError: nothing came for STALL_LIMIT_S although the span is not at its end.
        """
        if span.start >= span.end:
            return
        self._consumer.assign([TopicPartition(span.topic, span.partition, span.start)])
        deadline = time.monotonic() + STALL_LIMIT_S
        while True:
            # The position also moves over what compaction and transactions took away.
            position = self._consumer.position([TopicPartition(span.topic, span.partition)])[0].offset
            if position >= span.end:
                return
            for message in self._messages():
                deadline = time.monotonic() + STALL_LIMIT_S
                if int(message.offset() or 0) >= span.end:
                    return
                yield from records_of(message, types)
            if time.monotonic() > deadline:
                raise WeirError(f"reading {span.topic} stalled at offset {position} of {span.end}")

    def follow(self, starts: Iterable[Span]) -> Iterator[list[Record]]:
        """Batches of what comes from each span's start on, without end; empty ones while nothing comes."""
        self._consumer.assign([TopicPartition(s.topic, s.partition, s.start) for s in starts])
        while True:
            yield [record for message in self._messages() for record in records_of(message)]

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def _messages(self) -> list[Message]:
        # poll() returns at once when something is there; consume() would wait for a full batch.
        messages: list[Message] = []
        for number in range(BATCH_MAX):
            message = self._consumer.poll(0 if number else _POLL_S)
            if message is None:
                break
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.code() != KafkaError._PARTITION_EOF:
                logger.debug("reading: %s", error)
        return messages

    def _offset_at(self, topic: str, partition: int, ts_ms: int, end: int) -> int:
        (found,) = self._consumer.offsets_for_times(
            [TopicPartition(topic, partition, ts_ms)], timeout=ASK_LIMIT_S
        )
        return found.offset if found.offset >= 0 else end


def records_of(message: Message, types: Collection[str] = ()) -> Iterator[Record]:
    """A message of the library as our own data, a packed one row by row; `types` as of TopicReader.read."""
    whole = Record(
        topic=str(message.topic()),
        partition=int(message.partition() or 0),
        offset=int(message.offset() or 0),
        ts=max(0, message.timestamp()[1]),
        value=message.value() or b"",
    )
    # A list, whatever the library's types say.
    if not is_packed(cast(list[tuple[str, bytes | None]], message.headers())):
        yield whole
        return
    try:
        if types and type_of(whole.value) not in types:
            return
        kind, rows = unpack(whole.value)
    except BadEvent as error:
        logger.debug("%s-%d at %d: %s", whole.topic, whole.partition, whole.offset, error.reason)
        yield whole
        return
    for number, value in enumerate(objects(kind, rows).to_pylist()):
        yield replace(whole, value=value, row=number)
