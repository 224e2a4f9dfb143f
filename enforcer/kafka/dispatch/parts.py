"""What the parts of Fetch messages have in common: lengths, topics, tagged sections, bounds.

Places are plain numbers in local variables, since a cursor object would cost as much again as the reading.
"""

import struct
from typing import Final

from enforcer.wire.kafka.frames import BadFrame, Frame, Reason, read_uvarint, skip_tags
from enforcer.wire.kafka.traffic import TOPIC_ID_BYTES

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


class TooManyParts(BadFrame):
    """More topics and partitions than are gone through at once."""


def count_at(frame: Frame, offset: int, flexible: bool) -> tuple[int, int]:
    """How many elements or bytes follow, none for null, and where they begin."""
    if flexible:
        size, offset = read_uvarint(frame, offset)
        return max(0, size - 1), offset
    (count,) = _INT32.unpack_from(frame, offset)
    return max(0, count), offset + 4


def topic_at(frame: Frame, offset: int, flexible: bool, ids: bool) -> tuple[bytes, int]:
    """A topic's name or id, and where it ends."""
    if ids:
        size = TOPIC_ID_BYTES
    elif flexible:
        size, offset = read_uvarint(frame, offset)
        size = max(0, size - 1)
    else:
        size = max(0, _INT16.unpack_from(frame, offset)[0])
        offset += 2
    end = offset + size
    if end > len(frame):
        raise BadFrame(Reason.TRUNCATED_BODY)
    return bytes(frame[offset:end]), end


def after_tags(frame: Frame, offset: int, flexible: bool) -> int:
    """Where a tagged section that begins here ends; classic versions have none."""
    if not flexible:
        return offset
    # Nearly always there are none: one zero byte.
    return offset + 1 if frame[offset] == 0 else skip_tags(frame, offset)


def room_left(room: int, count: int) -> int:
    """How many parts may still be gone through after so many more."""
    if count > room:
        raise TooManyParts(Reason.TOO_MANY_ITEMS)
    return room - count
