"""The record batches of a partition of a Fetch response, as a consumer will see them.

An *entry* is a record batch, or one message of a message set (versions 0 and 1). Nothing is decompressed.
Source: the layout of record batches in Kafka's documentation; KIP-98 for transactions.
"""

import struct
from collections.abc import Sequence
from math import inf
from typing import Final, NamedTuple

from enforcer.kafka.protocol.batches import BATCHES_MAX, count_records
from enforcer.kafka.protocol.traffic import Frame

_HEAD: Final = struct.Struct(">qi4xb")  # offset, length, leader epoch or crc, magic
_HEAD_BYTES: Final = 17
_LENGTH_END: Final = 12
_ATTRIBUTES: Final = struct.Struct(">hi")  # attributes, last offset delta
_ATTRIBUTES_AT: Final = 21
_PRODUCER: Final = struct.Struct(">q")
_PRODUCER_AT: Final = 43
_V2_BYTES: Final = 61
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20


class Aborted(NamedTuple):
    """An aborted transaction, as a Fetch response tells of it.

    Attributes:
        producer: whose.
        first: its first offset.
    """

    producer: int
    first: int


class Entry(NamedTuple):
    """One entry that is here whole.

    Attributes:
        msgs: messages that the consumer gets of it; 0 of what it never sees: markers, aborted records.
        size: bytes, 0 of what it never sees.
        stop: where it ends in the frame.
        after: the offset that follows it.
    """

    msgs: int
    size: int
    stop: int
    after: int


def entries(
    frame: Frame, start: int, end: int, fetch_offset: int, aborted: Sequence[Aborted], most: float = inf
) -> list[Entry]:
    """The entries between two places of a frame; one that is cut off at the end is none: nobody can read it.

    A first batch may begin before the offset that was asked for. Of it as many messages count as offsets lie
    from there on, at most as many as it has; of a compacted batch, whose offsets have gaps, that is at most
    as many too many as it has gaps before that offset.

    Args:
        frame: the response.
        start: where the partition's records begin.
        end: where they end.
        fetch_offset: what was asked for.
        aborted: the aborted transactions among them; empty where the consumer reads uncommitted ones.
        most: no more are looked for behind the first that the consumer sees beyond so many.
    """
    found: list[Entry] = []
    gone: set[int] = set()
    waiting = sorted(aborted, key=lambda transaction: transaction.first, reverse=True)
    offset = start
    seen = 0
    while end - offset >= _HEAD_BYTES and len(found) < BATCHES_MAX and seen <= most:
        first, length, magic = _HEAD.unpack_from(frame, offset)
        stop = offset + _LENGTH_END + length
        if length <= 0 or stop > end:
            break
        msgs = count_records(frame, offset, stop, 1)
        last = first
        if magic == 2 and stop - offset >= _V2_BYTES:
            attributes, delta = _ATTRIBUTES.unpack_from(frame, offset + _ATTRIBUTES_AT)
            last = first + max(0, delta)
            if waiting or gone:
                (producer,) = _PRODUCER.unpack_from(frame, offset + _PRODUCER_AT)
                while waiting and waiting[-1].first <= last:
                    gone.add(waiting.pop().producer)
                if attributes & _CONTROL:
                    gone.discard(producer)
                elif attributes & _TRANSACTIONAL and producer in gone:
                    msgs = 0
        elif msgs == 0:
            break
        if first < fetch_offset:
            msgs = min(msgs, max(0, last - fetch_offset + 1))
        found.append(Entry(msgs, stop - offset if msgs else 0, stop, last + 1))
        seen += msgs > 0
        offset = stop
    return found
