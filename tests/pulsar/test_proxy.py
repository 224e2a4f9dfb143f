"""Real clients and a real broker with the proxy between them: all passes, and nobody leaves it."""

import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pulsar as client_library
import pytest
from broker_fixtures import apart
from cluster_kit import LOOPBACK, Cluster
from process_kit import Command
from proxy_kit import until
from pulsar import CompressionType, ConsumerType, InitialPosition, MessageId
from pulsar.schema import JsonSchema, Record, String
from pulsar_dispatch_kit import Reading, rate
from pulsar_kit import Admin, Publishing, client, fresh, numbered, receive, send_all
from pulsar_proxy_kit import PulsarThread, bare_proxy
from pulsar_rig import connect, split
from pulsar_tokens import checking, token

from enforcer.wire.pulsar import frames
from enforcer.wire.pulsar.commands import CONNECTION, ServerError, command, parse
from weir.stack.kafka import free_port
from weir.stack.pulsar import LocalPulsar

EARLIEST = InitialPosition.Earliest
LARGE = 12 << 20
AWAY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def proxy(pulsar: LocalPulsar) -> Iterator[PulsarThread]:
    """One for all tests that do not stop it."""
    with bare_proxy(pulsar.service, own={"targets": [AWAY]}) as running:
        yield running


@pytest.fixture(scope="module")
def clients(proxy: PulsarThread) -> Iterator[client_library.Client]:
    """A client that knows nothing but the proxy."""
    with client(proxy.bootstrap) as made:
        yield made


def ours(proxy: PulsarThread) -> set[str]:
    """The proxy's own ends of its connections to brokers, as the broker's stats write them."""
    transports = [one._upstream.transport for one in list(proxy.proxy.connections)]
    return {"/{}:{}".format(*one.get_extra_info("sockname")) for one in transports if one is not None}


def all_through(proxy: PulsarThread, admin: Admin, topic: str) -> bool:
    """Whether the broker sees nobody at a topic but the proxy."""
    stats = admin.stats(topic)
    consumers = [one for found in stats["subscriptions"].values() for one in found["consumers"]]
    seen = {one["address"] for one in (*stats["publishers"], *consumers)}
    return bool(seen) and seen <= ours(proxy)


class Person(Record):
    """A schema of its own."""

    name = String()


def test_messages_of_all_sorts(proxy: PulsarThread, clients: Any, admin: Admin) -> None:
    """Single, batched, compressed, with a schema, in chunks: what was sent arrives, over the proxy."""
    sorts: list[dict[str, Any]] = [
        {"batching_enabled": False},
        {"batching_enabled": True},
        *({"batching_enabled": True, "compression_type": one} for one in (
            CompressionType.LZ4, CompressionType.ZLib, CompressionType.ZSTD, CompressionType.SNAPPY,
        )),
    ]  # fmt: skip
    for options in sorts:
        topic = fresh("sorts")
        producer = clients.create_producer(topic, block_if_queue_full=True, **options)
        consumer = clients.subscribe(topic, "s")
        sent = [b"%d" % number * 20 for number in range(200)]
        send_all(producer, sent)
        assert [one.data for one in receive(consumer, most=200)] == sent
        assert all_through(proxy, admin, topic)
        producer.close()
        consumer.close()
    topic = fresh("schema")
    with_schema = clients.create_producer(topic, schema=JsonSchema(Person))
    reader = clients.subscribe(topic, "s", schema=JsonSchema(Person), initial_position=EARLIEST)
    with_schema.send(Person(name="Ada"), partition_key="k", properties={"a": "b"})
    message = reader.receive(10_000)
    assert (message.value().name, message.partition_key(), message.properties()) == ("Ada", "k", {"a": "b"})
    topic = fresh("chunks")
    chunked = clients.create_producer(topic, batching_enabled=False, chunking_enabled=True)
    consumer = clients.subscribe(topic, "s", initial_position=EARLIEST)
    chunked.send(bytes(range(256)) * (LARGE >> 8))
    assert consumer.receive(20_000).data() == bytes(range(256)) * (LARGE >> 8)


def test_many_topics(proxy: PulsarThread, clients: Any, admin: Admin) -> None:
    """Partitioned topics, several at once, and by a pattern."""
    namespace = admin.namespace(f"public/{fresh('many')}")
    whole = admin.topic(f"persistent://{namespace}/whole", partitions=3)
    plain = f"persistent://{namespace}/plain"
    both = clients.subscribe([whole, plain], "both")
    for topic in (whole, plain):
        send_all(clients.create_producer(topic), [b"x"] * 30)
    assert len(receive(both, most=60)) == 60
    names = re.compile(f"persistent://{namespace}/.*")
    pattern = clients.subscribe(names, "pattern", initial_position=EARLIEST)
    assert len(receive(pattern, most=60)) == 60
    assert all(all_through(proxy, admin, f"{whole}-partition-{number}") for number in range(3))
    assert all_through(proxy, admin, plain)


