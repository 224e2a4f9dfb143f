"""Real load: clients that want so much a second, and what got through by the cluster's own count."""

import subprocess
import time
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from kafka import KafkaProducer
from threaded import Threaded

from weir.jars.java import java_command

SIZE = 100
"""Bytes of a value, if nothing else is said."""
_SLICE_S = 0.01
_OPEN_MAX = 50
"""Records of one client that wait to be delivered."""
_FLUSH_S = 15.0
_WINDOW_S = 5.0


@contextmanager
def perf_test(
    bootstrap: str, topic: str, count: int, rate: int, log: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Kafka's producer-perf-test with small batches; killed in the end."""
    settings = ("batch.size=1000", "linger.ms=0", "buffer.memory=33000", "acks=1", "max.block.ms=120000")
    words = [
        "--topic", topic, "--num-records", str(count), "--record-size", str(SIZE),
        "--throughput", str(rate), "--command-property", f"bootstrap.servers={bootstrap}", *settings,
    ]  # fmt: skip
    command = java_command("org.apache.kafka.tools.ProducerPerformance", *words, heap_mb=128)
    with (log.open("ab") if log else open("/dev/null", "ab")) as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


class Worker(Threaded, ABC):
    """A thread that does something until it is told to stop."""

    def __init__(self, name: str) -> None:
        super().__init__(self._run, name=name)
        self.done: list[tuple[float, int]] = []
        """(time, records up to then) of what got through, by the steady clock."""

    def rate(self, from_s: float, to_s: float) -> float:
        """Records per second between two times."""
        return (self._until(to_s) - self._until(from_s)) / (to_s - from_s)

    def note(self, count: int = 1) -> None:
        """So many records have just got through."""
        self.done.append((time.monotonic(), (self.done[-1][1] if self.done else 0) + count))

    def _until(self, at: float) -> int:
        # A glance, since thousands are asked for while the load goes on in the same process.
        place = bisect_left(self.done, at, key=itemgetter(0))
        return self.done[place - 1][1] if place else 0

    @abstractmethod
    def _run(self) -> None:
        """Work until `_stopping` is set, noting what is done."""

    def _due(self, rate: float) -> Iterator[int]:
        """How many records to send now, so that it is `rate` a second; what is late is not left out."""
        begun, sent = time.monotonic(), 0
        while not self._stopping.is_set():
            count = int((time.monotonic() - begun) * rate) - sent
            if count <= 0:
                time.sleep(_SLICE_S)
                continue
            yield min(count, 10)
            sent += count


class ConfluentProducer(Worker):
    """librdkafka, wanting so many records a second; what waits in it is bounded.

    Args:
        bootstrap: a proxy.
        topic: where to.
        rate: records per second.
        size: of a value, bytes.
        settings: further ones of librdkafka.
    """

    def __init__(self, bootstrap: str, topic: str, rate: float, size: int = SIZE, **settings: Any) -> None:
        super().__init__(f"producer {topic}")
        self._topic, self._rate, self._size = topic, rate, size
        self._settings = {
            "bootstrap.servers": bootstrap, "linger.ms": "0", "batch.num.messages": "10",
            "queue.buffering.max.messages": str(_OPEN_MAX), "log_level": "0", **settings,
        }  # fmt: skip

    def _run(self) -> None:
        producer = Producer(self._settings)
        for count in self._due(self._rate):
            for _ in range(count):
                value = self._value()
                while not self._stopping.is_set():
                    try:
                        producer.produce(self._topic, value=value, on_delivery=self._delivered)
                        break
                    except BufferError:
                        producer.poll(0.05)
            producer.poll(0)
        self._end(producer)

    def _value(self) -> bytes:
        return b"x" * self._size

    def _delivered(self, error: object, _message: Message) -> None:
        if error is None:
            self.note()

    def _end(self, producer: Producer) -> None:
        """What is not delivered yet is left."""


class NumberedProducer(ConfluentProducer):
    """The same, each value being its number, so that it can be seen what became of it.

    Attributes:
        acknowledged: those that are on the cluster, as it says.
        errors: what librdkafka said of its connections, and of records that it could not deliver.

    Args:
        bootstrap, topic, rate: as above.
        idempotent: nothing is to be there twice.
    """

    def __init__(self, bootstrap: str, topic: str, rate: float, *, idempotent: bool) -> None:
        self._next = 0
        self.acknowledged: list[int] = []
        self.errors: list[str] = []
        told = {"error_cb": lambda error: self.errors.append(str(error))}
        super().__init__(bootstrap, topic, rate, **{"enable.idempotence": idempotent, **told})

    def _value(self) -> bytes:
        self._next += 1
        return b"%d" % (self._next - 1)

    def _delivered(self, error: object, message: Message) -> None:
        super()._delivered(error, message)
        if error is None:
            self.acknowledged.append(int(message.value() or b""))
        else:
            self.errors.append(str(error))

    def _end(self, producer: Producer) -> None:
        producer.flush(_FLUSH_S)


class PythonProducer(Worker):
    """kafka-python, sending a record at a time; what waits in it is bounded, so that it can be closed.

    Args:
        bootstrap: a proxy.
        topic: where to.
        rate: records per second.
    """

    def __init__(self, bootstrap: str, topic: str, rate: float) -> None:
        super().__init__(f"producer {topic}")
        self._bootstrap, self._topic, self._rate = bootstrap, topic, rate

    def _run(self) -> None:
        producer = KafkaProducer(bootstrap_servers=self._bootstrap, linger_ms=0, batch_size=1_000)
        sent = 0
        for count in self._due(self._rate):
            for _ in range(count):
                while sent - len(self.done) >= _OPEN_MAX and not self._stopping.is_set():
                    time.sleep(_SLICE_S)
                producer.send(self._topic, b"x" * SIZE).add_callback(self._delivered)
                sent += 1
        producer.close(15)

    def _delivered(self, _metadata: object) -> None:
        self.note()


class ConfluentConsumer(Worker):
    """librdkafka, reading one partition as fast as it may.

    Args:
        bootstrap: a proxy.
        topic: what to read.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(f"consumer {topic}")
        self._bootstrap, self._topic = bootstrap, topic

    def _run(self) -> None:
        consumer = Consumer({
            "bootstrap.servers": self._bootstrap, "group.id": self._topic, "enable.auto.commit": "false",
            "log_level": "0",
        })  # fmt: skip
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        while not self._stopping.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.note()
        consumer.close()


class Arrivals(Worker):
    """What arrives in a topic, by the cluster's own offsets; for clients that do not say themselves.

    Args:
        bootstrap: the cluster.
        topic: of one partition.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(f"arrivals {topic}")
        self._bootstrap, self._topic = bootstrap, topic

    def _run(self) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "arrivals", "log_level": "0"})
        before = 0
        while not self._stopping.is_set():
            try:
                _, end = consumer.get_watermark_offsets(TopicPartition(self._topic, 0), timeout=5)
            except KafkaException:
                continue
            self.note(end - before)
            before = end
            time.sleep(0.1)
        consumer.close()


def peak_of(workers: Sequence[Worker], from_s: float, to_s: float) -> float:
    """The highest rate over any window of _WINDOW_S."""
    steps = int((to_s - from_s - _WINDOW_S) / 0.1)
    starts = (from_s + 0.1 * step for step in range(max(1, steps)))
    return max(sum(worker.rate(start, start + _WINDOW_S) for worker in workers) for start in starts)
