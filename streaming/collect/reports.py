"""A collector's reports on `weir.usage`, and the right to be the only collector of its cluster.

Two collectors of one cluster would report everything twice and push against each other. Kafka has one
producer per transactional id: whoever comes later ends the one before (KIP-98). So reports are written in
transactions whose id names the cluster, and a collector that may not write any more learns it with its next
report.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import orjson
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streaming.contract.errors import TakenOver, WeirError
from streaming.kafka_io.reader import NO_LOG, reason_of

RECORD_BYTES: Final = 900_000
_OVER: Final = frozenset({
    KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is written.

    Attributes:
        value: its bytes.
        key: by which its partition is chosen; None: none.
        partition: where it goes; None: where its key says.
        headers: of it.
    """

    value: bytes
    key: bytes | None = None
    partition: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class Reports:
    """Writes reports, until another collector of the cluster does; a context manager.

    Args:
        bootstrap: `HOST:PORT` of Kafka.
        topic: `weir.usage`.
        lease: the transactional id.
        client: librdkafka properties of our own connections.
        timeout_s: limit of each step.

    Raises:
        WeirError: Kafka did not answer in time, or refuses.
    """

    def __init__(
        self, bootstrap: str, topic: str, lease: str, client: Mapping[str, Any], timeout_s: float
    ) -> None:
        self._topic, self._timeout_s = topic, timeout_s
        self._where = f"{topic} on {bootstrap}"
        self._lease = lease
        limit_ms = str(int(timeout_s * 1000))
        self._properties = {
            **client,
            "bootstrap.servers": bootstrap,
            "transactional.id": lease,
            "transaction.timeout.ms": limit_ms,
            "message.timeout.ms": limit_ms,
            "partitioner": "murmur2_random",
            "linger.ms": 0,
            "message.max.bytes": 1_000_000,
            "allow.auto.create.topics": False,
        }
        self._producer: Producer | None = self._connected()

    def write(self, events: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Write (broker, event) pairs as JSON, as `send` does."""
        self.send(Record(value=orjson.dumps(event), key=broker.encode()) for broker, event in events)

    def partitions(self) -> int:
        """How many the topic has.

        Raises:
            WeirError: Kafka does not say in time, or there is no such topic.
        """
        producer = self._producer or self._connected()
        self._producer = producer
        try:
            found = producer.list_topics(self._topic, self._timeout_s).topics[self._topic]
        except KafkaException as error:
            raise WeirError(f"cannot write to {self._where}: {reason_of(error)}") from error
        if found.error is not None or not found.partitions:
            raise WeirError(f"cannot write to {self._where}: {found.error or 'it has no partition'}")
        return len(found.partitions)

    def send(self, records: Iterable[Record]) -> None:
        """Write records, all or none; blocks for a few limits at most.

        Raises:
            TakenOver: see there; nothing was written.
            WeirError: not written, or not known to be; the next report may be.
        """
        refused: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                refused.append(error)

        producer = self._producer or self._connected()
        # Until it has succeeded: what failed may have left it in any state, and Kafka ends a transaction that
        # lasts too long, and its producer with it, as if there were another one.
        self._producer = None
        began = time.monotonic()
        try:
            producer.begin_transaction()
            for record in records:
                producer.produce(
                    self._topic,
                    record.value,
                    record.key,
                    -1 if record.partition is None else record.partition,
                    headers=list(record.headers),
                    on_delivery=delivered,
                )
                producer.poll(0)
            producer.commit_transaction(self._timeout_s)
        except (KafkaException, BufferError) as error:
            why = reason_of(error) if isinstance(error, KafkaException) else str(error)
            codes = {one.code() for one in refused} | _codes(error) | self._abort(producer)
            if codes & _OVER and time.monotonic() - began < self._timeout_s:
                raise TakenOver(
                    f"another collector has taken over as {self._lease}; this one does nothing more",
                    self._lease,
                ) from error
            raise WeirError(f"the report was not written to {self._where}: {why}") from error
        self._producer = producer

    def _connected(self) -> Producer:
        producer = Producer(self._properties, logger=NO_LOG)
        try:
            producer.init_transactions(self._timeout_s)
        except KafkaException as error:
            raise WeirError(f"cannot write to {self._where}: {reason_of(error)}") from error
        return producer

    def _abort(self, producer: Producer) -> set[int]:
        """End what is open, so that readers need not wait; the codes of what goes wrong."""
        try:
            producer.abort_transaction(self._timeout_s)
        except KafkaException as error:
            producer.purge()
            return _codes(error)
        return set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._producer is not None:
            self._producer.purge()


def _codes(error: Exception) -> set[int]:
    return {error.args[0].code()} if isinstance(error, KafkaException) else set()


def records(event: Mapping[str, Any], name: str, size_max: int = RECORD_BYTES) -> Iterator[dict[str, Any]]:
    """A `group_usage` as records that each fit, at least one; they differ in their ids.

    >>> event = {"broker": "b", "usage": {"g1": {"publishedMsg": 1}, "g2": {"publishedMsg": 2}}}
    >>> [(one["id"], list(one["usage"])) for one in records(event, "c-1", 30)]
    [('c-1', ['g1']), ('c-1.1', ['g2'])]
    """
    usage: dict[str, Any] = {}
    size = number = 0
    for group, entry in event["usage"].items():
        added = len(orjson.dumps({group: entry}))
        if usage and size + added > size_max:
            yield {**event, "id": f"{name}.{number}" if number else name, "usage": usage}
            usage, size, number = {}, 0, number + 1
        usage[group] = entry
        size += added
    yield {**event, "id": f"{name}.{number}" if number else name, "usage": usage}
