"""Real load: clients that want so much a second, and what got through by the cluster's own count."""

import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer

from weir.jars import java_command

SIZE = 100
"""Bytes of a value, if nothing else is said."""
_SLICE_S = 0.01
_OPEN_MAX = 50
"""Records of one client that wait to be delivered."""


@contextmanager
def perf_test(
    bootstrap: str, topic: str, count: int, rate: int, log: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Kafka's producer-perf-test with small batches; killed in the end."""
    settings = ("batch.size=1000", "linger.ms=0", "buffer.memory=33000", "acks=1", "max.block.ms=120000")
    words = [
        "--topic", topic, "--num-records", str(count), "--record-size", str(SIZE),
        "--throughput", str(rate), "--producer-props", f"bootstrap.servers={bootstrap}", *settings,
    ]  # fmt: skip
    command = java_command("org.apache.kafka.tools.ProducerPerformance", *words, heap_mb=128)
    with (log.open("ab") if log else open("/dev/null", "ab")) as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


class Worker(ABC):
    """A thread that does something until it is told to stop; a context manager."""

    def __init__(self, name: str) -> None:
        self.done: list[tuple[float, int]] = []
        """(time, records) of what got through, by the steady clock."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(20)

    def rate(self, from_s: float, to_s: float) -> float:
        """Records per second between two times."""
        return rate_of([self], from_s, to_s)

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
    """

    def __init__(self, bootstrap: str, topic: str, rate: float, size: int = SIZE) -> None:
        super().__init__(f"producer {topic}")
        self._bootstrap, self._topic, self._rate, self._value = bootstrap, topic, rate, b"x" * size

    def _run(self) -> None:
        producer = Producer({
            "bootstrap.servers": self._bootstrap, "linger.ms": "0", "batch.num.messages": "10",
            "queue.buffering.max.messages": str(_OPEN_MAX), "log_level": "0",
        })  # fmt: skip
        for count in self._due(self._rate):
            for _ in range(count):
                while not self._stopping.is_set():
                    try:
                        producer.produce(self._topic, value=self._value, on_delivery=self._delivered)
                        break
                    except BufferError:
                        producer.poll(0.05)
            producer.poll(0)

    def _delivered(self, error: object, _message: object) -> None:
        if error is None:
            self.done.append((time.monotonic(), 1))


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
        self.done.append((time.monotonic(), 1))


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
                self.done.append((time.monotonic(), 1))
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
            self.done.append((time.monotonic(), end - before))
            before = end
            time.sleep(0.1)
        consumer.close()


def rate_of(workers: Sequence[Worker], from_s: float, to_s: float) -> float:
    """Records per second of all of them."""
    found = sum(count for worker in workers for at, count in list(worker.done) if from_s <= at < to_s)
    return found / (to_s - from_s)


def peak_of(workers: Sequence[Worker], from_s: float, to_s: float, window_s: float = 5.0) -> float:
    """The highest rate over any window of that length."""
    steps = int((to_s - from_s - window_s) / 0.1)
    starts = (from_s + 0.1 * step for step in range(max(1, steps)))
    return max(rate_of(workers, start, start + window_s) for start in starts)
