"""Clients that note what they asked, what they were told, and when."""

import os
import resource
import socket
import struct
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack, suppress

from cluster_kit import address
from confluent_kafka import Consumer, Message, Producer
from soak_history import Recorder, now_ms
from threaded import Threaded
from wire_client import Closed, WireClient, errors

_LIMIT_S = 90.0
_CRAWL_S = 0.5
SIZE = 400
"""Bytes of a record's value."""
BATCH = 10


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
    """

    wants = "sent"

    def __init__(self, told: Recorder, who: str, bootstrap: str, topic: str, rate: float) -> None:
        super().__init__(told, who, 3 * _LIMIT_S)
        self._topic, self._rate = topic, rate
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap, "client.id": who, "enable.idempotence": True, "linger.ms": 0,
                "batch.num.messages": BATCH, "message.timeout.ms": 300_000, "socket.timeout.ms": 20_000,
                "queue.buffering.max.messages": 200, "log_level": 0, "reconnect.backoff.max.ms": 1_000,
            }
        )  # fmt: skip

    def run(self) -> None:
        """See Client."""
        number, due = 0, time.monotonic()
        while not self._stopping.is_set():
            value, begun = f"{self.who} {number}", now_ms()

            def delivered(error: object, message: Message, value: str = value, begun: int = begun) -> None:
                offset = None if error is not None else message.offset()
                self.told.note(
                    self.wants, who=self.who, topic=self._topic, value=value, size=SIZE, begun=begun,
                    ended=now_ms(), offset=offset,
                )  # fmt: skip

            with suppress(BufferError):
                self._producer.produce(self._topic, value.ljust(SIZE).encode(), on_delivery=delivered)
                number += 1
            # Nothing is caught up with: what waits is what the limit leaves.
            due = max(due + 1 / self._rate, time.monotonic())
            self._producer.poll(max(0.0, due - time.monotonic()))
        self._producer.flush(2 * _LIMIT_S)


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
