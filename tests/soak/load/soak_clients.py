"""Clients that note what they asked, what they were told, and when."""

import os
import resource
import socket
import struct
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack, suppress
from itertools import chain, repeat

from cluster_kit import address
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from kafka.protocol.consumer import FetchResponse
from soak_history import Recorder, now_ms
from threaded import Threaded
from traffic_kit import fetch_request
from wire_client import Closed, WireClient, errors

_LIMIT_S = 90.0
_CRAWL_S = 0.5
_FETCH, _NO_SESSION = 12, -1
"""A version of Fetch that names topics."""
SIZE = 400
"""Bytes of a record's value."""
BATCH = 10
UNDER_WAY = 4
"""Most records that a producer has, fewer than the five requests that it may have under way: while librdkafka
holds one that it may not send yet it polls without a pause, and four of them took eight tenths of a core."""


class Client(Threaded, ABC):
    """One that wants something all the time; what ends it but the end is noted.

    Args:
        told: takes what comes of it.
        who: names it.
        limit_s: how long it may take to end.
    """

    wants: str
    """Kind of its entries."""

    def __init__(self, told: Recorder, who: str, limit_s: float = _LIMIT_S) -> None:
        super().__init__(self._noted, name=who, limit_s=limit_s)
        self.told, self.who = told, who

    def _noted(self) -> None:
        try:
            self.run()
        except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
            self.told.note("failed", who=self.who, why=repr(error))

    @abstractmethod
    def run(self) -> None:
        """Until it is told to stop."""


class Maker(Client):
    """Asks for one new topic after another.

    Args:
        told: takes what comes of it.
        who: names it and its topics.
        client_id: whose quota it is.
        bootstrap: where it connects.
        every_s: between an answer and the next request.
    """

    wants = "made"

    def __init__(self, told: Recorder, who: str, client_id: str, bootstrap: str, every_s: float) -> None:
        super().__init__(told, who)
        self._client_id, self._bootstrap, self._every_s = client_id, bootstrap, every_s
        self._count = 0

    def run(self) -> None:
        """See Client."""
        while not self._stopping.is_set():
            with suppress(Closed, OSError), WireClient(self._bootstrap, self._client_id) as client:
                while not self._stopping.wait(self._every_s):
                    self._ask(client)
            self._stopping.wait(self._every_s)

    def _ask(self, client: WireClient) -> None:
        # Never the same name again: a topic that is there would say nothing of the request that made it.
        name, code, begun = f"{self.who}-{self._count}", None, now_ms()
        self._count += 1
        try:
            code = errors(client.create({name: 1}))[name]
        finally:
            self.told.note(
                self.wants, who=self.who, subject=f"user=ANONYMOUS,client-id={self._client_id}", name=name,
                begun=begun, ended=now_ms(), code=code,
            )  # fmt: skip


class Sender(Client):
    """An idempotent producer of numbered records.

    Args:
        told: takes what comes of it.
        who: names it.
        bootstrap: where it connects.
        topic: it exists.
        rate: records per second that it wants.
        patience_s: how long it waits for what is under way when it is told to stop.
    """

    wants = "sent"

    def __init__(
        self, told: Recorder, who: str, bootstrap: str, topic: str, rate: float,
        patience_s: float = 2 * _LIMIT_S,
    ) -> None:  # fmt: skip
        super().__init__(told, who, 3 * _LIMIT_S)
        self._patience_s = patience_s
        self._topic, self._rate = topic, rate
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap, "client.id": who, "enable.idempotence": True, "linger.ms": 0,
                "batch.num.messages": BATCH, "message.timeout.ms": 300_000, "socket.timeout.ms": 20_000,
                "queue.buffering.max.messages": UNDER_WAY, "log_level": 0, "reconnect.backoff.max.ms": 1_000,
            }
        )  # fmt: skip

    def run(self) -> None:
        """See Client."""
        number, due = 0, time.monotonic()
        while not self._stopping.is_set():
            value, begun = f"{self.who} {number}", now_ms()

            def delivered(
                error: KafkaError | None, message: Message, value: str = value, begun: int = begun
            ) -> None:
                offset = None if error is not None else message.offset()
                self.told.note(
                    self.wants, who=self.who, topic=self._topic, value=value, size=SIZE, begun=begun,
                    ended=now_ms(), offset=offset, code=error.code() if error is not None else 0,
                )  # fmt: skip

            with suppress(BufferError):
                self._producer.produce(self._topic, value.ljust(SIZE).encode(), on_delivery=delivered)
                number += 1
            # Nothing is caught up with: what waits is what the limit leaves.
            due = max(due + 1 / self._rate, time.monotonic())
            # A poll ends with what it hears.
            while (left_s := due - time.monotonic()) > 0:
                self._producer.poll(left_s)
        if self._producer.flush(self._patience_s):
            self._producer.purge()
            self._producer.flush(_LIMIT_S)


