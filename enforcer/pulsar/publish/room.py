"""Bytes of SENDs that wait and what closes their producers, bounded for each connection and for the process.

A connection above its bound is not read until half of that is gone: its client's other frames wait too then,
as they do on a broker, which knows nothing finer. Where the process holds too much, only those are not read
that hold more than their part of it, so that who is throttled for long takes nothing from others.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from prometheus_client import CollectorRegistry

from streaming.metrics import MetricTable, Sample, counter, histogram, read_gauge

EACH_BYTES: Final = 300
"""What a SEND that waits takes beside its own bytes."""
WAIT_BUCKETS_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0)


@dataclass(slots=True, eq=False)
class HeldBytes:
    """What one connection holds.

    Attributes:
        stop_reading: called when it holds too much.
        read_on: called when it does not any more.
        size: bytes.
        unread: it is not read.
    """

    stop_reading: Callable[[], None]
    read_on: Callable[[], None]
    size: int = 0
    unread: bool = False


class Room:
    """All of it.

    Attributes:
        size: bytes that all connections hold.
        sends: SENDs that all hold, and CLOSE_PRODUCERs behind them.

    Args:
        each_max: bound of a connection, bytes.
        all_max: bound of all together; with many small holders it may be twice that.
    """

    def __init__(self, each_max: int, all_max: int) -> None:
        self.size = self.sends = 0
        self._each_max = each_max
        self._all_max = all_max
        self._holding: set[HeldBytes] = set()
        self._unread: set[HeldBytes] = set()

    @property
    def unread(self) -> int:
        """Connections that are not read."""
        return len(self._unread)

    def take(self, held: HeldBytes, size: int) -> None:
        """One of them begins to wait."""
        size += EACH_BYTES
        held.size += size
        self.size += size
        self.sends += 1
        self._holding.add(held)
        if not held.unread and held.size > self._bound():
            held.unread = True
            self._unread.add(held)
            held.stop_reading()

    def give(self, held: HeldBytes, size: int) -> None:
        """It waits no more."""
        size += EACH_BYTES
        was_full = self.size > self._all_max
        held.size -= size
        self.size -= size
        self.sends -= 1
        if not held.size:
            self._holding.discard(held)
        if was_full and self.size <= self._all_max:
            for each in list(self._unread):
                self._look(each)
        elif held.unread:
            self._look(held)

    def _look(self, held: HeldBytes) -> None:
        if held.size <= self._bound() // 2:
            held.unread = False
            self._unread.discard(held)
            held.read_on()

    def _bound(self) -> int:
        if self.size <= self._all_max:
            return self._each_max
        return min(self._each_max, self._all_max // max(1, len(self._holding)))


class UnsentReason(StrEnum):
    """Why SENDs that waited were never sent; in each case their client knows that they are not stored."""

    CONNECTION = "connection"
    """The connection is over: the client sends on another one what it has no receipt for."""
    CLOSED = "closed"
    """The client has closed the producer and waited for `pulsar.publish_wait_ms`, or sent more after it."""
    BROKER = "broker"
    """The broker has closed the producer, or refused it: the client makes it again, and sends them again."""
    BLOCKED = "blocked"
    """The producer was closed since its topic is blocked, they waited or came after that; the same."""


class PublishMetrics(MetricTable):
    """What Prometheus is told of SENDs (docs/metrics.md, "Publishing on Pulsar"), read when it asks.

    Args:
        registry: shows them.
        room: what waits.
        namespaces_max: namespaces with a number of their own; all others count together, as "".
    """

    prefix = "weir_publish_"

    queued_sends = read_gauge("SENDs that wait, and CLOSE_PRODUCERs behind them", of="_room.sends")
    queued_bytes = read_gauge("Their bytes", of="_room.size")
    unread_connections = read_gauge("Connections not read, since too much of theirs waits", of="_room.unread")
    unsent_sends = counter("SENDs that waited and were never sent", "reason", " ".join(UnsentReason))
    limited = read_gauge("How often a SEND had to wait", "namespace", name="pulsar_publish_rate_limit_times")
    wait_seconds = histogram("How long SENDs waited in the proxy, of those that did", WAIT_BUCKETS_S)

    def __init__(self, registry: CollectorRegistry, room: Room, namespaces_max: int) -> None:
        self._room, self._namespaces_max = room, namespaces_max
        self._limited: Counter[str] = Counter()
        super().__init__(registry)

    def limit(self, namespace: str) -> None:
        """A SEND has to wait for its group or user."""
        known = namespace in self._limited or len(self._limited) < self._namespaces_max
        self._limited[namespace if known else ""] += 1

    def read_samples(self) -> Iterator[Sample]:
        """See there."""
        yield from self.read_paths((), self)
        for namespace, count in list(self._limited.items()):
            yield self.limited, [namespace], count
