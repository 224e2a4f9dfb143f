"""Limits of dispatch at real consumers: rates, order, groups beside each other (docs/protocol_notes.md 3.6)."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer  # noqa: F401  # used by the soak part
from cluster_kit import Cluster, fresh
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from dispatch_kit import Counted
from kafka import KafkaConsumer
from kafka.protocol.producer import ProduceResponse
from proxy_kit import ProxyThread, until
from traffic_kit import batch, produce_to
from wire_client import WireClient

LIMIT_S = 60.0
Arrivals = list[tuple[float, int, int]]
"""When, partition, offset of each record."""
Start = Callable[..., ProxyThread]


def wall_ms() -> float:
    """The brokers' time, which is this machine's."""
    return time.time() * 1000


def full_name(topic: str) -> str:
    """As limits know it."""
    return f"persistent://public/default/{topic}"


def filled(cluster: Cluster, count: int, per_batch: int, partitions: int = 1, size: int = 100) -> str:
    """A topic with so many records in each partition, in batches of one size."""
    name = fresh("dispatch")
    admin = AdminClient({"bootstrap.servers": cluster.kafka.bootstrap})
    for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        future.result(LIMIT_S)
    with WireClient(cluster.kafka.bootstrap) as client:

        def receive(partition: int) -> int:
            answer = client.receive(ProduceResponse, 9).responses[0].partition_responses
            assert [part.index for part in answer] == [partition]
            return int(answer[0].error_code)

        for partition in range(partitions):
            frame = produce_to(name, partition, batch(per_batch, size=size))

            def begun(frame: bytes = frame, partition: int = partition) -> bool:
                # A topic may be created some time before its leader knows.
                client.send_frame(frame)
                return receive(partition) == 0

            until(begun)
            left = count // per_batch - 1
            for _ in range(left):
                client.send_frame(frame)
            assert [receive(partition) for _ in range(left)] == [0] * left
    return name


def limited(start: Start, **limits: Any) -> tuple[ProxyThread, Counted]:
    """A proxy with limits."""
    running = start()
    assert running.proxy is not None
    counted = Counted(wall_ms, **limits)
    running.proxy.fetch_desk.dispatch = counted
    return running, counted


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


def kafka_python(bootstrap: str, group: str, topic: str, count: int) -> Arrivals:
    """The same with kafka-python, which has fetch sessions."""
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest",
        consumer_timeout_ms=20_000, fetch_max_wait_ms=100,
    )  # fmt: skip
    found: Arrivals = []
    for message in consumer:
        found.append((time.time(), message.partition, message.offset))
        if len(found) >= count:
            break
    consumer.close()
    return found


def rate(arrivals: Arrivals) -> float:
    """Messages a second after the first second's, over whole ones: a period's quota comes at its start."""
    seconds = [int(at) for at, _, _ in arrivals]
    first, last = seconds[0], seconds[-1]
    assert last > first
    return (len(seconds) - Counter(seconds)[first]) / (last - first)


def in_order(arrivals: Arrivals, count: int) -> None:
    """Every record once, in the order of its partition."""
    by_partition: dict[int, list[int]] = {}
    for _, partition, offset in arrivals:
        by_partition.setdefault(partition, []).append(offset)
    assert sum(map(len, by_partition.values())) == count
    for offsets in by_partition.values():
        assert offsets == list(range(len(offsets)))


@pytest.mark.parametrize("consume", [confluent, kafka_python])
def test_batches_of_six_at_ten(cluster: Cluster, proxy_with: Start, consume: Any) -> None:
    """12, 12, 6 and again: ten a second."""
    count, group = 72, fresh("group")
    topic = filled(cluster, count, 6)
    running, counted = limited(proxy_with, subscriptions={(full_name(topic), group): (10, 0)})
    arrivals = consume(running.bootstrap, group, topic, count)
    print(Counter(int(at) for at, _, _ in arrivals))
    in_order(arrivals, count)
    assert rate(arrivals) == pytest.approx(10, rel=0.02)
