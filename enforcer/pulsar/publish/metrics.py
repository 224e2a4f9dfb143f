"""What a proxy of Pulsar's tells Prometheus of SENDs; names: docs/metrics.md, "Publishing on Pulsar".

Nothing is kept for the scrape.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from prometheus_client import CollectorRegistry

from enforcer.pulsar.publish.room import Room
from streaming.metrics import MetricTable, Sample, histogram, read_counter, read_gauge

WAIT_BUCKETS_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0)


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


@dataclass(slots=True)
class Numbers:
    """Counts.

    Attributes:
        unsent: reason -> SENDs that waited and were never sent.
        limited: namespace -> how often a SEND had to wait for its group or user.
        namespaces_max: namespaces with a number of their own; all others count together, as "".
    """

    unsent: Counter[UnsentReason]
    limited: Counter[str]
    namespaces_max: int

    def limit(self, namespace: str) -> None:
        """A SEND has to wait for its group or user."""
        known = namespace in self.limited or len(self.limited) < self.namespaces_max
        self.limited[namespace if known else ""] += 1


class PublishMetrics(MetricTable):
    """Reads the numbers when it is asked.

    Args:
        registry: shows them.
        room: what waits.
        numbers: what was counted.
    """

    prefix = "weir_publish_"

    queued_sends = read_gauge("SENDs that wait, and CLOSE_PRODUCERs behind them", of="_room.sends")
    queued_bytes = read_gauge("Their bytes", of="_room.size")
    unread_connections = read_gauge("Connections not read, since too much of theirs waits", of="_room.unread")
    unsent_sends = read_counter("SENDs that waited and were never sent", "reason")
    limited = read_gauge("How often a SEND had to wait", "namespace", name="pulsar_publish_rate_limit_times")
    wait_seconds = histogram("How long SENDs waited in the proxy, of those that did", WAIT_BUCKETS_S)

    def __init__(self, registry: CollectorRegistry, room: Room, numbers: Numbers) -> None:
        self._room = room
        self._numbers = numbers
        super().__init__(registry)

    def read_samples(self) -> Iterator[Sample]:
        """See there."""
        yield from self.read_paths((), self)
        for reason in UnsentReason:
            yield self.unsent_sends, [reason.value], self._numbers.unsent[reason]
        for namespace, count in list(self._numbers.limited.items()):
            yield self.limited, [namespace], count
