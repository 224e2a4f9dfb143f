"""Reads one Kafka topic to its end and on, in a thread, for an asyncio loop.

All partitions are assigned, without a group: every proxy needs every record, and a group's rebalance would
leave it blind for seconds. Kafka being down, the topic not being there yet and partitions being added are
all survived; the next attempt comes by itself.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

from streaming.contract.errors import WeirError
from streaming.kafka_io.reader import BATCH_MAX, Reader, Span
from streaming.kafka_io.weir_topics import admin_of

T = TypeVar("T")

logger = logging.getLogger(__name__)

_POLL_S = 0.1
_ASK_LIMIT_S = 2.0
_RETRY_S = 1.0
_AHEAD_KB = 8192
_UNDELIVERED_MAX = 4
"""Batches that the loop has not taken yet; then reading waits for it, and nothing piles up in memory."""


class Tail(Generic[T]):
    """One followed topic.

    Args:
        properties: librdkafka properties of the connection, `bootstrap.servers` among them.
        topic: its name.
        back_ms: of what is there, read at least what was written so long ago or later; None: all.
        from_newest: so long before the topic's newest record, instead of before now.
        parse: record -> what the loop wants of it, in order; runs in the thread.
        deliver: gets what was parsed, in order, in the loop.
        look_s: how often new partitions are looked for.
        at_end: told partition and offset each time a partition's end is reached, in the loop, once all
            before it was delivered.
        fetch_wait_ms: how long a broker holds an empty fetch; it does not notice that a transaction ended.
        begun_anew: called in the loop before what is read of a topic that was made again is delivered.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        topic: str,
        *,
        back_ms: int | None = None,
        from_newest: bool = False,
        parse: Callable[[Message], Sequence[T]],
        deliver: Callable[[list[T]], None],
        look_s: float = 30.0,
        at_end: Callable[[int, int], None] | None = None,
        fetch_wait_ms: int = 500,
        begun_anew: Callable[[], None] = lambda: None,
    ) -> None:
        self._connection = properties
        self._own = {
            "auto.offset.reset": "earliest" if back_ms is None else "latest",
            # A tail waits on one quiet topic: be told at once, come back soon after an outage.
            "fetch.wait.max.ms": fetch_wait_ms,
            "fetch.error.backoff.ms": 50,
            # The library takes half of it until it connects at all.
            "reconnect.backoff.ms": 22,
            "reconnect.backoff.max.ms": 1000,
            # Else a tail far behind holds 64 MiB of records that nobody has asked for yet.
            "queued.max.messages.kbytes": _AHEAD_KB,
        }
        self._topic = topic
        self._back_ms = back_ms
        self._from_newest = from_newest
        self._parse = parse
        self._deliver = deliver
        self._look_s = look_s
        self._at_end, self._begun_anew = at_end, begun_anew
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._anew = threading.Event()
        self._room = threading.Semaphore(_UNDELIVERED_MAX)
        self._assigned: set[int] = set()
        # Where the partitions ended that were not read so far when they were found.
        self._behind: dict[int, int] = {}
        # Time of the newest record read, of partitions with more to read.
        self._reached_ms: dict[int, int] = {}
        self._was_absent = False
        self.newest_ms = 0
        """Time of the topic's newest record at the start, where it is read from that on (`from_newest`)."""
        self.caught_up = asyncio.Event()
        """Set once what was there at the start has been delivered."""

    @property
    def read_to_ms(self) -> int | None:
        """Record time up to which all is read, in the partition that is furthest behind; None: all is."""
        reached = list(self._reached_ms.values())
        return min(reached) if reached else None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to read; `loop` is where `deliver` runs."""
        self._loop = loop
        thread = threading.Thread(target=self._run, name=f"tail {self._topic}", daemon=True)
        thread.start()
        # One that could not begin cannot be waited for.
        self._thread = thread

    def begin_anew(self) -> None:
        """The topic was deleted and made again: read the new one from its start.

        Where the old one ended says nothing about it, and the library would go on there. May be called from
        any thread; what was read of the new one already comes once more.
        """
        self._anew.set()

    async def stop(self, limit_s: float) -> None:
        """End the thread; after `limit_s` it is left to die with the process."""
        self._stopping.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, limit_s)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                reader = Reader(self._connection["bootstrap.servers"], self._connection, self._own)
            except WeirError as error:
                # This machine has no thread left for one, and may have later.
                logger.warning("tail of %s: %s", self._topic, error)
                self._stopping.wait(_RETRY_S)
                continue
            with contextlib.closing(reader):
                self._follow(reader)

    def _follow(self, reader: Reader) -> None:
        next_look = 0.0
        while not self._stopping.is_set():
            if self._anew.is_set():
                self._anew.clear()
                reader.consumer.unassign()
                self._assigned, self._was_absent, next_look = set(), True, 0.0
                self._reached_ms.clear()
                self._behind.clear()
                self._call(self._begun_anew)
            if time.monotonic() >= next_look:
                found = self._look_for_partitions(reader)
                next_look = time.monotonic() + (self._look_s if found else _RETRY_S)
            self._read_batch(reader)

    def _look_for_partitions(self, reader: Reader) -> bool:
        """Assign partitions that are new; False if Kafka or the topic is not there."""
        try:
            known = reader.partitions(self._topic, _ASK_LIMIT_S)
            added = [n for n in known if n not in self._assigned]
            spans = [reader.span(self._topic, number, _ASK_LIMIT_S) for number in added]
            # A topic or partition added later has only records that came after our start: read it whole.
            whole = self._back_ms is None or self._was_absent or bool(self._assigned)
            # The end as it is now, not "the end" once the first fetch gets there: nothing falls in between.
            starts = [span.start for span in spans] if whole else self._starts(reader, spans)
        except (WeirError, KafkaException, TimeoutError) as error:
            logger.debug("tail of %s: %s", self._topic, error)
            return False
        if not known:
            self._was_absent = True
            return False
        behind = {one.partition: one.end for one, start in zip(spans, starts, strict=True) if start < one.end}
        self._behind.update(behind)
        self._reached_ms.update(dict.fromkeys(behind, 0))
        if spans:
            self._assigned.update(added)
            reader.consumer.incremental_assign([
                TopicPartition(self._topic, number, OFFSET_BEGINNING if whole else start)
                for number, start in zip(added, starts, strict=True)
            ])  # fmt: skip
        if not self._behind:
            self._call(self.caught_up.set)
        return True

    def _starts(self, reader: Reader, spans: Sequence[Span]) -> list[int]:
        """Where to begin in partitions that are not read whole.

        Raises:
            WeirError, KafkaException, TimeoutError: Kafka does not say.
        """
        if not self._back_ms or not spans:
            return [span.end for span in spans]
        newest_ms = time.time_ns() // 1_000_000
        if self._from_newest:
            newest_ms = self.newest_ms = self._newest_ms(spans)
        return reader.since(spans, max(0, newest_ms - self._back_ms), _ASK_LIMIT_S)

    def _newest_ms(self, spans: Sequence[Span]) -> int:
        """Time of the newest record of the partitions; 0: there is none."""
        newest = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(self._topic, span.partition): newest for span in spans}
        # Kept until all has come: without their client the answers never do.
        client = admin_of(self._connection)
        found = client.list_offsets(asked, request_timeout=_ASK_LIMIT_S)
        times: list[int] = [answer.result(2 * _ASK_LIMIT_S).timestamp for answer in found.values()]
        del client
        return max(0, *times)

    def _read_batch(self, reader: Reader) -> None:
        parsed: list[T] = []
        ends: list[tuple[int, int]] = []
        for message in reader.batch(_POLL_S):
            error = message.error()
            if error is None:
                try:
                    parsed += self._parse(message)
                except Exception:  # one record must not make us deaf to all that follow
                    name = f"{self._topic}-{message.partition()}-{message.offset()}"
                    logger.exception("%s met a mistake in its reader and is passed over", name)
                self._note(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                number = message.partition() or 0
                self._behind.pop(number, None)
                self._reached_ms.pop(number, None)
                ends.append((number, message.offset() or 0))
            else:
                # The library says it once, and tries again: we may not read it, say.
                logger.warning("%s cannot be read: %s", self._topic, error.str())
            if len(parsed) >= BATCH_MAX:
                break
        # One record may hold many.
        for first in range(0, len(parsed), BATCH_MAX):
            while not self._room.acquire(timeout=_POLL_S):
                if self._stopping.is_set():
                    return
            self._call(self._hand_over, parsed[first : first + BATCH_MAX])
        if self._at_end is not None:
            for end in ends:
                self._call(self._at_end, *end)
        if not self._behind and self._assigned and not self.caught_up.is_set():
            self._call(self.caught_up.set)

    def _hand_over(self, parsed: list[T]) -> None:
        self._room.release()
        self._deliver(parsed)

    def _note(self, message: Message) -> None:
        """A record was read: how far that is."""
        number, offset = message.partition() or 0, message.offset() or 0
        self._reached_ms[number] = message.timestamp()[1]
        if self._behind and offset + 1 >= self._behind.get(number, offset + 2):
            del self._behind[number]

    def _call(self, function: Callable[..., None], *args: object) -> None:
        assert self._loop is not None
        # The loop may close at any moment between a look at it and the call.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)
