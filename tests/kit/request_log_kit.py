"""Real brokers that log requests, and what real clients do before them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from cluster_kit import USERS, address
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from stack_kit import java_topics
from wire_client import WireClient

from weir.jars.folders import KAFKA
from weir.stack.kafka import LocalKafka

_LOGGER: Final = "kafka.request.logger"
_LAYOUT: Final = "[%d] %p %m (%c)%n"
"""Of Kafka's own configuration."""
_LOG4J: Final = f"""\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern={_LAYOUT}
log4j.logger.{_LOGGER}=DEBUG
"""
_LOG4J2: Final = f"""\
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = {_LAYOUT}
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
logger.requests.name = {_LOGGER}
logger.requests.level = debug
"""
VERSIONS: Final = {"3.9": "kafka39", "4.1": "kafka41", "4.3": KAFKA}
"""Kafka's versions and their jars. 3.9 logs by log4j 1, 4.1 by log4j 2, each as Kafka configures them; 4.3 by
slf4j-simple, as Weir does."""
RECORD: Final = b"x" * 1000


def _logging(folder: Path, kind: str) -> tuple[str, ...]:
    """Options of a broker's JVM by which it logs requests, with their times."""
    if kind == KAFKA:
        name = "org.slf4j.simpleLogger"
        return (f"-D{name}.log.{_LOGGER}=debug",)
    folder.mkdir(parents=True, exist_ok=True)
    old = kind == "kafka39"
    file = folder / "logging.properties"
    file.write_text(_LOG4J if old else _LOG4J2)
    return (f"-Dlog4j.configuration=file:{file}",) if old else (f"-Dlog4j2.configurationFile={file}",)


@contextmanager
def logging_broker(folder: Path, version: str, **more: Any) -> Iterator[LocalKafka]:
    """A broker that logs requests to `kafka.log` in the folder."""
    kind = VERSIONS[version]
    options = ("-Duser.timezone=UTC", *_logging(folder, kind))
    with LocalKafka(folder, sasl=USERS, kind=kind, options=options, **more) as kafka:
        yield kafka


def as_user(kafka: LocalKafka, user: str, client_id: str) -> dict[str, Any]:
    """A client's settings."""
    return {
        "bootstrap.servers": kafka.sasl_bootstrap, "security.protocol": "SASL_PLAINTEXT",
        "client.id": client_id, "sasl.mechanism": "PLAIN",
        "sasl.username": user, "sasl.password": USERS.plain[user],
    }  # fmt: skip


def done(answers: dict[str, Any]) -> None:
    """Wait for what an AdminClient was asked for."""
    for answer in answers.values():
        answer.result(20)


def traffic(kafka: LocalKafka) -> None:
    """Partitions made, added and taken away, records written and read: by two users and one without name."""
    for work in (_alice, _bob, _nobody):
        work(kafka)


def _alice(kafka: LocalKafka) -> None:
    """librdkafka: old versions of the protocol."""
    conf = as_user(kafka, "alice", "terraform")
    admin = AdminClient(conf)
    done(admin.create_topics([NewTopic("acme.orders.a", 3), NewTopic("acme.orders.b", 2)]))
    done(admin.create_topics([NewTopic("acme.orders.dry", 4)], validate_only=True))
    done(admin.create_partitions([NewPartitions("acme.orders.a", 5)]))
    done(admin.delete_topics(["acme.orders.b"]))
    producer = Producer(conf | {"linger.ms": 50})
    for _ in range(20):
        producer.produce("acme.orders.a", RECORD, partition=0)
    assert producer.flush(20) == 0


def _bob(kafka: LocalKafka) -> None:
    """What alice wrote, read by a group."""
    own = {"group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer(as_user(kafka, "bob", "reader") | own)
    consumer.subscribe(["acme.orders.a"])
    read = 0
    while read < 20:
        read += len(consumer.consume(20, 20.0))
    consumer.close()


def _nobody(kafka: LocalKafka) -> None:
    """Kafka's own tool, and requests by id; some are refused."""
    tool: Callable[..., Any] = java_topics
    topic = ("--topic", "acme.orders.j")
    for words in (
        ("--create", *topic, "--replica-assignment", "1,1"),
        ("--alter", *topic, "--partitions", "3"),
        ("--delete", *topic),
    ):
        asked = tool(kafka.bootstrap, *words)
        assert asked.returncode == 0, asked.stderr + asked.stdout
    with WireClient("{}:{}".format(*address(kafka.bootstrap)), "wire") as wire:
        made = wire.create({"acme.orders.w": 2, "acme.orders.a": 1})
        wire.delete_by_id([topic.topic_id for topic in made.topics if not topic.error_code])
        wire.create({"acme.orders.v": 2}, version=2)
        wire.delete(["acme.orders.v", "unknown"], version=1)
        wire.grow("acme.orders.a", 2)
