"""Following a topic: what is there, what comes, and what is not there yet."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from cluster_kit import Cluster, fresh
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from proxy_kit import until

from streaming.kafka_io.reader import BATCH_MAX
from streaming.kafka_io.tail import _UNDELIVERED_MAX, Tail


class Writer:
    """Writes to one topic and changes it."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.properties = {"bootstrap.servers": cluster.kafka.bootstrap, "log_level": "0"}
        self.topic = topic
        self.admin = AdminClient(self.properties)

    def create(self) -> None:
        """One partition."""
        self.admin.create_topics([NewTopic(self.topic, 1, 1)])[self.topic].result(10)

    def grow(self) -> None:
        """A second partition."""
        self.admin.create_partitions([NewPartitions(self.topic, 2)])[self.topic].result(10)

    def put(self, value: bytes, partition: int = 0, age_ms: int = 0) -> None:
        """One record, of now or older, by a producer that knows the partitions as they are now."""
        producer = Producer(self.properties)
        until(
            lambda: len(producer.list_topics(self.topic, timeout=5).topics[self.topic].partitions) > partition
        )
        written_ms = time.time_ns() // 1_000_000 - age_ms
        producer.produce(self.topic, value, partition=partition, timestamp=written_ms)
        assert producer.flush(10) == 0


async def followed(
    cluster: Cluster,
    topic: str,
    steps: list[Callable[[], None]],
    count: int,
    *,
    back_ms: int | None,
) -> list[bytes]:
    """Start a tail, take the steps in a thread, wait for so many records."""
    seen: list[bytes | None] = []
    tail = Tail(
        {"bootstrap.servers": cluster.kafka.bootstrap}, topic,
        back_ms=back_ms, parse=lambda message: [message.value()], deliver=seen.extend, look_s=0.3,
    )  # fmt: skip
    tail.start(asyncio.get_running_loop())
    try:
        for step in steps:
            await asyncio.to_thread(step)
        async with asyncio.timeout(20):
            while len(seen) < count:  # noqa: ASYNC110  # the list has no event
                await asyncio.sleep(0.02)
            await tail.caught_up.wait()
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.2)
    finally:
        await tail.stop(5)
    return seen


def test_from_the_beginning(cluster: Cluster) -> None:
    """Old records first, then new ones, and it says when it has caught up."""
    writer = Writer(cluster, fresh("tail"))
    writer.create()
    writer.put(b"old")
    work = followed(cluster, writer.topic, [lambda: writer.put(b"new")], 2, back_ms=None)
    assert asyncio.run(work) == [b"old", b"new"]


def test_from_now_on(cluster: Cluster) -> None:
    """Old records are left out, and partitions added later are read whole."""
    writer = Writer(cluster, fresh("tail"))
    writer.create()
    writer.put(b"old")
    steps = [
        lambda: time.sleep(1.5), lambda: writer.put(b"new"), writer.grow,
        lambda: writer.put(b"second", partition=1),
    ]  # fmt: skip
    work = followed(cluster, writer.topic, steps, 2, back_ms=0)
    assert asyncio.run(work) == [b"new", b"second"]


def test_some_way_back(cluster: Cluster) -> None:
    """What was written within that time is read before what comes; what is older is left out."""
    writer = Writer(cluster, fresh("tail"))
    writer.create()
    writer.grow()
    writer.put(b"too old", age_ms=600_000)
    writer.put(b"too old", 1, age_ms=600_000)
    writer.put(b"old", age_ms=20_000)
    work = followed(cluster, writer.topic, [lambda: writer.put(b"new")], 2, back_ms=60_000)
    assert asyncio.run(work) == [b"old", b"new"]


def test_a_topic_that_is_created_later(cluster: Cluster) -> None:
    """A topic that is not there yet is waited for, and nothing written to it is missed."""
    writer = Writer(cluster, fresh("tail"))
    steps = [lambda: time.sleep(1), writer.create, lambda: writer.put(b"first")]
    work = followed(cluster, writer.topic, steps, 1, back_ms=0)
    assert asyncio.run(work) == [b"first"]


def test_a_loop_that_is_busy_is_waited_for(cluster: Cluster) -> None:
    """What it has not taken yet is bounded; nothing is lost."""
    writer = Writer(cluster, fresh("busy"))
    writer.create()
    producer = Producer({**writer.properties, "queue.buffering.max.messages": 100_000})
    for number in range(40_000):
        producer.produce(writer.topic, b"%d" % number)
    assert producer.flush(30) == 0
    parsed: list[bytes | None] = []

    def parse(message: Message) -> list[bytes | None]:
        parsed.append(message.value())
        return [message.value()]

    async def run() -> list[bytes | None]:
        seen: list[bytes | None] = []
        properties = {"bootstrap.servers": cluster.kafka.bootstrap}
        tail = Tail(properties, writer.topic, parse=parse, deliver=seen.extend)
        tail.start(asyncio.get_running_loop())
        try:
            # The loop is busy: nothing is delivered until it is looked at again.
            until(lambda: len(parsed) > 0)
            time.sleep(2)  # noqa: ASYNC251  # on purpose
            assert len(parsed) <= (_UNDELIVERED_MAX + 2) * BATCH_MAX and not seen
            async with asyncio.timeout(30):
                while len(seen) < 40_000:  # noqa: ASYNC110  # the list has no event
                    await asyncio.sleep(0.02)
        finally:
            await tail.stop(5)
        return seen

    assert asyncio.run(run()) == [b"%d" % number for number in range(40_000)]