class Reader(Client):
    """A consumer alone in its group, which commits as it goes.

    Args:
        told: takes what comes.
        group: of it.
        bootstrap: where it connects.
        topic: it reads.
    """

    wants = "read"

    def __init__(self, told: Recorder, group: str, bootstrap: str, topic: str) -> None:
        super().__init__(told, group)
        self._topic = topic
        self._properties = {
            "bootstrap.servers": bootstrap, "group.id": group, "client.id": group, "log_level": 0,
            "auto.offset.reset": "earliest", "auto.commit.interval.ms": 1_000, "session.timeout.ms": 10_000,
            "reconnect.backoff.max.ms": 1_000, "socket.timeout.ms": 20_000,
        }  # fmt: skip

    def run(self) -> None:
        """See Client."""
        consumer = Consumer(self._properties)
        consumer.subscribe([self._topic])
        while not self._stopping.is_set():
            for message in consumer.consume(100, 0.1):
                if message.error() is None:
                    self.told.note(
                        self.wants, who=self.who, group=self.who, topic=self._topic, at=now_ms(),
                        offset=message.offset(), value=(message.value() or b"").decode().rstrip(),
                    )  # fmt: skip
        consumer.close()


class Holder(Client):
    """Asks for records of an empty topic, one request after the other: each waits at the broker.

    Args:
        told: takes what comes of it.
        who: names it.
        bootstrap: where it connects.
        topic: it exists.
        wait_ms: how long the broker is to wait.
    """

    wants = "held"

    def __init__(self, told: Recorder, who: str, bootstrap: str, topic: str, wait_ms: int) -> None:
        super().__init__(told, who)
        self._bootstrap, self._topic = bootstrap, topic
        self._frame, _ = fetch_request(
            _FETCH, {topic: 1}, epoch=_NO_SESSION, min_bytes=1 << 20, max_wait_ms=wait_ms
        )

    def run(self) -> None:
        """See Client."""
        while not self._stopping.is_set():
            with suppress(Closed, OSError), WireClient(self._leader(), self.who) as client:
                while not self._stopping.is_set():
                    self._hold(client)
            self._stopping.wait(_CRAWL_S)

    def _leader(self) -> str:
        with WireClient(self._bootstrap, self.who) as client:
            told = client.metadata([self._topic])
        (partition,) = told.topics[0].partitions or [None]
        for one in told.brokers:
            if partition is not None and one.node_id == partition.leader_id:
                return f"{one.host}:{one.port}"
        raise Closed("nobody leads it")

    def _hold(self, client: WireClient) -> None:
        code, begun = None, now_ms()
        try:
            client.send_frame(self._frame)
            answer = client.receive(FetchResponse, _FETCH)
            code = answer.error_code or answer.responses[0].partitions[0].error_code
        finally:
            self.told.note(self.wants, who=self.who, begun=begun, ended=now_ms(), code=code)
        if code:
            raise Closed("it has another leader")


