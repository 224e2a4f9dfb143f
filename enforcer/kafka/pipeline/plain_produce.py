"""Plain Produce requests, read by hand where they lie.

Plain is what nearly all are: with acks, no transactional id, one topic and one partition of it. By hand that
takes a fifth of the time of a header and the codec, and no copy.
"""

import struct
from typing import Final

from enforcer.wire.kafka.batches import count_records
from enforcer.wire.kafka.frames import FLEXIBLE_FROM, PRODUCE, BadFrame, Frame, read_uvarint
from enforcer.wire.kafka.traffic import PRODUCE_IDS_FROM, Part

# Behind the client id: no tags, no transactional id, acks, timeout, number of topics; in classic versions
# without tags, and with the length of the first name.
_HEAD: Final = struct.Struct(">bbhib")
_CLASSIC_HEAD: Final = struct.Struct(">hhiih")
# Number of partitions, the first of them; in classic versions the length of its records too.
_PART: Final = struct.Struct(">bi")
_CLASSIC_PART: Final = struct.Struct(">iii")
_ID_BYTES: Final = 16
_SHORT: Final = 127
"""Names below it have a length of one byte in flexible versions."""
_END: Final = b"\0\0\0"
"""No tags: of the partition, of the topic, of the request."""
_TRANSACTIONAL_FROM: Final = 3


def plain_produced(data: Frame, start: int, stop: int, version: int) -> Part | None:
    """What a request brings; None: it is another one, or damaged.

    Args:
        start: where its client id ends.
        stop: where it ends.
        version: its version, one that can be read.
    """
    try:
        if version >= FLEXIBLE_FROM[PRODUCE]:
            return _flexible(data, start, stop, version)
        return _classic(data, start, stop) if version >= _TRANSACTIONAL_FROM else None
    except (struct.error, IndexError, BadFrame):
        return None


def _flexible(data: Frame, start: int, stop: int, version: int) -> Part | None:
    tags, transaction, acks, _, topics = _HEAD.unpack_from(data, start)
    name = start + _HEAD.size
    name_end = name + _ID_BYTES
    if version < PRODUCE_IDS_FROM:
        name_end = name + data[name]
        name += 1
    count, number = _PART.unpack_from(data, name_end)
    if tags or transaction or not acks or topics != 2 or count != 2 or not name < name_end < name + _SHORT:
        return None
    size, records = read_uvarint(data, name_end + _PART.size)
    end = records + size - 1
    if end < records or end + len(_END) != stop or not data.startswith(_END, end):
        return None
    return Part(bytes(data[name:name_end]), number, count_records(data, records, end), end - records)


def _classic(data: Frame, start: int, stop: int) -> Part | None:
    transaction, acks, _, topics, name_bytes = _CLASSIC_HEAD.unpack_from(data, start)
    name = start + _CLASSIC_HEAD.size
    name_end = name + name_bytes
    if transaction != -1 or not acks or topics != 1 or name_bytes <= 0:
        return None
    count, number, size = _CLASSIC_PART.unpack_from(data, name_end)
    records = name_end + _CLASSIC_PART.size
    if count != 1 or size < 0 or records + size != stop:
        return None
    return Part(bytes(data[name:name_end]), number, count_records(data, records, stop), size)
