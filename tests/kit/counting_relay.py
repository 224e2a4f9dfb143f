"""A relay between proxy and broker that counts Produce requests in flight, and may hold back answers."""

import socket
import threading
import time
from collections import deque

from relay_kit import Relay, next_frame, send_frame, shut

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
