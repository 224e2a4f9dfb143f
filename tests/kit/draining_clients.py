"""Producers of several libraries that note what was acknowledged and when; a consumer that reads it all."""

import json
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from itertools import pairwise
from tempfile import NamedTemporaryFile
from typing import Any

from confluent_kafka import Consumer, Producer
from kafka import KafkaProducer
from threaded import Threaded

from weir.jars.java import java_command

RATE = 50
"""Records a second of each producer."""
_END_S = 30.0
_RETRIES = 2_147_483_647


class Writer(Threaded, ABC):
    """A producer in a thread, which ends when all it sent is settled.

    Attributes:
        name: what its values begin with.
        acked: value -> when it was acknowledged.
        failed: what its library gave up.
    """

    def __init__(self, name: str, bootstrap: str, topic: str) -> None:
        super().__init__(self._write, name=name, limit_s=_END_S)
        self.name, self._bootstrap, self._topic = name, bootstrap, topic
        self.acked: dict[str, float] = {}
        self.failed: list[str] = []

    def longest_wait(self, since: float) -> float:
        """The longest time between two acknowledgements from then on, s."""
        times = [at for at in sorted(self.acked.values()) if at >= since]
        return max((after - before for before, after in pairwise(times)), default=_END_S)

    def goes_on(self, since: float, limit_s: float) -> bool:
        """Wait until something is acknowledged well after that; False if nothing is for so long."""
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            if any(at > since + 1 for at in list(self.acked.values())):
                return True
            time.sleep(0.1)
        return False

    def acknowledged(self, value: str) -> None:
        """One is in Kafka."""
        self.acked[value] = time.monotonic()

    @abstractmethod
    def _write(self) -> None:
        """Until told to stop."""


class Confluent(Writer):
    """librdkafka, idempotent."""

    def _write(self) -> None:
        producer = Producer({
            "bootstrap.servers": self._bootstrap, "enable.idempotence": "true", "linger.ms": "0",
            "log_level": "0",
        })  # fmt: skip

        def done(error: Any, message: Any) -> None:
            if error is None:
                self.acknowledged(message.value().decode())
            else:
                self.failed.append(str(error))

        number = 0
        while not self._stopping.wait(1 / RATE):
            producer.produce(self._topic, f"{self.name}-{number}".encode(), on_delivery=done)
            producer.poll(0)
            number += 1
        producer.flush(_END_S / 2)


class Python(Writer):
    """kafka-python."""

    def _write(self) -> None:
        producer = KafkaProducer(bootstrap_servers=self._bootstrap.split(","), acks="all", retries=100)
        number = 0
        while not self._stopping.wait(1 / RATE):
            value = f"{self.name}-{number}"
            sent = producer.send(self._topic, value.encode())
            sent.add_callback(lambda _metadata, value=value: self.acknowledged(value))
            sent.add_errback(lambda error: self.failed.append(repr(error)))
            number += 1
        producer.flush(_END_S / 2)
        producer.close(5)


class Java(Writer):
    """Kafka's own, by its tool for system tests; values are numbers behind a prefix, which is one."""

    def _write(self) -> None:
        with NamedTemporaryFile("w", suffix=".properties") as config:
            # The tool's own default is 0; a producer's is this one.
            config.write(f"retries={_RETRIES}\n")
            config.flush()
            self._run(config.name)

    def _run(self, config: str) -> None:
        command = java_command(
            "org.apache.kafka.tools.VerifiableProducer", "--bootstrap-server", self._bootstrap,
            "--topic", self._topic, "--throughput", str(RATE), "--acks", "-1", "--value-prefix", self.name,
            "--command-config", config,
            heap_mb=128, properties=("org.slf4j.simpleLogger.defaultLogLevel=error",),
        )  # fmt: skip
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as running:
            assert running.stdout is not None
            ending = threading.Thread(target=lambda: (self._stopping.wait(), running.terminate()))
            ending.start()
            for line in running.stdout:
                self._take(line)
            self._stopping.set()
            ending.join()

    def _take(self, line: str) -> None:
        with suppress(ValueError):
            said = json.loads(line)
            if said["name"] == "producer_send_success":
                self.acknowledged(said["value"])
            elif said["name"] == "producer_send_error":
                self.failed.append(said["message"])


class Reader(Threaded):
    """A consumer with a group of its own, from the beginning of a topic on.

    Attributes:
        values: all that came.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(self._read, limit_s=_END_S)
        self.values: set[str] = set()
        self._consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": f"of-{topic}", "auto.offset.reset": "earliest",
            "log_level": "0",
        })  # fmt: skip
        self._consumer.subscribe([topic])

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._consumer.close()

    def _read(self) -> None:
        while not self._stopping.is_set():
            found = self._consumer.consume(500, 0.1)
            self.values.update(one.value().decode() for one in found if one.error() is None)
