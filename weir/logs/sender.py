"""Publishes records in the rhythm of their recording, with a bound on what is on its way (`weir send`)."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from streaming.contract.errors import WeirError
from streaming.contract.times import clock
from streaming.contract.topics import Cluster
from streaming.kafka_io.writer import connected, flushed, served
from weir.jars.wait import never
from weir.logs.send_lines import NO_TIME, Addresser, OutgoingRecord, RecordedLine, shift_for

BUFFER_MAX: Final = 10_000
"""Records on their way at once; then sending waits for the cluster."""
DELIVERY_LIMIT_S: Final = 30.0
"""A record that the cluster has not taken by then has failed."""
STOP_LIMIT_S: Final = 5.0
"""The same of what is on its way when a stop is asked for."""
_PROGRESS_S: Final = 1.0
_POLL_S: Final = 0.1


def producer_for(cluster: Cluster) -> Producer:
    """An idempotent producer (docs/contract.md 1) with a bounded queue."""
    own = {
        "queue.buffering.max.messages": BUFFER_MAX,
        "message.timeout.ms": int(DELIVERY_LIMIT_S * 1000),
        "linger.ms": 5,
    }
    return connected(cluster.properties, own)


class Sender:
    """Hands records to a producer and counts what became of them.

    Args:
        producer: where they go.
        progress: takes a line for people about once a second.
        now_s: the clock, s.
    """

    def __init__(
        self, producer: Producer, *, progress: Callable[[str], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._producer = producer
        self.progress = progress
        self._now_s = now_s
        self._started = self._said = now_s()
        self.delivered: dict[str, int] = {}
        self.failed = 0
        self.failure = ""

    def send(self, record: OutgoingRecord, stopped: Callable[[], bool] = never) -> bool:
        """Queue a record, waiting for room as long as the cluster takes any, and nobody wants it `stopped`.

        A record that the library refuses, such as one that is too large, has failed.

        Returns:
            False: it was stopped while there was no room.

        Raises:
            WeirError: nothing was taken for DELIVERY_LIMIT_S, or the producer has broken for good.
        """
        deadline = self._now_s() + DELIVERY_LIMIT_S + _POLL_S
        while True:
            try:
                self._producer.produce(
                    record.topic, value=record.value, key=record.key, on_delivery=self._note
                )
                break
            except KafkaException as refused:
                self._note(refused.args[0], None)
                break
            except BufferError:
                if self._now_s() > deadline:
                    raise WeirError(f"{BUFFER_MAX} records wait and the cluster takes none") from None
                if stopped():
                    return False
                self.idle(record.due, _POLL_S)
        self.idle(record.due, 0)
        return True

    def idle(self, at_ms: int, limit_s: float) -> None:
        """Take reports of deliveries for `limit_s` at most; `at_ms` is where the recording stands.

        Raises:
            WeirError: the producer has broken for good.
        """
        if (broken := served(self._producer, limit_s)) is not None:
            raise WeirError(f"sending broke off: {broken.str()}")
        now_s = self._now_s()
        if now_s - self._said >= _PROGRESS_S:
            self._said = now_s
            done = sum(self.delivered.values())
            rate = done / (now_s - self._started)
            self.progress(f"{done} delivered ({rate:.0f}/s), {self.failed} failed, at {clock(at_ms)}")

    def finish(self, stopped: Callable[[], bool]) -> None:
        """Wait for all that is on its way, once `stopped` for less long; what is not delivered has failed."""
        limit_s, begun = DELIVERY_LIMIT_S, self._now_s()
        while (left := flushed(self._producer, _POLL_S)) and self._now_s() < begun + limit_s:
            if limit_s > STOP_LIMIT_S and stopped():
                limit_s, begun = STOP_LIMIT_S, self._now_s()
        if left:
            self.failed += left
            self.failure = self.failure or f"no answer within {limit_s:g} s"

    def _note(self, error: Any, message: Any) -> None:
        if error is None:
            topic = message.topic()
            self.delivered[topic] = self.delivered.get(topic, 0) + 1
        else:
            self.failed += 1
            self.failure = self.failure or error.str()


@dataclass(slots=True, kw_only=True)
class Pace:
    """When an event's time has come.

    Attributes:
        factor: how many times as fast as recorded.
        wait: sleeps for so many s at most; True: a stop was asked for.
        now_s: wall clock, s.
        begin_s: wall time of the recording's first event, s; set by `begin`, as is the next.
        first_ms: time in that event, ms.
    """

    factor: float
    wait: Callable[[float], bool]
    now_s: Callable[[], float]
    begin_s: float = 0.0
    first_ms: int = 0

    def begin(self, first_ms: int, *, at_its_time: bool) -> None:
        """Start with the first event: when its time comes, or now."""
        self.first_ms = first_ms
        self.begin_s = max(self.now_s(), first_ms / 1000) if at_its_time else self.now_s()

    def steps(self, due_ms: int) -> Iterator[int]:
        """Wait until `due_ms` comes, a little at a time; yields where the recording stands, ms."""
        due_s = self.begin_s + (due_ms - self.first_ms) / 1000 / self.factor
        while (left := due_s - self.now_s()) > 0:
            yield due_ms - round(left * 1000 * self.factor)
            if self.wait(min(left, _POLL_S)):
                return


def send(
    items: Iterator[RecordedLine], addresser: Addresser, sender: Sender, pace: Pace | None, *,
    keep_times: bool, stopped: Callable[[], bool],
) -> bool:  # fmt: skip
    """Send every line when its time comes; True if none is left.

    Args:
        items: lines in order of time.
        addresser: makes records of them; its shift is set here.
        sender: takes the records; all of them have been answered or given up when this returns.
        pace: None: no waiting.
        keep_times: leave the times in the events as they are.
        stopped: asked before each line, and while there is no room for one or an answer is waited for.

    Raises:
        WeirError: a file cannot be read, or the cluster takes nothing any more.
    """
    begun = False
    try:
        for item in items:
            if not begun and item.at != NO_TIME:
                begun = True
                _begin(item.at, addresser, pace, keep_times)
                if pace is not None and pace.begin_s > pace.now_s() + _PROGRESS_S:
                    sender.progress(f"begins with the next round, at {clock(round(pace.begin_s * 1000))}")
            record = addresser.address(item)
            if begun and pace is not None:
                for reached_ms in pace.steps(record.due):
                    sender.idle(reached_ms, 0)
            if stopped() or not sender.send(record, stopped):
                return False
    finally:
        sender.finish(stopped)
    return True


def _begin(first_ms: int, addresser: Addresser, pace: Pace | None, keep_times: bool) -> None:
    if not keep_times:
        addresser.shift_ms = shift_for(first_ms, addresser.now_ms, addresser.round_ms)
    if pace is not None:
        pace.begin(first_ms + addresser.shift_ms, at_its_time=not keep_times)