def test_ways_to_consume(clients: Any) -> None:
    """Readers, seeking, key-shared, negative acknowledgements and dead letters."""
    topic = fresh("ways")
    producer = clients.create_producer(topic, batching_enabled=False)
    ids = [one.id for one in send_all(producer, numbered(50))]
    reader = clients.create_reader(topic, MessageId.earliest)
    assert len(receive(reader, most=50)) == 50
    consumer = clients.subscribe(topic, "seeks", initial_position=EARLIEST)
    assert len(receive(consumer, most=50)) == 50
    consumer.seek(ids[40])
    assert [one.data for one in receive(consumer, quiet_s=0.5)][-9:] == [b"%d" % n for n in range(41, 50)]
    topic = fresh("keys")
    shared = [clients.subscribe(topic, "keys", consumer_type=ConsumerType.KeyShared) for _ in range(2)]
    producer = clients.create_producer(topic)
    for number in range(60):
        producer.send_async(b"x", lambda *_: None, partition_key=str(number))
    producer.flush()
    parts = [receive(one, quiet_s=0.5) for one in shared]
    assert sum(map(len, parts)) == 60 and all(parts)
    topic = fresh("letters")
    policy = client_library.ConsumerDeadLetterPolicy(max_redeliver_count=2, dead_letter_topic=f"{topic}-dead")
    consumer = clients.subscribe(
        topic, "letters", consumer_type=ConsumerType.Shared, negative_ack_redelivery_delay_ms=50,
        dead_letter_policy=policy,
    )  # fmt: skip
    dead = clients.subscribe(f"{topic}-dead", "dead")
    clients.create_producer(topic).send(b"bad")
    for _ in range(3):
        consumer.negative_acknowledge(consumer.receive(10_000))
    assert dead.receive(10_000).data() == b"bad"


def test_an_unloaded_topic(proxy: PulsarThread, clients: Any, admin: Admin) -> None:
    """Everyone comes back to the proxy, soon, and no acknowledged message is lost."""
    topic = f"persistent://public/default/{fresh('unloaded')}"
    producer, consumer = clients.create_producer(topic), clients.subscribe(topic, "s")
    send_all(producer, [b"before"] * 10)
    admin.unload(topic)
    begun = time.monotonic()
    send_all(producer, [b"after"] * 10)
    assert time.monotonic() - begun < 5
    assert len(receive(consumer, most=20)) == 20
    assert all_through(proxy, admin, topic)


@pytest.mark.soak
def test_a_proxy_that_dies(pulsar: LocalPulsar, admin: Admin) -> None:
    """Clients come back to one that stands there again; what was acknowledged is stored."""
    topic, port = fresh("dies"), free_port()
    with client(f"127.0.0.1:{port}") as made, ExitStack() as running:
        with bare_proxy(pulsar.service, listen=("127.0.0.1", port)) as first:
            producer = made.create_producer(topic, block_if_queue_full=True)
            consumer = made.subscribe(topic, "s")
            publishing = running.enter_context(Publishing(producer))
            time.sleep(0.5)
            first.call(lambda: [one.drop("stop") for one in list(first.proxy.connections)])
            time.sleep(0.3)
        with bare_proxy(pulsar.service, listen=("127.0.0.1", port)) as second:
            until(lambda: second.metric("connections"), what="clients that come back")
            time.sleep(0.5)
            running.close()
            sent = len(publishing.sending.wait())
            got = {one.data for one in receive(consumer, quiet_s=1.0)}
            assert len(got) == sent > 100
            assert all_through(second, admin, f"persistent://public/default/{topic}")


def talk(address: str, data: bytes, limit_s: float = 5.0) -> bytes:
    """Send bytes and return what comes until the end; fails if the other side does not end it."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=limit_s) as connection:
        connection.sendall(data)
        answer = b""
        while True:
            try:
                piece = connection.recv(65_536)
            except ConnectionResetError:
                return answer
            if not piece:
                return answer
            answer += piece


def test_who_speaks_something_else(proxy: PulsarThread, clients: Any) -> None:
    """Garbage, another protocol, a broker nobody knows: each ends alone, others notice nothing."""
    producer = clients.create_producer(fresh("others"))
    for noise in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100, b"\xff" * 100, command(frames.PING)):
        assert talk(proxy.bootstrap, noise) == b""
    (refusal,) = split(talk(proxy.bootstrap, connect(proxy_to_broker_url="127.0.0.1:22")))
    assert parse(refusal).error == ServerError.NOT_ALLOWED and parse(refusal).request_id == CONNECTION
    assert proxy.count("refused_targets_total") == 1
    producer.send(b"still here")


def test_a_broker_that_is_down(proxy: PulsarThread) -> None:
    """The client gets the protocol's word for it, and the end."""
    (refusal,) = split(talk(proxy.bootstrap, connect(proxy_to_broker_url=AWAY)))
    assert parse(refusal).error == ServerError.SERVICE_NOT_READY
    assert proxy.metric("upstream_failures_total", reason="refused") == 1


