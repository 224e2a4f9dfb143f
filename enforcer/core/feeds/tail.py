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
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

T = TypeVar("T")

logger = logging.getLogger(__name__)

BATCH_MAX = 1_000
"""Records handed to the loop at once; more would hold up the traffic."""
_POLL_S = 0.1
_ASK_LIMIT_S = 2.0
_RETRY_S = 1.0


class Tail(Generic[T]):
    """One followed topic.

    Args:
        properties: librdkafka properties of the connection, `bootstrap.servers` among them.
        topic: its name.
        from_beginning: read what is there already; else only what comes from now on.
        back_ms: of what is there, read at least what was written so long ago or later.
        parse: record -> what the loop wants, or None to skip it; runs in the thread, must not raise.
        deliver: gets what was parsed, in order, in the loop.
        look_s: how often new partitions are looked for.
        at_end: told partition and offset each time a partition's end is reached, in the loop, once all
            before it was delivered.
        fetch_wait_ms: how long a broker holds an empty fetch; it does not notice that a transaction ended.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        topic: str,
        *,
        from_beginning: bool,
        back_ms: int = 0,
        parse: Callable[[Message], T | None],
        deliver: Callable[[list[T]], None],
        look_s: float = 30.0,
        at_end: Callable[[int, int], None] | None = None,
        fetch_wait_ms: int = 500,
    ) -> None:
        self._properties = {
            **properties,
            # A group id is required by the library; none is ever joined.
            "group.id": f"weir-tail-{topic}",
            "enable.auto.commit": "false",
            "auto.offset.reset": "earliest" if from_beginning else "latest",
            "allow.auto.create.topics": "false",
            # Says when the end is reached, whatever gaps compaction and markers left before it.
            "enable.partition.eof": "true",
            # A tail waits on one quiet topic: be told at once, come back soon after an outage.
            "fetch.wait.max.ms": str(fetch_wait_ms),
            "fetch.error.backoff.ms": "50",
            "reconnect.backoff.max.ms": "1000",
            "log_level": "0",
        }
        self._topic = topic
        self._from_beginning = from_beginning
        self._back_ms = back_ms
        self._parse = parse
        self._deliver = deliver
        self._look_s = look_s
        self._at_end = at_end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._anew = threading.Event()
        self._assigned: set[int] = set()
        self._behind: set[int] = set()
        self._was_absent = False
        self.caught_up = asyncio.Event()
        """Set once what was there at the start has been delivered."""

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to read; `loop` is where `deliver` runs."""
        self._loop = loop
        self._thread = threading.Thread(target=self._run, name=f"tail {self._topic}", daemon=True)
        self._thread.start()

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
        consumer = Consumer(self._properties)
        try:
            next_look = 0.0
            while not self._stopping.is_set():
                if self._anew.is_set():
                    self._anew.clear()
                    consumer.unassign()
                    self._assigned, self._was_absent, next_look = set(), True, 0.0
                if time.monotonic() >= next_look:
                    found = self._look_for_partitions(consumer)
                    next_look = time.monotonic() + (self._look_s if found else _RETRY_S)
                self._read_batch(consumer)
        finally:
            consumer.close()

    def _look_for_partitions(self, consumer: Consumer) -> bool:
        """Assign partitions that are new; False if Kafka or the topic is not there."""
        try:
            known = consumer.list_topics(self._topic, timeout=_ASK_LIMIT_S).topics[self._topic].partitions
            added = sorted(set(known) - self._assigned)
            ends = self._ends(consumer, added)
        except KafkaException as error:
            logger.debug("tail of %s: %s", self._topic, error)
            return False
        if not known:
            self._was_absent = True
        if not known or len(ends) < len(added):
            return False
        # A topic or partition added later has only records that came after our start: read it whole.
        whole = self._from_beginning or self._was_absent or bool(self._assigned)
        # The end as it is now, not "the end" once the first fetch gets there: nothing falls in between.
        starts = [
            TopicPartition(self._topic, number, OFFSET_BEGINNING if whole else end)
            for number, end in ends.items()
        ]
        if starts:
            self._assigned.update(ends)
            self._behind.update(ends)
            consumer.incremental_assign(starts)
        return True

    def _ends(self, consumer: Consumer, numbers: list[int]) -> dict[int, int]:
        """Where to begin in partitions that are not read whole; those that do not answer are left out."""
        partitions = [TopicPartition(self._topic, number) for number in numbers]
        spans = {p.partition: consumer.get_watermark_offsets(p, timeout=_ASK_LIMIT_S) for p in partitions}
        ends = {number: int(span[1]) for number, span in spans.items() if span is not None}
        if not self._back_ms or not partitions:
            return ends
        since_ms = time.time_ns() // 1_000_000 - self._back_ms
        asked = [TopicPartition(self._topic, number, since_ms) for number in numbers]
        for found in consumer.offsets_for_times(asked, timeout=_ASK_LIMIT_S):
            # Below 0: nothing was written since.
            if found.error is None and 0 <= found.offset < ends.get(found.partition, 0):
                ends[found.partition] = found.offset
        return ends

    def _read_batch(self, consumer: Consumer) -> None:
        # consume() would wait for its whole time even if a record is there; poll() does not.
        message = consumer.poll(_POLL_S)
        parsed: list[T] = []
        ends: list[tuple[int, int]] = []
        for _ in range(BATCH_MAX):
            if message is None:
                break
            error = message.error()
            if error is None:
                value = self._parse(message)
                if value is not None:
                    parsed.append(value)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._behind.discard(message.partition())
                ends.append((message.partition() or 0, message.offset() or 0))
            message = consumer.poll(0)
        if parsed:
            self._call(self._deliver, parsed)
        if self._at_end is not None:
            for end in ends:
                self._call(self._at_end, *end)
        if ends and not self._behind:
            self._call(self.caught_up.set)

    def _call(self, function: Callable[..., None], *args: object) -> None:
        assert self._loop is not None
        # The loop may close at any moment between a look at it and the call.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)
