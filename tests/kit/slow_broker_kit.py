"""A broker that can be made slow, and producers that put load on it (slow_relay)."""

import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from confluent_kafka import Producer
from threaded import Threaded

from benchmarks.load.asked import Asked
from weir.stack.kafka import HOST, free_port

_RELAY = str(Path(__file__).with_name("slow_relay.py"))
_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Served:
    """What the broker's side saw for a while.

    Attributes:
        took_ms: round trips, sorted.
        most: Produce requests under way at a time, the greatest number.
    """

    took_ms: list[float]
    most: int

    def quantile(self, part: float) -> float:
        """Of the round trips, ms."""
        return self.took_ms[min(len(self.took_ms) - 1, int(len(self.took_ms) * part))]


class SlowBroker(Asked):
    """The relay before a broker.

    Attributes:
        address: where it listens, as the broker must advertise.
        to: where the broker itself is; to be set before it is entered.

    Args:
        service_ms: how long each Produce request takes.
    """

    def __init__(self, service_ms: float) -> None:
        self._port, self._service_ms = free_port(), service_ms
        self.address = f"{HOST}:{self._port}"
        self.to = (HOST, 0)

    def __enter__(self) -> Self:
        super().__init__(_RELAY, str(self._port), str(self.to[1]), str(self._service_ms))
        super().__enter__()
        self.take()
        return self

    def serve_in(self, service_ms: float) -> None:
        """Each Produce request takes so long from now on."""
        self.ask({"service_ms": service_ms})

    def take(self) -> Served:
        """What was seen since the last time."""
        said = self.ask({"take": True})
        return Served(sorted(said["took_ms"]), said["most"])


class Producers(Threaded):
    """Many real producers, each with one record under way.

    Args:
        bootstrap: where they connect.
        topic: it exists.
        count: how many; each sends without pause.
    """

    def __init__(self, bootstrap: str, topic: str, count: int) -> None:
        super().__init__(*(partial(self._run, one) for one in range(count)), limit_s=2 * _LIMIT_S)
        self._properties = {
            "bootstrap.servers": bootstrap, "linger.ms": 0, "acks": 1, "socket.timeout.ms": 60_000,
            "message.timeout.ms": 120_000, "log_level": 0,
        }  # fmt: skip
        self._topic = topic
        self._lock = threading.Lock()
        self._took_ms: list[float] = []
        self.sent = 0
        """Records that were acknowledged."""
        self.failed = 0
        """Those that were given up."""

    def take(self) -> list[float]:
        """What records took since the last time, ms, sorted."""
        with self._lock:
            took, self._took_ms = self._took_ms, []
        return sorted(took)

    def _run(self, number: int) -> None:
        producer = Producer(self._properties | {"client.id": f"load-{number}"})
        while not self._stopping.is_set():
            begun = time.monotonic()
            producer.produce(self._topic, b"x" * 100, partition=0, on_delivery=self._delivered)
            producer.flush(2 * _LIMIT_S)
            with self._lock:
                self._took_ms.append(1000 * (time.monotonic() - begun))

    def _delivered(self, error: object, _message: object) -> None:
        with self._lock:
            self.sent += error is None
            self.failed += error is not None
