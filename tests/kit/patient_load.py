"""Producers that never tire of waiting for an answer, and all that they have written."""

import threading
import time
from typing import Any

from cluster_kit import fresh
from confluent_kafka import Consumer, Producer

PATIENCE_S = 120.0
"""Without any record for so long it is given up: a busy machine may keep its broker waiting for a while."""


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


def read_all(bootstrap: str, topic: str, count: int) -> list[int]:
    """What stands in a topic, once so much does; waits a little for more."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": fresh("reader"), "auto.offset.reset": "earliest",
         "log_level": "0"}
    )  # fmt: skip
    consumer.subscribe([topic])
    found: list[int] = []
    newest_s = time.monotonic()
    while time.monotonic() - newest_s < PATIENCE_S:
        messages = consumer.consume(1_000, 1.0)
        came = [int(message.value()) for message in messages if message.error() is None]
        if came:
            newest_s = time.monotonic()
            found += came
        if not messages and len(found) >= count:
            break
    consumer.close()
    return found
