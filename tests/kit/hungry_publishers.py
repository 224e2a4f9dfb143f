"""Publishers that want more than they may, on a real Pulsar."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pulsar_kit import client
from threaded import Threaded


class Publisher(Threaded):
    """Sends as fast as it may, and knows when each message was acknowledged (monotonic s).

    Args:
        producer: the client's.
        rate: at most so many a second.
    """

    def __init__(self, producer: Any, rate: float) -> None:
        super().__init__(self._run, limit_s=10.0)
        self.acknowledged: list[float] = []
        self._producer, self._rate = producer, rate

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._producer.flush()

    def per_second(self, began: float, seconds: int) -> list[int]:
        """How many in each second from then on."""
        counts = Counter(int(at - began) for at in list(self.acknowledged) if at >= began)
        return [counts[second] for second in range(seconds)]

    def _run(self) -> None:
        began, sent = time.monotonic(), 0
        while not self._stopping.wait(max(0.0, began + sent / self._rate - time.monotonic())):
            self._producer.send_async(b"x" * 100, self._done)
            sent += 1

    def _done(self, *_: Any) -> None:
        self.acknowledged.append(time.monotonic())


@contextmanager
def publishing(service: str, topic: str, rate: float = 400.0) -> Iterator[Publisher]:
    """A client of its own, since Pulsar pauses whole connections."""
    with client(service) as connected:
        options: dict[str, Any] = {"block_if_queue_full": True, "max_pending_messages": 50}
        producer = connected.create_producer(topic, batching_enabled=False, **options)
        with Publisher(producer, rate) as publisher:
            yield publisher
