"""Clients of four makers, by TLS and with a login, that do one thing and say what they were told."""

import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from tls_kit import Way

from weir.jars.folders import KAFKA, ROOT
from weir.jars.java import java_command

SOURCES = ROOT / "tests" / "secure"
PINS = ROOT / "tests" / "suites" / "pins"
LIMIT_S = 60.0
BUILD_LIMIT_S = 600.0


@dataclass(slots=True)
class Told:
    """What a client has seen.

    Attributes:
        codes: of topics that it created, or records that it wrote; in any order.
        offsets: of records that it read, as they came.
        throttle_ms: the longest that it was told to wait.
    """

    codes: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    throttle_ms: float = 0.0

    def throttled(self, wait_ms: float) -> None:
        """It was told to wait."""
        self.throttle_ms = max(self.throttle_ms, wait_ms)


class Client(ABC):
    """One client.

    Args:
        way: how it comes.
        bootstrap: where to.
        name: its client id.
    """

    refused = True
    """Whether its CreateTopics are of a version that knows error 89; if not, they wait."""
    tells = True
    """Whether it says how long its CreateTopics were to wait."""

    def __init__(self, way: Way, bootstrap: str, name: str) -> None:
        self.way, self.bootstrap, self.name = way, bootstrap, name

    @abstractmethod
    def create(self, topics: dict[str, int]) -> Told:
        """Create topics, name -> partitions, by one request."""

    @abstractmethod
    def produce(self, topic: str, count: int, size: int) -> Told:
        """Write the numbers from 0 on, each with zeros in front to so many characters."""

    @abstractmethod
    def consume(self, topic: str, group: str, count: int) -> Told:
        """Read so many records from the first one on."""


class RdKafka(Client):
    """C: librdkafka."""

    refused = tells = False

    def create(self, topics: dict[str, int]) -> Told:
        """See Client."""
        wanted = [NewTopic(name, count, 1) for name, count in topics.items()]
        found, admin = Told(), AdminClient(self._properties())
        for made in admin.create_topics(wanted, request_timeout=LIMIT_S).values():
            try:
                made.result(LIMIT_S)
                found.codes.append(0)
            except KafkaException as error:
                found.codes.append(error.args[0].code())
        return found

    def produce(self, topic: str, count: int, size: int) -> Told:
        """See Client."""
        found = Told()
        producer = Producer({**self._properties(), **self._heard(found), "enable.idempotence": "true"})
        for number in range(count):
            producer.produce(
                topic, f"{number:0{size}}",
                on_delivery=lambda error, _: found.codes.append(error.code() if error else 0),
            )  # fmt: skip
        assert producer.flush(LIMIT_S) == 0
        return found

    def consume(self, topic: str, group: str, count: int) -> Told:
        """See Client."""
        found = Told()
        consumer = Consumer({
            **self._properties(), **self._heard(found), "group.id": group, "auto.offset.reset": "earliest",
        })  # fmt: skip
        consumer.subscribe([topic])
        deadline = time.monotonic() + LIMIT_S
        while len(found.offsets) < count and time.monotonic() < deadline:
            found.offsets += [message.offset() for message in consumer.consume(count, 0.2)]
        consumer.close()
        return found

    def _properties(self) -> dict[str, Any]:
        own = {"bootstrap.servers": self.bootstrap, "client.id": self.name, "log_level": "0"}
        return {**self.way.rdkafka, **own}

    def _heard(self, found: Told) -> dict[str, Any]:
        return {"throttle_cb": lambda event: found.throttled(1_000 * event.throttle_time)}


