"""Consumers of two groups on one topic, one of which is limited; when each record came, and what that shows.

All have `came`, as reading_kit.Reading: (monotonic time, topic, bytes) of each record.
"""

import math
import re
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as Partition
from proxy_kit import until
from reading_kit import Reading, fill
from threaded import Threaded

from weir.jars.java import java_command

RATE: Final = 100
"""Messages a second of the limited group."""
RECORDS: Final = 50_000
BATCH: Final = 10
FETCH: Final = RATE + BATCH
"""A fetch brings what a period has left, and the rest of a batch."""
DEFAULT_ID: Final = "rdkafka"
"""The client id of every librdkafka client that sets none."""
_EARLY_S: Final = 0.3
"""A burst may seem to come a little before its period begins."""
_LIMIT_S: Final = 60.0
_TRIES: Final = 2
Came = list[tuple[float, str, int]]


def prepared(bootstrap: str, put: Callable[[str, dict[str, Any]], Any], topic: str, group: str) -> None:
    """A topic full of records, and a limit for one group.

    Args:
        bootstrap: of the broker itself.
        put: publishes a policy.
        topic: its name.
        group: is limited to RATE.
    """
    rate = {"dispatchRate": {"dispatchThrottlingRateInMsg": RATE}}
    put(f"topics.persistent://public/default/{topic}", {"subscriptions": {group: rate}})
    fill(bootstrap, topic, RECORDS, batch=BATCH)


def as_by_default(bootstrap: str, group: str, topic: str) -> Reading:
    """A consumer of librdkafka with its default client id, which commits every 5 s."""
    return Reading(bootstrap, group, [topic], client_id=DEFAULT_ID, enable_auto_commit="true")


class _Reading(Threaded, ABC):
    """A consumer of a group in a thread."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        super().__init__(self._run, name=f"reads as {group}", limit_s=_LIMIT_S)
        self._bootstrap, self._group, self._topic = bootstrap, group, topic
        self.came: Came = []

    def _note(self, size: int) -> None:
        self.came.append((time.monotonic(), self._topic, size))

    @abstractmethod
    def _run(self) -> None:
        """Until told to stop."""


Noted = Reading | _Reading
"""Who notes when records come."""


class PythonReading(_Reading):
    """kafka-python, with its default client id and commits every 5 s; without a group it assigns itself."""

    def _run(self) -> None:
        consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap, group_id=self._group or None, auto_offset_reset="earliest"
        )
        if self._group:
            consumer.subscribe([self._topic])
        else:
            consumer.assign([Partition(self._topic, 0)])
            consumer.seek_to_beginning()
        while not self._stopping.is_set():
            # A short poll that ends while it joins its group may leave it without partitions for good.
            for messages in consumer.poll(timeout_ms=1_000 if self.came else 10_000).values():
                for message in messages:
                    self._note(len(message.value))
        consumer.close()


class JavaReading(_Reading):
    """Kafka's console consumer, with a client id that all of these have, and commits every 5 s."""

    _process: subprocess.Popen[str] | None = None

    def _run(self) -> None:
        command = java_command(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            "--bootstrap-server", self._bootstrap, "--topic", self._topic, "--group", self._group,
            "--from-beginning", "--command-property", "client.id=of-one-host",
            "--formatter-property", "print.offset=true", "--formatter-property", "print.value=false",
            heap_mb=256,
        )  # fmt: skip
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as self._process:
            assert self._process.stdout is not None
            for line in self._process.stdout:
                assert re.fullmatch(r"Offset:\d+\n", line), line
                self._note(0)

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
        super().__exit__()


class AssignedReading(_Reading):
    """librdkafka that is told what to read from where, and commits for its group every second.

    Attributes:
        position: of the next record.
        first_commit: when its first commit was answered, and how many records it had by then.

    Args:
        bootstrap, group, topic: as for all.
        client_id: its client id.
        position: of its first record.
    """

    def __init__(self, bootstrap: str, group: str, topic: str, client_id: str, position: int = 0) -> None:
        super().__init__(bootstrap, group, topic)
        self._client_id, self.position = client_id, position
        self.first_commit: tuple[float, int] | None = None

    def _run(self) -> None:
        # It fetches only when it has nothing left, and little at a time.
        consumer = Consumer({
            "bootstrap.servers": self._bootstrap, "group.id": self._group, "client.id": self._client_id,
            "enable.auto.commit": "false", "queued.min.messages": "1", "fetch.message.max.bytes": "4096",
            "fetch.wait.max.ms": "100", "fetch.queue.backoff.ms": "10", "log_level": 0,
        })  # fmt: skip
        consumer.assign([TopicPartition(self._topic, 0, self.position)])
        next_commit = 0.0
        while not self._stopping.is_set():
            for message in consumer.consume(BATCH, 0.05):
                assert message.error() is None
                self._note(0)
                self.position = (message.offset() or 0) + 1
            if self.came and time.monotonic() >= max(next_commit, self.came[0][0] + 1):
                consumer.commit(offsets=[TopicPartition(self._topic, 0, self.position)], asynchronous=False)
                next_commit = time.monotonic() + 1
                self.first_commit = self.first_commit or (time.monotonic(), len(self.came))
        consumer.close()


def excess(came: Sequence[tuple[float, Any, Any]], since: float | None = None, before: int = 0) -> float:
    """The most that ever came above RATE x time.

    Args:
        came: all that came.
        since: from when; None: from the first record on.
        before: so many had come until then, and do not count.
    """
    began = came[0][0] if since is None else since
    return max(
        (number + 1 - before - RATE * max(0.0, at - began) for number, (at, _, _) in enumerate(came)),
        default=-math.inf,
    )


def steady(reader: Noted, periods: int = 10) -> float:
    """What comes a second from now on, over whole periods; a second try if the first is off.

    A machine that stands still for a period spoils one.
    """
    found = [_counted(reader, periods)]
    while abs(found[-1] / RATE - 1) > 0.04 and len(found) < _TRIES:
        found.append(_counted(reader, periods))
    return found[-1]


def _counted(reader: Noted, periods: int) -> float:
    begin = _period(time.monotonic()) + 1
    until(lambda: _period(time.monotonic()) > begin + periods, periods + 5)
    return sum(begin <= _period(at) < begin + periods for at, _, _ in list(reader.came)) / periods


def _period(at: float) -> int:
    """Number of the period in which a record came: they are aligned to the epoch."""
    return int(at + time.time() - time.monotonic() + _EARLY_S)


def took(reader: Noted, count: int, limit_s: float) -> float:
    """How long so many took from the first one on, s; infinite if they took more than the limit."""
    until(lambda: reader.came, _LIMIT_S, "a first record")
    began = reader.came[0][0]
    while len(reader.came) < count:
        if time.monotonic() > began + limit_s:
            return math.inf
        time.sleep(0.02)
    return reader.came[count - 1][0] - began
