"""Producers that never tire of waiting for an answer."""

import threading
import time
from typing import Any

from confluent_kafka import Producer

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
