"""What a MESSAGE brings, counted as brokers count (docs/pulsar/dispatch.md).

Metadata is never encrypted or compressed, so nothing of a payload is read.
"""

from typing import Any, Final, NamedTuple

from enforcer.wire.pulsar.frames import BadFrame, message_parts, plausible
from enforcer.wire.pulsar.schema import read

_MASK: Final = 2**64 - 1


class ArrivedEntry(NamedTuple):
    """One entry, or what is left to deliver of it.

    Attributes:
        permits: what it took: the messages that the batch claims, less those acknowledged before.
        msgs: the same, no more than its bytes can hold: who may publish to one topic could put a whole broker
            into debt for ever.
        size: bytes behind the command.
        published: when, ms since the epoch by the producer's clock; 0: it does not say.
        marker: it is the broker's own, and no message of anybody.
        readable: its metadata could be read; else it counts as one message.
    """

    permits: int
    msgs: int
    size: int
    published: int
    marker: bool = False
    readable: bool = True


def arrived(frame: bytes, body: Any) -> ArrivedEntry:
    """What a whole MESSAGE brings.

    Args:
        frame: all of it.
        body: of its command.
    """
    try:
        start, at, payload = message_parts(frame)
        metadata = read("MessageMetadata", frame[at:payload])
    except BadFrame:
        # The client will make of it what it makes of a broken message; it is a delivery all the same.
        return ArrivedEntry(1, 1, max(0, len(frame) - 8), 0, readable=False)
    claimed = max(1, metadata.num_messages_in_batch)
    msgs = 1 if claimed == 1 else plausible(claimed, len(frame) - payload, metadata.compression)
    if body.ack_set:
        left = sum((word & _MASK).bit_count() for word in body.ack_set)
        claimed, msgs = min(claimed, max(1, left)), min(msgs, max(1, left))
    marker = metadata.HasField("marker_type")
    return ArrivedEntry(claimed, msgs, len(frame) - start, metadata.publish_time, marker)