@pytest.mark.soak
def test_logins_are_the_brokers(tmp_path: Path) -> None:
    """Tokens pass, the broker sees whose they are, so does the proxy; a forged one is nobody's."""
    with (
        LocalPulsar(tmp_path, token=token("root"), properties=checking("ann")) as broker,
        bare_proxy(broker.service) as proxy,
    ):
        topic = fresh("logins")
        login = client_library.AuthenticationToken(token("ann"))
        with client(proxy.bootstrap, authentication=login) as made:
            producer, consumer = made.create_producer(topic), made.subscribe(topic, "s")
            send_all(producer, [b"x"] * 10)
            assert len(receive(consumer, most=10)) == 10
            stats = Admin(broker.admin, token("root")).stats(topic)
            assert [one["appId"] for one in stats["subscriptions"]["s"]["consumers"]] == ["ann"]
            users = {one.user for one in list(proxy.proxy.connections)}
            assert users == {"ann"}
        forged = client_library.AuthenticationToken(token("ann", b"x" * 32))
        with client(proxy.bootstrap, authentication=forged, operation_timeout_seconds=3) as made:
            with pytest.raises(client_library.PulsarException):
                made.create_producer(topic)
            assert "ann" not in {one.user for one in list(proxy.proxy.connections)}


@pytest.mark.soak
def test_a_broker_that_restarts(tmp_path: Path) -> None:
    """Clients come back through the proxy by themselves; nothing that was acknowledged is lost."""
    with LocalPulsar(tmp_path) as broker, bare_proxy(broker.service) as proxy:
        topic = fresh("restarts")
        with client(proxy.bootstrap) as made:
            producer = made.create_producer(topic, block_if_queue_full=True, send_timeout_millis=120_000)
            consumer = made.subscribe(topic, "s")
            with Publishing(producer, 200) as publishing:
                time.sleep(1)
                broker.stop()
                until(lambda: not proxy.metric("connections"), what="the end of all connections")
                broker.start()
                until(lambda: proxy.metric("connections"), 60, "clients that come back")
                time.sleep(2)
            sent = len(publishing.sending.wait(120))
            got = {one.data for one in receive(consumer, quiet_s=5.0, for_s=60)}
            assert len(got) == sent > 100


KILLS = 3
SENT_MIN = 500


class Restarting(ExitStack):
    """A proxy on one port; a context manager.

    Args:
        own: Weir's topics.
        pulsar: the broker.
        folder: for settings and logs.
    """

    def __init__(self, own: Cluster, pulsar: LocalPulsar, folder: Path) -> None:
        super().__init__()
        self.service = f"{LOOPBACK}:{free_port()}"
        self._folder, self._section = folder, {"topic_prefix": own.topics.prefix}
        self._words = ["proxy", "--pulsar", pulsar.service, "--kafka", own.kafka.bootstrap]
        self._words += ["--listen", self.service]

    def start(self) -> None:
        """Start it; clients are let in when this returns."""
        command = Command(self._folder / fresh("proxy"), *self._words, kafka=self._section)
        self._process = self.enter_context(command).process
        command.ready()

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait(5)


def more(count: Callable[[], int], by: int) -> Callable[[], bool]:
    """Whether there are so many more than now."""
    before = count()
    return lambda: count() >= before + by


@pytest.mark.soak
@pytest.mark.parametrize("limited", [False, True], ids=["free", "limited"])
def test_nothing_is_lost_with_a_proxy(
    cluster: Cluster, pulsar: LocalPulsar, admin: Admin, tmp_path: Path, limited: bool
) -> None:
    """Clients come back by themselves, and all arrives; also while SENDs, permits and messages wait in it."""
    namespace = admin.namespace(f"public/{fresh('killed')}")
    topic, group = f"persistent://{namespace}/t", fresh("killed")
    limits = {"resourcegroup": group, "subscriptionDispatchRate": rate(100)}
    options = {"batching_enabled": False, "block_if_queue_full": True, "send_timeout_millis": 120_000}
    with apart(cluster, "killed") as own:
        if limited:
            own.policies.put(f"resourcegroups.{group}", {"publishRateInMsgs": 300})
            own.policies.put(f"namespaces.{namespace}", limits)
        with Restarting(own, pulsar, tmp_path) as proxy, ExitStack() as clients:
            proxy.start()
            reading = clients.enter_context(Reading(proxy.service, topic))
            reading.add()
            producer = clients.enter_context(client(proxy.service)).create_producer(topic, **options)
            with Publishing(producer) as publishing:
                for _ in range(KILLS):
                    time.sleep(2.0)
                    proxy.kill()
                    time.sleep(0.5)
                    proxy.start()
                    until(more(lambda: len(publishing.sending.sent), 50), 60, "receipts")
                    until(more(lambda: len(reading.times()), 50), 60, "messages")
            if limited:
                own.policies.put(f"namespaces.{namespace}", None)
            sent = len(publishing.sending.wait(120))
            until(lambda: len(set(data(reading))) >= sent, 60, "all messages")
    assert set(data(reading)) == set(range(publishing.numbers)) and sent == publishing.numbers > SENT_MIN


def data(reading: Reading) -> list[int]:
    """Numbers that came."""
    return [int(each.data) for each in reading.got[0]]
