"""Traffic that no rule touches passes unharmed (docs/protocol_notes.md 3)."""

import asyncio
import time
import uuid
from collections.abc import Callable
from functools import partial
from random import Random

import pytest
from aiokafka import AIOKafkaProducer
from cluster_kit import Cluster, fresh
from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import AdminClient
from consuming_kit import aio, confluent
from kafka import KafkaConsumer, KafkaProducer
from kafka.protocol.metadata import metadata
from proxy_kit import ProxyThread, until
from stack_kit import put
from threaded import together
from traffic_kit import fetch_of
from wire_client import WireClient

from enforcer.core.settings import AutoCreation
from enforcer.host.moving import Mover

COUNT = 2_000


def test_kafka_python(cluster: Cluster, proxy: ProxyThread) -> None:
    """kafka-python produces and consumes in a group."""
    topic = fresh("python")
    producer = KafkaProducer(bootstrap_servers=proxy.bootstrap)
    for number in range(COUNT):
        producer.send(topic, b"%d" % number)
    producer.close()
    consumer = KafkaConsumer(
        topic, bootstrap_servers=proxy.bootstrap, group_id=topic,
        auto_offset_reset="earliest", consumer_timeout_ms=10_000,
    )  # fmt: skip
    values = {message.value for _, message in zip(range(COUNT), consumer, strict=False)}
    consumer.close()
    assert values == {b"%d" % number for number in range(COUNT)}


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_librdkafka(cluster: Cluster, proxy: ProxyThread, acks: str) -> None:
    """librdkafka with every acks setting; acks=0 has no responses and must not shift the others'."""
    topic = fresh("rdkafka")
    # Its partitions are there once this one is: with acks=0 a broker drops without a word what comes before.
    put(cluster.kafka.bootstrap, topic, b"first")
    producer = Producer({"bootstrap.servers": proxy.bootstrap, "acks": acks})
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number)
        producer.poll(0)
    assert producer.flush(10) == 0
    assert producer.list_topics(topic, timeout=10).topics[topic].partitions
    wanted = COUNT + 1
    assert len(confluent(proxy.bootstrap, topic, topic, wanted)) >= wanted * (0.9 if acks == "0" else 1)


def test_librdkafka_transactions(cluster: Cluster, proxy: ProxyThread) -> None:
    """Committed transactions are read, aborted ones are not."""
    topic = fresh("transactions")
    producer = Producer({"bootstrap.servers": proxy.bootstrap, "transactional.id": topic})
    producer.init_transactions(20)
    for number in range(4):
        producer.begin_transaction()
        for _ in range(10):
            producer.produce(topic, b"x")
        if number % 2:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
    assert len(confluent(proxy.bootstrap, topic, topic, 20)) == 20


def test_aiokafka(cluster: Cluster, proxy: ProxyThread) -> None:
    """aiokafka, with its old versions, produces and consumes."""
    topic = fresh("aiokafka")

    async def work() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=proxy.bootstrap)
        await producer.start()
        for number in range(200):
            await producer.send(topic, b"%d" % number)
        await producer.stop()

    asyncio.run(work())
    assert len(aio(proxy.bootstrap, topic, topic, 200)) == 200


def test_large_records_both_ways(cluster: Cluster, proxy: ProxyThread) -> None:
    """Frames of a megabyte pass, with a slow reader held up by back-pressure and not by memory."""
    topic = fresh("large")
    producer = Producer({"bootstrap.servers": proxy.bootstrap, "compression.type": "none"})
    for number in range(30):
        producer.produce(topic, bytes([number]) * 900_000)
    assert producer.flush(20) == 0
    assert len(confluent(proxy.bootstrap, topic, topic, 30)) == 30


def test_a_slow_reader_gets_every_byte(cluster: Cluster, proxy: ProxyThread) -> None:
    """A response of many megabytes, read in fits and starts, is the broker's; much of it moved past us."""
    topic = fresh("moved")
    rng = Random(13)
    put(cluster.kafka.bootstrap, topic, *(rng.randbytes(900_000) for _ in range(30)), partition=0)
    admin = AdminClient({"bootstrap.servers": cluster.kafka.bootstrap})
    found = admin.describe_topics(TopicCollection([topic]))[topic].result(10).topic_id
    halves = (found.get_most_significant_bits(), found.get_least_significant_bits())
    topic_id = uuid.UUID(bytes=b"".join(int(half).to_bytes(8, "big", signed=True) for half in halves))
    # Up to 30 MB, or one segment of the log.
    fetch = fetch_of(17, topic_id, most=30_000_000, max_bytes=30_000_000, max_wait_ms=500)
    mover, moved = proxy.proxy.mover, list[int]()

    class Watched(Mover):
        """Counts what moves."""

        def move(self, source: int, target: int, count: int) -> tuple[int, bytes]:
            """As the real one."""
            taken, left = mover.move(source, target, count)
            moved.append(taken)
            return taken, left

    with WireClient(cluster.kafka.bootstrap) as direct:
        direct.send(fetch)
        wanted = direct.receive_frame()
    assert len(wanted) > 8_000_000
    proxy.proxy.mover = Watched()
    with WireClient(proxy.bootstrap) as client:
        for turn in range(10):
            # How much has come when we look is the machine's affair: until a whole response has moved.
            if sum(moved) > len(wanted):
                break
            client.send(fetch)
            got, pauses = bytearray(), Random(turn)
            while len(got) < len(wanted) + 4:
                got += client.socket.recv(pauses.choice([1_000, 300_000, 2_000_000]))
                if pauses.random() < 0.1:
                    time.sleep(0.01)
            assert bytes(got[4:]) == wanted
    assert sum(moved) > len(wanted)


def test_only_our_addresses_are_told(cluster: Cluster, proxy: ProxyThread) -> None:
    """Metadata, DescribeCluster and FindCoordinator name the proxy's ports."""
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
    ports = set(proxy.proxy.brokers.ports.values())
    assert {node.port for node in admin.describe_cluster().result(10).nodes} <= ports
    assert {broker.port for broker in admin.list_topics(timeout=10).brokers.values()} <= ports


def test_auto_creation_passes_by_setting(
    cluster: Cluster, proxy_with: Callable[..., ProxyThread], wire: Callable[..., WireClient]
) -> None:
    """With auto_topic_creation pass the request is left as it is."""
    proxy = proxy_with(auto_topic_creation=AutoCreation.PASS)
    name = fresh("passed")
    cluster.limit(proxy, name, controller_mutation_rate=100)
    with WireClient(proxy.bootstrap, name) as client:
        client.metadata([name], create=True)
    direct = wire("direct", cluster.kafka.bootstrap)
    until(lambda: direct.metadata([name]).topics[0].error_code == 0)


def test_many_connections_at_once(cluster: Cluster, proxy: ProxyThread) -> None:
    """Pipelined requests on many connections get their own answers in order."""

    def work(number: int) -> None:
        with WireClient(proxy.bootstrap, f"many-{number}") as client:
            for correlation_id in range(200):
                client.send(metadata.MetadataRequest(version=5, topics=[]), correlation_id)
            for correlation_id in range(200):
                assert int.from_bytes(client.receive_frame()[:4], "big") == correlation_id

    together(*(partial(work, number) for number in range(20)))
