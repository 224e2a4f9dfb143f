"""What a MESSAGE brings, counted as brokers count (docs/pulsar/dispatch.md).

Metadata is never encrypted or compressed, so nothing of a payload is read.
"""

from typing import Any, Final, NamedTuple

from enforcer.pulsar.protocol.frames import BadFrame, message_parts
from enforcer.pulsar.protocol.schema import read_metadata

_MASK: Final = 2**64 - 1


class Arrived(NamedTuple):
    """One entry, or what is left to deliver of it.

    Attributes:
        msgs: messages: those of the batch that were not acknowledged before. So many permits it took.
        size: bytes behind the command.
        published: when, ms since the epoch by the producer's clock; 0: it does not say.
        marker: it is the broker's own, and no message of anybody.
        readable: its metadata could be read; else it counts as one message.
    """

    msgs: int
    size: int
    published: int
    marker: bool = False
    readable: bool = True


def arrived(frame: bytes, body: Any) -> Arrived:
    """What a whole MESSAGE brings.

    Args:
        frame: all of it.
        body: of its command.
    """
    try:
        parts = message_parts(frame)
        metadata = read_metadata(frame[parts.metadata : parts.payload])
    except BadFrame:
        # The client will make of it what it makes of a broken message; it is a delivery all the same.
        return Arrived(1, max(0, len(frame) - 8), 0, readable=False)
    msgs = max(1, metadata.num_messages_in_batch)
    if body.ack_set:
        left = sum((word & _MASK).bit_count() for word in body.ack_set)
        msgs = min(msgs, max(1, left))
    return Arrived(msgs, len(frame) - parts.start, metadata.publish_time, metadata.HasField("marker_type"))
