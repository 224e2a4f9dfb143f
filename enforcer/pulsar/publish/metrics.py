"""What a proxy of Pulsar's tells Prometheus of SENDs; names: docs/metrics.md, "Publishing on Pulsar".

Nothing is kept for the scrape.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from enforcer.pulsar.publish.room import Room

Family = CounterMetricFamily | GaugeMetricFamily

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


class PublishCollector(Collector):
    """Reads the numbers when it is asked.

    Args:
        room: what waits.
        numbers: what was counted.
    """

    def __init__(self, room: Room, numbers: Numbers) -> None:
        self._room = room
        self._numbers = numbers

    def collect(self) -> Iterator[Family]:
        """All families, without SENDs too."""
        for name, text, value in (
            ("queued_sends", "SENDs that wait in the proxy", self._room.sends),
            ("queued_bytes", "Their bytes", self._room.size),
            ("unread_connections", "Connections not read, since too much of theirs waits", self._room.unread),
        ):
            yield GaugeMetricFamily(f"weir_publish_{name}", text, value=value)
        unsent = CounterMetricFamily(
            "weir_publish_unsent_sends", "SENDs that waited and were never sent", labels=["reason"]
        )
        for reason in UnsentReason:
            unsent.add_metric([reason.value], self._numbers.unsent[reason])
        yield unsent
        limited = GaugeMetricFamily(
            "pulsar_publish_rate_limit_times", "How often a SEND had to wait", labels=["namespace"]
        )
        for namespace, count in list(self._numbers.limited.items()):
            limited.add_metric([namespace], count)
        yield limited