class Laggard(Client):
    """A consumer that reads all, says so, and then nothing for a while.

    Args:
        told: takes what comes.
        group: of it; it has no members.
        bootstrap: where it connects.
        topic: it reads.
        lag_s: how long it stands still.
    """

    wants = "read"

    def __init__(self, told: Recorder, group: str, bootstrap: str, topic: str, lag_s: float) -> None:
        super().__init__(told, group)
        self._topic, self._lag_s, self._offset = topic, lag_s, 0
        self._properties = {
            "bootstrap.servers": bootstrap, "group.id": group, "client.id": group, "log_level": 0,
            "enable.auto.commit": False, "enable.partition.eof": True, "reconnect.backoff.max.ms": 1_000,
            "socket.timeout.ms": 20_000,
        }  # fmt: skip

    def run(self) -> None:
        """See Client."""
        for lag_s in chain([0.0], repeat(self._lag_s)):
            # What came until it was told to stop is read too.
            last = self._stopping.wait(lag_s)
            consumer = Consumer(self._properties)
            consumer.assign([TopicPartition(self._topic, 0, self._offset)])
            while not self._is_last(consumer.poll(1.0)):
                pass
            self._commit(consumer)
            consumer.close()
            if last:
                return

    def _is_last(self, message: Message | None) -> bool:
        """Note what came; whether that was the end."""
        if message is None:
            return False
        if message.error() is not None:
            return bool(message.error().code() == KafkaError._PARTITION_EOF)
        self._offset = message.offset() + 1
        self.told.note(
            self.wants, who=self.who, group=self.who, topic=self._topic, at=now_ms(), offset=message.offset(),
            value=(message.value() or b"").decode().rstrip(),
        )  # fmt: skip
        return False

    def _commit(self, consumer: Consumer) -> None:
        place = TopicPartition(self._topic, 0, self._offset)
        while True:
            begun = now_ms()
            with suppress(KafkaException):
                consumer.commit(offsets=[place], asynchronous=False)
                self.told.note(
                    "committed", group=self.who, topic=self._topic, offset=self._offset, begun=begun,
                    ended=now_ms(),
                )  # fmt: skip
                return
            time.sleep(_CRAWL_S)


class Crowd(Threaded):
    """Clients that connect and say nothing.

    Args:
        to: where they connect.
        count: how many; fewer, where that is half of the descriptors that are left.
    """

    def __init__(self, to: str, count: int) -> None:
        super().__init__(self._run, name="idle clients", limit_s=_LIMIT_S)
        self._to, self._count = to, count

    def _run(self) -> None:
        left = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - len(os.listdir("/dev/fd"))
        with ExitStack() as held:
            for _ in range(min(self._count, left // 2)):
                if self._stopping.is_set():
                    return
                with suppress(OSError):
                    held.enter_context(socket.create_connection(address(self._to), 5))
            self._stopping.wait()


class Bad(Threaded):
    """Clients that say half of something, a byte at a time or no more, and leave without a word.

    Args:
        to: where they connect.
        count: how many.
    """

    def __init__(self, to: str, count: int) -> None:
        super().__init__(self._run, name="bad clients", limit_s=_LIMIT_S)
        self._to, self._count = to, count

    def _run(self) -> None:
        frame = struct.pack(">ihhih", 1_000, 3, 9, 1, -1)
        with ExitStack() as held:
            every: list[socket.socket] = []
            for _ in range(self._count):
                with suppress(OSError):
                    every.append(held.enter_context(socket.create_connection(address(self._to), 5)))
            for number, one in enumerate(every):
                # Half of them end by a reset.
                linger = struct.pack("ii", 1, 0) if number % 2 else struct.pack("ii", 0, 0)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            for byte in frame:
                for one in every[::2]:
                    with suppress(OSError):
                        one.send(bytes([byte]))
                if self._stopping.wait(_CRAWL_S):
                    return
            self._stopping.wait()
