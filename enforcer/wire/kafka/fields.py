"""Reading and writing the field types of Kafka messages, classic and flexible."""

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from enforcer.wire.kafka.frames import TAGS_MAX, BadFrame, Frame, Reason, skip_tags

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
NO_ID: Final = bytes(16)  # the all-zero topic id: none
UNSUPPORTED_VERSION: Final = 35  # Kafka's error code
NO_TAGS: Final = b"\0"
ROWS_MAX: Final = 100_000
"""Rows of one message that are gone through, such as partitions: more would hold up all other traffic."""
ELEMENT_ROWS: Final = 8
"""What an element that is read field by field counts for: it takes so many times as long as a row."""
TAGS_ROOM: Final = 10_000
"""Tagged fields of one message that are gone through, about 1 µs each; real ones have a handful, or one for
each partition that has a new leader."""

Fields = dict[str, Any]
"""A struct: its fields by Kafka's names."""
Read = Callable[[Frame, int, int], Any]
"""(frame, offset of the body, rows that may be gone through) -> what is wanted."""


def skip_tags_within(data: Frame, offset: int, room: int) -> tuple[int, int]:
    """The offset after a tagged section, and how many tagged fields of the message are left to be gone over.

    Raises:
        BadFrame: it runs off the end, or there are too many.
    """
    room -= min(data[offset], TAGS_MAX) if offset < len(data) else 0
    if room < 0:
        raise BadFrame(Reason.TOO_MANY_ITEMS)
    return skip_tags(data, offset), room


class Rows(Sequence[Fields]):
    """Structs of fixed size, kept as the bytes that they came in; read when they are looked at."""

    __slots__ = ("_read", "_row_bytes", "raw", "size")

    def __init__(self, read: Read, raw: bytes, count: int) -> None:
        self._read = read
        self.raw = raw
        self.size = count
        self._row_bytes = len(raw) // count if count else 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self.size:
            raise IndexError(index)
        return self._read(self.raw, index * self._row_bytes, ROWS_MAX)


def null(count: int, allowed: bool) -> None:
    """No text, bytes or array where the length says so.

    Raises:
        BadFrame: the length is none, or there must be something.
    """
    if count < -1:
        raise BadFrame(Reason.NEGATIVE_LENGTH)
    if not allowed:
        raise BadFrame(Reason.UNEXPECTED_NULL)


def wrong_count(count: int) -> None:
    """An array cannot have so many elements: each takes at least a byte.

    Raises:
        BadFrame: always.
    """
    raise BadFrame(Reason.NEGATIVE_LENGTH if count < -1 else Reason.TRUNCATED_BODY)


def numbers(data: Frame, offset: int, count: int, code: str) -> tuple[Any, ...]:
    """The numbers of an array."""
    return struct.unpack_from(f">{count}{code}", data, offset)


def int16(value: int) -> bytes:
    """A signed 16-bit number."""
    return _INT16.pack(value)


def int32(value: int) -> bytes:
    """A signed 32-bit number."""
    return _INT32.pack(value)


def uvarint(value: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(value: str | None, flexible: bool) -> bytes:
    """A string or null."""
    if value is None:
        return b"\0" if flexible else int16(-1)
    raw = value.encode("utf-8", "replace")
    return (uvarint(len(raw) + 1) if flexible else int16(len(raw))) + raw


def array_length(count: int, flexible: bool) -> bytes:
    """The count in front of an array, -1 for a null array."""
    return uvarint(count + 1) if flexible else int32(count)


def tags(flexible: bool) -> bytes:
    """An empty tagged section, or nothing in classic versions."""
    return NO_TAGS if flexible else b""
