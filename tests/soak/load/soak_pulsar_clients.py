"""Clients of Pulsar that note what they sent and got, and when."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import pulsar
from pulsar_kit import client
from soak_clients import SIZE, Client
from soak_history import Recorder, now_ms
from soak_pulsar import place

_Made = TypeVar("_Made")

_AGAIN_S = 1.0
_POLL_MS = 200
_LIMIT_S = 180.0
_UNDER_WAY = 20
"""Messages without a receipt: few, or they would wait longer for the limit than all else takes."""
_TIME_OUT_MS = 0
"""Never: a message that is given up may be stored all the same."""


class PulsarSender(Client):
    """A producer of numbered messages, which waits for each receipt for as long as that takes.

    Args:
        told: takes what comes of it.
        who: names it.
        service: HOST:PORT where it connects.
        topic: it exists.
        rate: messages per second that it wants.
    """

    wants = "sent"

    def __init__(self, told: Recorder, who: str, service: str, topic: str, rate: float) -> None:
        super().__init__(told, who, 2 * _LIMIT_S)
        self._service, self._topic, self._rate = service, topic, rate
        self._room = threading.Semaphore(_UNDER_WAY)

    def run(self) -> None:
        """See Client."""
        with client(self._service) as made:
            producer = patient(
                lambda: made.create_producer(
                    self._topic, producer_name=self.who, send_timeout_millis=_TIME_OUT_MS
                ),
                self._stopping,
            )
            number, due = 0, time.monotonic()
            while producer is not None and not self._stopping.wait(max(0.0, due - time.monotonic())):
                due = max(due + 1 / self._rate, time.monotonic())
                if self._room.acquire(timeout=_AGAIN_S):
                    self._send(producer, number)
                    number += 1
            # Those that are under way have their room yet.
            deadline = time.monotonic() + _LIMIT_S
            for _ in range(_UNDER_WAY):
                self._room.acquire(timeout=max(0.0, deadline - time.monotonic()))

    def _send(self, producer: pulsar.Producer, number: int) -> None:
        value, begun = f"{self.who} {number}", now_ms()

        def done(result: pulsar.Result, message: pulsar.MessageId) -> None:
            stored = result == pulsar.Result.Ok
            self.told.note(
                self.wants, who=self.who, topic=self._topic, value=value, size=SIZE, begun=begun,
                ended=now_ms(), offset=place(message) if stored else None, code=0 if stored else int(result),
            )  # fmt: skip
            self._room.release()

        producer.send_async(value.ljust(SIZE).encode(), done)


class PulsarReader(Client):
    """A consumer alone in its subscription, which acknowledges each message.

    Args:
        told: takes what comes.
        group: its subscription.
        service: HOST:PORT where it connects.
        topic: it reads.
    """

    wants = "read"

    def __init__(self, told: Recorder, group: str, service: str, topic: str) -> None:
        super().__init__(told, group)
        self._service, self._topic = service, topic

    def run(self) -> None:
        """See Client."""
        with client(self._service) as made:
            consumer = patient(
                lambda: made.subscribe(
                    self._topic, self.who, initial_position=pulsar.InitialPosition.Earliest
                ),
                self._stopping,
            )
            while consumer is not None and not self._stopping.is_set():
                try:
                    message = consumer.receive(_POLL_MS)
                except pulsar.Timeout:
                    continue
                self.told.note(
                    self.wants, who=self.who, group=self.who, topic=self._topic, at=now_ms(),
                    offset=place(message.message_id()), value=message.data().decode().rstrip(),
                )  # fmt: skip
                consumer.acknowledge(message)


def patient(make: Callable[[], _Made], stopping: threading.Event) -> _Made | None:
    """What is made when that is possible again; None: it is not wanted any more."""
    while not stopping.is_set():
        try:
            return make()
        except pulsar.PulsarException:
            stopping.wait(_AGAIN_S)
    return None
