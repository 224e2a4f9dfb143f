"""Topic ids and names, as Metadata responses tell them: read in passing."""

import struct

from enforcer.wire.kafka.frames import (
    METADATA,
    BadFrame,
    Reason,
    read_uvarint,
    response_body_offset,
    skip_tags,
)
from enforcer.wire.kafka.traffic import TOPIC_ID_BYTES, Frame


def described(frame: Frame, version: int) -> dict[bytes, str]:
    """Topic id -> name, as a Metadata response v10-13 tells them.

    Raises:
        BadFrame: it ends too early or a length in it is impossible.
    """
    try:
        offset = response_body_offset(METADATA, version, frame) + 4
        brokers, offset = read_uvarint(frame, offset)
        for _ in range(brokers - 1):
            offset = _after_string(frame, offset + 4)
            offset = _after_tags(frame, _after_string(frame, offset + 4))
        offset = _after_string(frame, offset) + 4
        names: dict[bytes, str] = {}
        topics, offset = read_uvarint(frame, offset)
        for _ in range(topics - 1):
            size, offset = read_uvarint(frame, offset + 2)
            name = bytes(frame[offset : offset + max(0, size - 1)])
            offset += len(name)
            topic_id = bytes(frame[offset : offset + TOPIC_ID_BYTES])
            if size > 1 and any(topic_id):
                names[topic_id] = name.decode("utf-8", "replace")
            offset = _after_tags(frame, _after_partitions(frame, offset + TOPIC_ID_BYTES + 1) + 4)
        return names
    except (struct.error, IndexError) as error:
        raise BadFrame(Reason.TRUNCATED_BODY) from error


def _after_partitions(frame: Frame, offset: int) -> int:
    partitions, offset = read_uvarint(frame, offset)
    for _ in range(partitions - 1):
        offset += 14  # error, index, leader and its epoch
        for _ in range(3):  # replicas: all, in step, off line
            count, offset = read_uvarint(frame, offset)
            offset += 4 * max(0, count - 1)
        offset = _after_tags(frame, offset)
    return offset


def _after_string(frame: Frame, offset: int) -> int:
    size, offset = read_uvarint(frame, offset)
    return offset + max(0, size - 1)


def _after_tags(frame: Frame, offset: int) -> int:
    # Nearly always there are none: one zero byte.
    return offset + 1 if frame[offset] == 0 else skip_tags(frame, offset)
