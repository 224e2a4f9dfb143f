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

ELSEWHERE: Final = frozenset({CLOSE_PRODUCER, CLOSE_CONSUMER, TOPIC_MIGRATED})
"""Kinds of frames by which a broker may do so."""
_NAMED: Final = ("assignedBrokerServiceUrl", "assignedBrokerServiceUrlTls")


def led_back(kind: int, frame: bytes, link: Link, context: Context) -> bytes | None:
    """One of them as the client gets it; None: its connection ends."""
    body, moved = parse(frame), context.pulsar_metrics.moved
    if kind != TOPIC_MIGRATED:
        if not any(map(body.HasField, _NAMED)):
            return frame
        for name in _NAMED:
            body.ClearField(name)
        moved.labels("unnamed").inc()
        return rewritten(frame, body)
    url = context.pulsar.migrated_url
    if not url:
        moved.labels("ended").inc()
        link.end("topic_migrated")
        return None
    body.brokerServiceUrl = body.brokerServiceUrlTls = url
    moved.labels("migrated").inc()
    return rewritten(frame, body)
