"""Reads Kafka topics by spans of partitions, without a group: it disturbs nobody and leaves nothing behind.

Whoever reads Weir's topics reads with this: by calls, or in a thread (tail.Tail). Every wait has a limit.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from streaming.contract.errors import WeirError

ASK_LIMIT_S: Final = 10.0
"""Of one question to the cluster."""
STALL_LIMIT_S: Final = 30.0
BATCH_MAX: Final = 1_000
_POLL_S: Final = 0.5
_RETRY_S: Final = 0.05
_CLOSE_S: Final = 5.0
_SOON: Final = frozenset({
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH,
})  # fmt: skip
NO_LOG: Final = logging.getLogger("weir.kafka.quiet")
"""What fails is said once by us; the library would write lines of its own."""
NO_LOG.addHandler(logging.NullHandler())
NO_LOG.propagate = False


class NoTopic(WeirError):
    """There is no such topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Offsets of one partition, from `start` up to but without `end`."""

    topic: str
    partition: int
    start: int
    end: int

    def at_end(self) -> "Span":
        """The empty span behind this one, where what comes next will be."""
        return replace(self, start=self.end)


class Reader:
    """Reads what is committed.

    Args:
        bootstrap: `HOST:PORT` of the cluster.
        client: librdkafka properties of our own connections.
        own: properties that are different here.
        read_to: where `read_on` goes on, by topic and partition; kept up to date.

    Raises:
        WeirError: the library makes none, as where no thread is left for one.
    """

    def __init__(
        self, bootstrap: str, client: Mapping[str, Any], own: Mapping[str, Any] | None = None,
        read_to: dict[tuple[str, int], int] | None = None,
    ) -> None:  # fmt: skip
        self._bootstrap = bootstrap
        self._read_to = {} if read_to is None else read_to
        properties = {
            **client,
            "bootstrap.servers": bootstrap,
            # The library wants a name; nothing is ever joined or committed.
            "group.id": "weir-read",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            # A topic that is gone must not come back because somebody asks for it.
            "allow.auto.create.topics": False,
            # Says when the end is reached, whatever gaps compaction and markers left before it.
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
        }
        try:
            self.consumer: Any = Consumer({**properties, **(own or {})}, logger=NO_LOG)
            """The library's."""
        except KafkaException as refused:
            raise WeirError(f"cannot read from {bootstrap}: {reason_of(refused)}") from refused

    def partitions(self, topic: str, limit_s: float = ASK_LIMIT_S) -> list[int]:
        """Numbers of a topic's partitions; none if there is no such topic.

        Raises:
            WeirError: the cluster does not answer, or we may not see it.
        """

        def ask(left_s: float) -> Any:
            found = self.consumer.list_topics(topic, timeout=left_s).topics[topic]
            # What we may not see is told as that: who takes it for absent looks for the mistake elsewhere.
            if found.error is not None and found.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KafkaException(found.error)
            return found.partitions

        return sorted(self._ask(topic, limit_s, ask))

    def span(self, topic: str, number: int, limit_s: float = ASK_LIMIT_S) -> Span:
        """All of a partition.

        Raises:
            WeirError: the cluster does not answer.
        """
        where = TopicPartition(topic, number)
        edges = self._ask(
            topic, limit_s, lambda left_s: self.consumer.get_watermark_offsets(where, timeout=left_s)
        )
        if edges is None:
            raise self._failed(topic, "it did not tell the offsets in time")
        return Span(topic=topic, partition=number, start=edges[0], end=edges[1])

    def spans(
        self, topic: str, from_ms: int = 0, to_ms: int | None = None, limit_s: float = ASK_LIMIT_S,
        until_s: float = inf,
    ) -> list[Span]:  # fmt: skip
        """Where a topic's records of [from_ms, to_ms) are, one span a partition; `to_ms` None: its end.

        Each question has its limit, and all of them until then by the steady clock.

        Raises:
            NoTopic: it is not there.
            WeirError: the cluster does not answer.
        """

        def left_s() -> float:
            return min(limit_s, until_s - time.monotonic())

        found = [self.span(topic, number, left_s()) for number in self.partitions(topic, left_s())]
        if not found:
            raise NoTopic(f"topic {topic} is not there on {self._bootstrap}")
        starts = self.since(found, from_ms, left_s()) if from_ms > 0 else [span.start for span in found]
        ends = [span.end for span in found] if to_ms is None else self.since(found, to_ms, left_s())
        return [
            replace(span, start=max(span.start, start), end=end)
            for span, start, end in zip(found, starts, ends, strict=True)
        ]

    def since(self, spans: Sequence[Span], ts_ms: int, limit_s: float = ASK_LIMIT_S) -> list[int]:
        """The first offset of each partition that was written at a time or later; its end: nothing was.

        Raises:
            WeirError: the cluster does not answer.
        """
        if not spans:
            return []
        asked = [TopicPartition(span.topic, span.partition, ts_ms) for span in spans]

        def ask(left_s: float) -> Any:
            found = self.consumer.offsets_for_times(asked, timeout=left_s)
            # Where it has asked twice the library may say that all is well, beside what was wrong first.
            for error in (each.error for each in found if each.error is not None):
                raise KafkaException(error)
            return found

        found = self._ask(spans[0].topic, limit_s, ask)
        known = {each.partition: each.offset for each in found if each.offset >= 0}
        return [min(span.end, known.get(span.partition, span.end)) for span in spans]

    def messages(self, span: Span, limit_s: float = STALL_LIMIT_S, until_s: float = inf) -> Iterator[Message]:
        """The records of one span, in order.

        Raises:
            WeirError: it cannot be read, or nothing came for so long, or until then by the steady clock,
                although it is not at its end.
        """
        if span.start >= span.end:
            return
        where = [TopicPartition(span.topic, span.partition, span.start)]
        self.consumer.assign(where)
        deadline = time.monotonic() + limit_s
        position = span.start
        while position < span.end:
            for message in self.batch(min(_POLL_S, limit_s)):
                error, offset = message.error(), message.offset() or 0
                at_end = error is not None and error.code() == KafkaError._PARTITION_EOF
                if (error is None or at_end) and offset >= span.end:
                    return
                if error is None:
                    yield message
                    # Not before: what it is used for takes its own time.
                    deadline = time.monotonic() + limit_s
                elif not at_end and (error.fatal() or not error.retriable()):
                    raise self._failed(span.topic, error.str())
            # It also moves over what compaction and transactions took away. Before the first batch it may
            # still be that of what was read before.
            position = self.consumer.position(where)[0].offset
            if time.monotonic() > min(deadline, until_s):
                raise self._failed(span.topic, f"it stalled at offset {position} of {span.end}")

    def made_again(self, span: Span) -> bool:
        """Whether less stands in a partition than was read on of it: it is of a new topic."""
        return self._read_to.get((span.topic, span.partition), 0) > span.end

    def read_on(
        self, spans: Iterable[Span], limit_s: float = STALL_LIMIT_S, until_s: float = inf
    ) -> Iterator[Message]:
        """The records of spans but for those that were read on before; a topic made again begins anew.

        Raises:
            WeirError: see `messages`; the next call goes on behind the last record.
        """
        for span in spans:
            key = span.topic, span.partition
            start = span.start if self.made_again(span) else max(self._read_to.get(key, 0), span.start)
            for message in self.messages(replace(span, start=start), limit_s, until_s):
                self._read_to[key] = (message.offset() or 0) + 1
                yield message
            self._read_to[key] = span.end

    def batch(self, limit_s: float) -> Iterator[Message]:
        """What is there, errors and ends too, at most BATCH_MAX; waits so long for the first."""
        for number in range(BATCH_MAX):
            # poll() returns at once when something is there; consume() would wait for a full batch.
            message = self.consumer.poll(0 if number else limit_s)
            if message is None:
                return
            yield message

    def close(self) -> None:
        """Close the connection, within a limit: where a topic was deleted the library was seen not to end."""
        closing = threading.Thread(target=self.consumer.close, name="closing", daemon=True)
        try:
            closing.start()
        except RuntimeError:
            # No thread is left on this machine: it ends with the process.
            return
        closing.join(_CLOSE_S)

    def _ask(self, topic: str, limit_s: float, ask: Callable[[float], Any]) -> Any:
        """Ask the cluster, again where a partition has just been made and has no leader yet."""
        deadline = time.monotonic() + limit_s
        while True:
            try:
                return ask(max(_RETRY_S, deadline - time.monotonic()))
            except KafkaException as error:
                if error.args[0].code() not in _SOON or time.monotonic() > deadline:
                    raise self._failed(topic, reason_of(error)) from error
            time.sleep(_RETRY_S)

    def _failed(self, topic: str, why: str) -> WeirError:
        return WeirError(f"cannot read {topic} on {self._bootstrap}: {why}")


def reason_of(error: KafkaException | BufferError) -> str:
    """The broker's or library's own words."""
    said = error.args[0] if error.args else None
    return str(said.str()) if isinstance(said, KafkaError) else str(error)
