"""What a SEND says of itself, as far as a limit must know (docs/pulsar/publishing.md, "Counting").

Brokers count what SEND.num_messages claims and never compare it with the message's own metadata, which is
what consumers go by. A limit cannot trust either: who claims less would pass for free, and who claims more
would put its group into debt with nothing sent.
"""

from typing import NamedTuple

from enforcer.wire.pulsar.commands import parse
from enforcer.wire.pulsar.frames import message_parts
from enforcer.wire.pulsar.schema import read_metadata
from enforcer.wire.pulsar.sizes import plausible


class Send(NamedTuple):
    """One SEND.

    Attributes:
        producer_id: of its connection.
        sequence_id: what its receipt names.
        highest_sequence_id: of a batch, what an error may name instead.
        messages: how many it counts for, at least 1.
        size: bytes behind the command, checksum and metadata included, as brokers count them.
    """

    producer_id: int
    sequence_id: int
    highest_sequence_id: int
    messages: int
    size: int


def read_send(frame: bytes) -> Send:
    """A whole SEND.

    Raises:
        BadFrame: it cannot be read.
    """
    body = parse(frame)
    parts = message_parts(frame)
    metadata = read_metadata(frame[parts.metadata : parts.payload])
    claimed = max(body.num_messages, metadata.num_messages_in_batch)
    messages = 1 if claimed <= 1 else plausible(claimed, len(frame) - parts.payload, metadata.compression)
    return Send(
        body.producer_id, body.sequence_id, body.highest_sequence_id, messages, len(frame) - parts.start
    )
