"""A broker with a limit of requests in flight, a relay before it that counts them, and producers."""

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from cluster_kit import Cluster, fresh
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from proxy_kit import Decider, PolicyWriter, ProxyThread, until
from relay_kit import Relay, next_frame, send_frame, shut
from stack_kit import new_topics
from tls_kit import PLAIN, Way
from traffic_kit import batch, produce
from wire_client import WireClient

from enforcer.host.dial import Upstream
from enforcer.host.sockets import Address
from streaming.contract.topics import Topics

LIMIT = 8
FIXED = {"algorithm": "fixed", "fixed": {"limit": LIMIT}}
PATIENCE_S = 120.0
"""Without any record for so long it is given up: a busy machine may keep its broker waiting for a while."""
_PRODUCE = (0).to_bytes(2, "big")


class CountingRelay(Relay):
    """Counts Produce requests from their coming to their answer's leaving: never more than the proxy does.

    Args:
        to: the broker.

    Attributes:
        in_flight: now.
        most: the greatest number at a time.
        total: so far.
        delay_s: each answer to Produce leaves so much later, one after the other on a connection.
        open: while it is not set these answers do not leave at all.
    """

    def __init__(self, to: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), to)
        self.in_flight = self.most = self.total = 0
        self.delay_s = 0.0
        self.open = threading.Event()
        self.open.set()
        self._lock = threading.Lock()

    def cut(self) -> None:
        """End all connections that are open now."""
        for one in self._open[1:]:
            shut(one)

    def connected(self, client: socket.socket, broker: socket.socket) -> None:
        """See Relay."""
        # Of each request that will be answered, whether it is one of those that count.
        due: deque[bool] = deque()
        threading.Thread(target=self._requests, args=(client, broker, due), daemon=True).start()
        threading.Thread(target=self._responses, args=(broker, client, due), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket, due: deque[bool]) -> None:
        while frame := next_frame(client):
            counts = frame[:2] == _PRODUCE
            if counts:
                self._count(1)
            due.append(counts)
            send_frame(broker, frame)
        shut(broker)

    def _responses(self, broker: socket.socket, client: socket.socket, due: deque[bool]) -> None:
        while frame := next_frame(broker):
            if due.popleft():
                time.sleep(self.delay_s)
                self.open.wait(30.0)
                self._count(-1)
            send_frame(client, frame)
        self._count(-sum(due))
        shut(client)

    def _count(self, change: int) -> None:
        with self._lock:
            self.in_flight += change
            self.most = max(self.most, self.in_flight)
            self.total += max(0, change)


class Load:
    """Producers that write numbered records at once; a context that lasts until they have, with what failed.

    Attributes:
        failed: what went wrong.
        arrived_s: when the newest record was delivered, whoever's.
    """

    def __init__(self, client: dict[str, Any], topic: str, count: int, producers: int) -> None:
        self.failed: list[Any] = []
        self.arrived_s = time.monotonic()
        self._threads = [
            threading.Thread(target=self._write, args=(client, topic, number * count, count))
            for number in range(producers)
        ]

    def __enter__(self) -> list[Any]:
        for thread in self._threads:
            thread.start()
        return self.failed

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join()

    def _write(self, client: dict[str, Any], topic: str, first: int, count: int) -> None:
        """One producer, a few records at a time; it never tires of waiting for an answer."""
        producer = Producer(
            {**client, "client.id": f"load-{first}", "linger.ms": "0",
             "enable.idempotence": "true", "batch.num.messages": "1", "socket.timeout.ms": "300000",
             "request.timeout.ms": "300000", "message.timeout.ms": "900000"}
        )  # fmt: skip
        for number in range(first, first + count):
            producer.produce(topic, str(number), on_delivery=self._arrived)
        while producer.flush(1.0):
            if time.monotonic() - self.arrived_s > PATIENCE_S:
                self.failed.append("not all were delivered")
                break

    def _arrived(self, error: Any, _message: Any) -> None:
        self.arrived_s = time.monotonic()
        if error:
            self.failed.append(error)


def partition(proxy: ProxyThread) -> Any:
    """What the proxy knows of the one broker's limit; None: nothing yet."""
    known = proxy.proxy.concurrency.partitions.known
    return next(iter(known.values()), None)


class World:
    """A proxy of an installation of its own, behind which a relay stands."""

    def __init__(
        self, cluster: Cluster, topics: Topics, relay: CountingRelay, proxy: ProxyThread, way: Way
    ) -> None:
        self.cluster, self.topics, self.relay, self.proxy = cluster, topics, relay, proxy
        self.client = {"bootstrap.servers": proxy.bootstrap, "log_level": "0", **way.rdkafka}
        self.topic = fresh("flow")
        new_topics(cluster.kafka.bootstrap, self.topic, partitions=4)

    def limit(self, entry: dict[str, Any]) -> None:
        """Put a limit in force before the broker, and wait until connections are counted."""
        PolicyWriter(self.cluster.kafka.bootstrap, self.topics).put("backpressure.partitions.*", entry)
        client = AdminClient(self.client)
        until(lambda: client.list_topics(self.topic, 20) and partition(self.proxy), what="a limited broker")

    def produce(self, client: WireClient) -> None:
        """Ask for one record to be written; the answer is not read."""
        client.send_frame(produce(9, {self.topic: [batch(1)]}, -1)[0])


Start = Callable[..., World]


@contextmanager
def worlds(cluster: Cluster, topics: Topics, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Makes worlds, with a job that answers or none; settings are ProxySettings'."""
    with ExitStack() as stack:
        relays: dict[Address, CountingRelay] = {}
        dial = Upstream.dial
        monkeypatch.setattr(Upstream, "dial", lambda self, to: dial(self, relays[to].listens))

        def make(*, job: bool = False, way: Way = PLAIN, **settings: Any) -> World:
            if job:
                stack.enter_context(Decider(cluster.kafka.bootstrap, topics))
            config = cluster.config(id=fresh("flow"), topics=topics, **way.settings, **settings)
            (target,) = config.kafka
            if target not in relays:
                relays[target] = stack.enter_context(CountingRelay(target))
            running = stack.enter_context(ProxyThread(config))
            return World(cluster, topics, relays[target], running, way)

        yield make
