"""The records of Kafka topics as commands show them: packed ones row by row."""

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, cast

from confluent_kafka import OFFSET_BEGINNING, KafkaError, Message, TopicPartition

from streaming.columns.json_rows import objects
from streaming.columns.packed import is_packed, schema_of, unpack
from streaming.contract.errors import BadEvent, WeirError
from streaming.kafka_io.reader import BATCH_MAX, Reader, Span

_POLL_S = 0.5
_LOOK_S, _LOOK_LIMIT_S = 30.0, 2.0
"""How often new partitions are looked for, and for how long at most."""

logger = logging.getLogger(__name__)


class Record(NamedTuple):
    """One Kafka record, or one row of a packed one.

    Attributes:
        ts: its timestamp, ms since the epoch; of a topic with LogAppendTime the time of arrival.
        value: its bytes, empty for a tombstone; of a row its JSON object.
        row: number of the row, from 0; -1: it is not packed, or cannot be unpacked.
    """

    topic: str
    partition: int
    offset: int
    ts: int
    value: bytes
    row: int = -1

    @property
    def name(self) -> str:
        """Id of an event that names none itself (docs/contract.md 1)."""
        whole = f"{self.topic}-{self.partition}-{self.offset}"
        return whole if self.row < 0 else f"{whole}/{self.row}"


class TopicReader(Reader):
    """Reads records as our own data, those of transactions that were ended too, as the job does.

    Waiting for the end of a transaction of a collector that was killed would hold up all else on its topic.

    Args:
        bootstrap, client: as of Reader.
    """

    def __init__(self, bootstrap: str, client: Mapping[str, Any]) -> None:
        super().__init__(bootstrap, client, {"isolation.level": "read_uncommitted"})

    def read(self, span: Span) -> Iterator[Record]:
        """The records of one span, in order; raises WeirError if it cannot be read."""
        for message in self.messages(span):
            yield from records_of(message)

    def follow(self, starts: Iterable[Span]) -> Iterator[list[Record]]:
        """Batches of what comes from each span's start on, without end; empty ones while nothing comes.

        Partitions that are added to the topics meanwhile are read too.

        Raises:
            WeirError: we may not read them.
        """
        there = [TopicPartition(s.topic, s.partition, s.start) for s in starts]
        self.consumer.assign(there)
        known = {(one.topic, one.partition) for one in there}
        next_look = time.monotonic() + _LOOK_S
        while True:
            if time.monotonic() >= next_look:
                self._look_for_new(known)
                next_look = time.monotonic() + _LOOK_S
            records: list[Record] = []
            for message in self.batch(_POLL_S):
                error = message.error()
                if error is None:
                    records += records_of(message)
                elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    # All else passes by, or is an end.
                    raise self._failed(str(message.topic()), error.str())
                if len(records) >= BATCH_MAX:
                    # One may hold very many rows.
                    break
            yield records

    def _look_for_new(self, known: set[tuple[str, int]]) -> None:
        """Read partitions too that are not known yet, and note them; a cluster that is away has none."""
        with suppress(WeirError):
            for topic in {topic for topic, _ in known}:
                for number in self.partitions(topic, _LOOK_LIMIT_S):
                    if (topic, number) not in known:
                        known.add((topic, number))
                        # All of it has come since we began.
                        self.consumer.incremental_assign([TopicPartition(topic, number, OFFSET_BEGINNING)])


def records_of(message: Message, types: Collection[str] = ()) -> Iterator[Record]:
    """A message of the library as our own data, a packed one row by row.

    Args:
        message: which.
        types: packed records of other types are left out unread; none: no record is.
    """
    whole = Record(
        topic=str(message.topic()), partition=int(message.partition() or 0),
        offset=int(message.offset() or 0), ts=max(0, message.timestamp()[1]), value=message.value() or b"",
    )  # fmt: skip
    # A list, whatever the library's types say.
    if not is_packed(cast(list[tuple[str, bytes | None]], message.headers())):
        yield whole
        return
    try:
        if types and schema_of(whole.value)[0] not in types:
            return
        kind, rows = unpack(whole.value)
    except BadEvent as error:
        logger.debug("%s-%d at %d: %s", whole.topic, whole.partition, whole.offset, error.reason)
        yield whole
        return
    for number, value in enumerate(objects(kind, rows).to_pylist()):
        yield whole._replace(value=value, row=number)
