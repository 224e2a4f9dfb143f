"""Real consumers of a group that read so many records of a topic, and when each came."""

import asyncio
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer
from cluster_kit import fresh
from confluent_kafka import Consumer
from kafka import KafkaConsumer
from reading_kit import fill

from weir.jars.java import java_command

LIMIT_S = 60.0
TRIES = 3
Arrivals = list[tuple[float, int, int]]
"""When, partition, offset of each record."""


def filled(
    bootstrap: str, count: int, per_batch: int, partitions: int = 1, size: int = 100, name: str = ""
) -> str:
    """A topic with so many records in each partition, in batches of one size; its name."""
    name = name or fresh("dispatch")
    fill(bootstrap, name, count, batch=per_batch, size=size, partitions=partitions)
    return name


def confluent(bootstrap: str, group: str, topic: str, count: int, **more: str) -> Arrivals:
    """Consume so many records with librdkafka."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": "100", **more,
    })  # fmt: skip
    consumer.subscribe([topic])
    found: Arrivals = []
    deadline = time.monotonic() + LIMIT_S
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(500, 0.05):
            assert message.error() is None
            found.append((time.time(), message.partition(), message.offset()))
    consumer.close()
    return found


def kafka_python(bootstrap: str, group: str, topic: str, count: int, **more: str) -> Arrivals:
    """The same with kafka-python, which has fetch sessions."""
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest",
        fetch_max_wait_ms=100, **more,
    )  # fmt: skip
    found: Arrivals = []
    deadline = time.monotonic() + LIMIT_S
    # Its iterator fetches ahead from where it stands and throws the answer away when it has gone on; a short
    # poll() that ends while it joins its group may leave it without partitions for good.
    while len(found) < count and time.monotonic() < deadline:
        for messages in consumer.poll(timeout_ms=10_000).values():
            found += [(time.time(), message.partition, message.offset) for message in messages]
    consumer.close()
    return found


def rate(arrivals: Arrivals) -> float:
    """Messages a second after the first second's, over whole ones: a period's quota comes at its start."""
    seconds = [int(at) for at, _, _ in arrivals]
    first, last = seconds[0], seconds[-1]
    assert last > first
    return (len(seconds) - Counter(seconds)[first]) / (last - first)


def holds(measured: Callable[[], float], limit: float) -> None:
    """Within 2 % of the limit, in one of some tries: a machine that stands still for a period spoils one."""
    found = [measured()]
    while found[-1] != pytest.approx(limit, rel=0.02) and len(found) < TRIES:
        found.append(measured())
    assert found[-1] == pytest.approx(limit, rel=0.02), found


def in_order(arrivals: Arrivals, count: int) -> None:
    """Every record once, in the order of its partition."""
    by_partition: dict[int, list[int]] = {}
    for _, partition, offset in arrivals:
        by_partition.setdefault(partition, []).append(offset)
    assert sum(map(len, by_partition.values())) == count
    for offsets in by_partition.values():
        assert offsets == list(range(len(offsets)))


def java(bootstrap: str, group: str, topic: str, count: int, **more: str) -> Arrivals:
    """The same with Kafka's console consumer."""
    properties = {"group.protocol": "classic", **more}
    command = java_command(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server", bootstrap, "--topic", topic, "--group", group, "--from-beginning",
        "--max-messages", str(count), "--timeout-ms", "30000",
        *(part for item in properties.items() for part in ("--command-property", "=".join(item))),
        *(
            part
            for shown in ("partition=true", "offset=true", "value=false")
            for part in ("--formatter-property", f"print.{shown}")
        ),
    )  # fmt: skip
    found: Arrivals = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stderr is not None
        for line in running.stdout:
            numbers = re.findall(r":(\d+)", line)
            assert len(numbers) == 2, line
            found.append((time.time(), int(numbers[0]), int(numbers[1])))
        assert running.wait(LIMIT_S) == 0, running.stderr.read()
    return found


def aio(bootstrap: str, group: str, topic: str, count: int) -> Arrivals:
    """The same with aiokafka."""

    async def consume() -> Arrivals:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
        )  # fmt: skip
        await consumer.start()
        found: Arrivals = []
        try:
            while len(found) < count:
                message = await asyncio.wait_for(consumer.getone(), 20)
                found.append((time.time(), message.partition, message.offset))
        finally:
            await consumer.stop()
        return found

    return asyncio.run(consume())


def new_confluent(bootstrap: str, group: str, topic: str, count: int) -> Arrivals:
    """librdkafka with the consumer protocol (KIP-848)."""
    return confluent(bootstrap, group, topic, count, **{"group.protocol": "consumer"})


def new_java(bootstrap: str, group: str, topic: str, count: int) -> Arrivals:
    """Java with the consumer protocol."""
    return java(bootstrap, group, topic, count, **{"group.protocol": "consumer"})
