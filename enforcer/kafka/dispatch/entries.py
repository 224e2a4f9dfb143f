"""The record batches of a partition of a Fetch response, as a consumer will see them.

An *entry* is a record batch, or one message of a message set (versions 0 and 1). Nothing is decompressed.
By hand: Kafka's definitions have no batches. One takes 0.26 µs, in a run 0.1; a compiled reader would take
0.16 for its head alone.
Source: the layout of record batches in Kafka's documentation; KIP-98 for transactions.
"""

import struct
from collections.abc import Sequence
from math import inf
from typing import Final, NamedTuple

from enforcer.wire.kafka.batches import BATCHES_MAX, RECORD_BYTES_MIN, count_records
from enforcer.wire.kafka.frames import Frame

_HEAD: Final = struct.Struct(">qi4xb")  # offset, length, leader epoch or crc, magic
_HEAD_BYTES: Final = 17
# In version 2: behind these attributes, last offset delta, producer, and the number of records.
_V2: Final = struct.Struct(">qi4xb4xhi16xq6xi")
_LENGTH_END: Final = 12
BATCH_BYTES_MIN: Final = 61
"""What a batch of version 2 takes at least."""
_NO_V2: Final = (0, 0, -1, 0)
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_NOT_PLAIN: Final = _CONTROL | 0x07
"""A marker, or compressed."""


class AbortedTxn(NamedTuple):
    """An aborted transaction, as a Fetch response tells of it.

    Attributes:
        producer: whose.
        first: its first offset.
    """

    producer: int
    first: int


Entry = tuple[int, int, int, int, int]
"""One that is here whole: the messages that the consumer gets of it, and its bytes, both 0 of what it never
sees (markers, aborted records); where it ends in the frame; the offset that follows it; how many it stands
for, if it is a run. No class of its own: there may be one for each message, and that would cost as much as
reading it."""


def run(frame: Frame, start: int, end: int, fetch_offset: int) -> Entry | None:
    """All entries between two places of a frame as one; None: there are none, too many, or not all are plain.

    Args:
        start: where the partition's records begin.
        end: where they end.
        fetch_offset: what was asked for.
    """
    if end - start > BATCHES_MAX * BATCH_BYTES_MIN:
        return None
    offset, last = start, end - BATCH_BYTES_MIN
    read, newest, msgs, count = _V2.unpack_from, start, 0, 0
    while offset <= last:
        first, length, magic, attributes, _, _, records = read(frame, offset)
        if magic != 2 or attributes & _NOT_PLAIN or first < fetch_offset:
            return None
        if not 0 < records * RECORD_BYTES_MIN <= length - (BATCH_BYTES_MIN - _LENGTH_END):
            return None
        stop = offset + _LENGTH_END + length
        if stop > end:
            break
        newest, offset = offset, stop
        msgs += records
        count += 1
    if not count or last < offset <= end - _HEAD_BYTES:
        return None
    first, _, _, _, delta, _, _ = read(frame, newest)
    return msgs, offset - start, offset, first + max(0, delta) + 1, count


def entries(
    frame: Frame, start: int, end: int, fetch_offset: int, aborted: Sequence[AbortedTxn], most: float = inf
) -> list[Entry]:
    """The entries between two places of a frame; one that is cut off at the end is none: nobody can read it.

    A first batch may begin before the offset that was asked for. Of it as many messages count as offsets lie
    from there on, at most as many as it has; of a compacted batch, whose offsets have gaps, that is at most
    as many too many as it has gaps before that offset.

    Args:
        frame, start, end, fetch_offset: see run.
        aborted: the aborted transactions among them; empty where the consumer reads uncommitted ones.
        most: no more are looked for behind the first that the consumer sees beyond so many.
    """
    found: list[Entry] = []
    unseen = _Unseen(aborted) if aborted else None
    offset = start
    seen = 0
    while end - offset >= _HEAD_BYTES and len(found) < BATCHES_MAX and seen <= most:
        # Nearly always a batch of version 2: read at once, as there may be one for each message.
        whole = end - offset >= BATCH_BYTES_MIN
        head = _V2.unpack_from(frame, offset) if whole else _HEAD.unpack_from(frame, offset) + _NO_V2
        first, length, magic, attributes, delta, producer, records = head
        stop = offset + _LENGTH_END + length
        if length <= 0 or stop > end:
            break
        room = length + _LENGTH_END - BATCH_BYTES_MIN
        if magic == 2 and not attributes & _NOT_PLAIN and 0 < records * RECORD_BYTES_MIN <= room:
            msgs = records
        else:
            msgs = count_records(frame, offset, stop, 1)
        last = first
        if magic == 2 and room >= 0:
            if delta > 0:
                last += delta
            if unseen is not None and unseen.hides(last, attributes, producer):
                msgs = 0
        elif msgs == 0:
            break
        if first < fetch_offset:
            msgs = min(msgs, max(0, last - fetch_offset + 1))
        if msgs:
            found.append((msgs, stop - offset, stop, last + 1, 1))
            seen += 1
        else:
            found.append((0, 0, stop, last + 1, 1))
        offset = stop
    return found


class _Unseen:
    """What a consumer of committed records does not see of a partition, batch by batch."""

    def __init__(self, aborted: Sequence[AbortedTxn]) -> None:
        self._gone: set[int] = set()
        self._waiting = sorted(aborted, key=lambda transaction: transaction.first, reverse=True)

    def hides(self, last: int, attributes: int, producer: int) -> bool:
        """Whether the next batch is of an aborted transaction."""
        while self._waiting and self._waiting[-1].first <= last:
            self._gone.add(self._waiting.pop().producer)
        if attributes & _CONTROL:
            self._gone.discard(producer)
            return False
        return bool(attributes & _TRANSACTIONAL) and producer in self._gone