class Python(Client):
    """kafka-python."""

    def create(self, topics: dict[str, int]) -> Told:
        """See Client."""
        wanted = {name: {"num_partitions": count, "replication_factor": 1} for name, count in topics.items()}
        with closing(KafkaAdminClient(**self._properties())) as admin:
            answer = admin.create_topics(wanted, raise_errors=False)
            return self._told(admin, codes=[topic["error_code"] for topic in answer["topics"]])

    def produce(self, topic: str, count: int, size: int) -> Told:
        """See Client."""
        with closing(KafkaProducer(**self._properties())) as producer:
            sent = [producer.send(topic, f"{number:0{size}}".encode()) for number in range(count)]
            codes = []
            for one in sent:
                try:
                    one.get(LIMIT_S)
                    codes.append(0)
                except KafkaError as error:
                    codes.append(error.errno)
            return self._told(producer, codes=codes)

    def consume(self, topic: str, group: str, count: int) -> Told:
        """See Client."""
        own = {"group_id": group, "auto_offset_reset": "earliest"}
        with closing(KafkaConsumer(topic, **self._properties(), **own)) as consumer:
            offsets: list[int] = []
            deadline = time.monotonic() + LIMIT_S
            while len(offsets) < count and time.monotonic() < deadline:
                for messages in consumer.poll(timeout_ms=10_000).values():
                    offsets += [message.offset for message in messages]
            return self._told(consumer, offsets=offsets)

    def _properties(self) -> dict[str, Any]:
        return {**self.way.python, "bootstrap_servers": self.bootstrap, "client_id": self.name}

    def _told(self, client: Any, **seen: list[int]) -> Told:
        found = Told(**seen)
        # Its admin client shows them to nobody.
        for name, metric in client._metrics.metrics.items():
            if name.name == "throttle-time-max":
                found.throttled(metric.value())
        return found


class Program(Client):
    """A program that prints what it was told.

    Args:
        command: that runs it.
        properties: its own, beside those of `way`.
        folder: gets their file.
    """

    def __init__(
        self, way: Way, bootstrap: str, name: str, command: list[str], properties: dict[str, str],
        folder: Path,
    ) -> None:  # fmt: skip
        super().__init__(way, bootstrap, name)
        own = {"bootstrap.servers": bootstrap, "client.id": name}
        path = folder / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in {**properties, **own}.items()))
        self._command = [*command, str(path)]

    def create(self, topics: dict[str, int]) -> Told:
        """See Client."""
        return self._run("create", *(f"{name}={count}" for name, count in topics.items()))

    def produce(self, topic: str, count: int, size: int) -> Told:
        """See Client."""
        return self._run("produce", topic, str(count), str(size))

    def consume(self, topic: str, group: str, count: int) -> Told:
        """See Client."""
        return self._run("consume", topic, group, str(count))

    def _run(self, *words: str) -> Told:
        command = [*self._command, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * LIMIT_S, check=False)
        assert done.returncode == 0, done.stderr
        return Told(**orjson.loads(done.stdout))


def java(way: Way, bootstrap: str, name: str, folder: Path, kind: str = KAFKA) -> Program:
    """Kafka's own, of these jars."""
    quiet = ("org.slf4j.simpleLogger.defaultLogLevel=error",)
    command = java_command(str(SOURCES / "Client.java"), heap_mb=128, properties=quiet, kind=kind)
    return Program(way, bootstrap, name, command, way.java, folder)


def go(way: Way, bootstrap: str, name: str, folder: Path) -> Program:
    """franz-go, of the version whose own tests `make suites` runs."""
    # Where all tests of a run find it. Go keeps what it has compiled, so only the first run ever is long.
    program = folder.parent / "client"
    subprocess.run(
        ["go", "build", "-mod=readonly", "-o", str(program), str(SOURCES / "client.go")],
        cwd=PINS, check=True, timeout=BUILD_LIMIT_S,
    )  # fmt: skip
    return Program(way, bootstrap, name, [str(program)], way.rdkafka, folder)


Make = Callable[[Way, str, str, Path], Client]
CLIENTS: dict[str, Make] = {
    "c": lambda way, bootstrap, name, _: RdKafka(way, bootstrap, name),
    "python": lambda way, bootstrap, name, _: Python(way, bootstrap, name),
    "java": java,
    "go": go,
}
"""By language."""
