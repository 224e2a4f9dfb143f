"""Clients that publish as fast as they may, or at a rate, to brokers or through proxies of both kinds."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer
from pulsar import Result
from pulsar_kit import client
from threaded import Threaded

logger = logging.getLogger(__name__)
SPAN_S = 30.0
Times = list[float]
"""When messages were acknowledged, monotonic s."""


class Driving(Threaded):
    """Clients that send as fast as they may until they are stopped."""

    def __init__(self, *clients: Callable[[threading.Event, Times], None]) -> None:
        self.ended: list[Times] = [[] for _ in clients]
        works = zip(clients, self.ended, strict=True)
        super().__init__(*(lambda each=each, own=own: each(self._stopping, own) for each, own in works))

    def hold(self, limit: float, settle_s: float) -> list[float]:
        """Acknowledged messages a second of each, after a while: together what a limit allows, within 3 %."""
        time.sleep(settle_s)
        began = time.monotonic()
        time.sleep(SPAN_S)
        rates = [sum(began <= at < began + SPAN_S for at in list(each)) / SPAN_S for each in self.ended]
        logger.info("messages a second: %s", rates)
        assert 0.97 * limit <= sum(rates) <= 1.03 * limit, rates
        return rates

    def per_second(self, began: float, seconds: int) -> list[int]:
        """Acknowledged messages of all clients in each second from then on."""
        counts = Counter(int(at - began) for each in self.ended for at in list(each) if at >= began)
        return [counts[second] for second in range(seconds)]


def drive_pulsar(
    service: str, topic: str, stop: threading.Event, ended: Times, rate: float = 0.0, **options: Any
) -> None:
    """As many as are let through, or so many a second; singles, unless the options say something else.

    A client of its own, since Pulsar pauses whole connections.
    """
    with client(service) as own:
        producer = own.create_producer(
            topic, block_if_queue_full=True,
            **{"batching_enabled": False, "max_pending_messages": 100, **options},
        )  # fmt: skip

        def done(result: Any, _: Any) -> None:
            if result == Result.Ok:
                ended.append(time.monotonic())

        began, sent = time.monotonic(), 0
        while not stop.is_set():
            if rate:
                stop.wait(began + sent / rate - time.monotonic())
            producer.send_async(b"x" * 100, done)
            sent += 1
        producer.flush()


def drive_kafka(bootstrap: str, topic: str, stop: threading.Event, ended: Times) -> None:
    """The same on Kafka, in batches of ten at most."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "batch.num.messages": 10, "linger.ms": 5, "log_level": 0}
    )

    def done(error: Any, _: Any) -> None:
        if error is None:
            ended.append(time.monotonic())

    while not stop.is_set():
        if len(producer) < 100:
            producer.produce(topic, b"x" * 100, on_delivery=done)
        producer.poll(0 if len(producer) < 100 else 0.01)
    producer.flush(30)
