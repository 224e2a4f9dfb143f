"""Producers and consumers that a broker sends elsewhere: they are to come back to the proxy.

A broker that gives a topic away may name the new one to its clients. Some versions of clients go there
directly, so the name is taken out: all of them look the topic up again, which leads through the proxy.

A topic that was migrated to another cluster is looked up there, outside this proxy, unless the settings name
one that stands before that cluster.
"""

from typing import Final

from enforcer.pulsar.context import Context
from enforcer.pulsar.link import Link
from enforcer.wire.pulsar.commands import parse, rewritten
from enforcer.wire.pulsar.frames import CLOSE_CONSUMER, CLOSE_PRODUCER, TOPIC_MIGRATED

_NAMED: Final = ("assignedBrokerServiceUrl", "assignedBrokerServiceUrlTls")


class MigrationPart:
    """What one connection's broker says of that (link.Part).

    Args:
        link: the connection.
        context: what all connections share.
    """

    def __init__(self, link: Link, context: Context) -> None:
        self._link = link
        self._context = context
        self.up: frozenset[int] = frozenset()
        self.down = frozenset({CLOSE_PRODUCER, CLOSE_CONSUMER, TOPIC_MIGRATED})
        self.held_bytes = 0

    def take_up(self, kind: int, frame: bytes) -> bytes | None:
        """Nothing is asked for."""
        return frame

    def take_down(self, kind: int, frame: bytes) -> bytes | None:
        """One of them."""
        body, moved = parse(frame), self._context.pulsar_metrics.moved
        if kind != TOPIC_MIGRATED:
            if not any(map(body.HasField, _NAMED)):
                return frame
            for name in _NAMED:
                body.ClearField(name)
            moved.labels("unnamed").inc()
            return rewritten(frame, body)
        url = self._context.pulsar.migrated_url
        if not url:
            moved.labels("ended").inc()
            self._link.end("topic_migrated")
            return None
        body.brokerServiceUrl = body.brokerServiceUrlTls = url
        moved.labels("migrated").inc()
        return rewritten(frame, body)

    def check(self, now_ms: float) -> None:
        """Nothing takes time."""

    def close(self) -> None:
        """Nothing is kept."""
