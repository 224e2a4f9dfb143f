"""Reading and writing the field types of Kafka messages, classic and flexible."""

import struct
from collections.abc import Iterator
from typing import Final

from enforcer.kafka.protocol.frames import CORRELATION_BYTES, BadFrame, Reason, read_uvarint, skip_tags

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
CORRELATION_END: Final = CORRELATION_BYTES  # where a response body begins after header v0
NO_ID: Final = bytes(16)  # the all-zero topic id: none
UNSUPPORTED_VERSION: Final = 35  # Kafka's error code
NO_TAGS: Final = b"\0"


class Cursor:
    """A position in a message that moves forward as fields are read.

    Every method raises `BadFrame` when the message ends too early or a length is impossible. Text that is
    not UTF-8 becomes U+FFFD: no such topic name is valid, and the raw bytes are what is passed on.

    Args:
        data: the whole frame.
        offset: where the first field begins.
        flexible: compact strings and arrays, and tagged sections.
    """

    __slots__ = ("data", "flexible", "offset")

    def __init__(self, data: bytes | bytearray, offset: int, flexible: bool) -> None:
        self.data = data
        self.offset = offset
        self.flexible = flexible

    def skip(self, count: int) -> None:
        """Moves over `count` bytes of fixed-size fields."""
        end = self.offset + count
        if end > len(self.data):
            raise BadFrame(Reason.TRUNCATED_BODY)
        self.offset = end

    def raw(self, count: int) -> bytes:
        """The next `count` bytes."""
        start = self.offset
        self.skip(count)
        return bytes(self.data[start : self.offset])

    def int8(self) -> int:
        """A signed byte."""
        return int.from_bytes(self.raw(1), "big", signed=True)

    def int16(self) -> int:
        """A signed 16-bit number."""
        start = self.offset
        self.skip(2)
        return int(_INT16.unpack_from(self.data, start)[0])

    def int32(self) -> int:
        """A signed 32-bit number."""
        start = self.offset
        self.skip(4)
        return int(_INT32.unpack_from(self.data, start)[0])

    def uvarint(self) -> int:
        """An unsigned varint."""
        value, self.offset = read_uvarint(self.data, self.offset)
        return value

    def string_length(self) -> int:
        """The length in front of a string, -1 for null."""
        length = self.uvarint() - 1 if self.flexible else self.int16()
        if length < -1:
            raise BadFrame(Reason.NEGATIVE_LENGTH)
        return length

    def nullable_string(self) -> str | None:
        """A string or null."""
        length = self.string_length()
        return None if length < 0 else self.raw(length).decode("utf-8", "replace")

    def string(self) -> str:
        """A string that must not be null."""
        value = self.nullable_string()
        if value is None:
            raise BadFrame(Reason.UNEXPECTED_NULL)
        return value

    def skip_string(self) -> None:
        """Moves over a string or null."""
        self.skip(max(0, self.string_length()))

    def nullable_bytes(self) -> bytes | None:
        """A byte string with a 32-bit (classic) or varint (compact) length, or null."""
        length = self.uvarint() - 1 if self.flexible else self.int32()
        if length < -1:
            raise BadFrame(Reason.NEGATIVE_LENGTH)
        return None if length < 0 else self.raw(length)

    def skip_bytes(self) -> None:
        """Moves over a byte string without copying it: record batches may be megabytes."""
        length = self.uvarint() - 1 if self.flexible else self.int32()
        if length < -1:
            raise BadFrame(Reason.NEGATIVE_LENGTH)
        self.skip(max(0, length))

    def array_length(self) -> int:
        """How many elements follow, -1 for a null array."""
        length = self.uvarint() - 1 if self.flexible else self.int32()
        if length < -1:
            raise BadFrame(Reason.NEGATIVE_LENGTH)
        # Every element takes at least a byte, so a longer claim is a lie that would only cost us time.
        if length > len(self.data) - self.offset:
            raise BadFrame(Reason.TRUNCATED_BODY)
        return length

    def elements(self) -> Iterator[int]:
        """Counts through an array whose elements the caller reads; a null array has none."""
        return iter(range(max(0, self.array_length())))

    def skip_int32_array(self) -> None:
        """Moves over an array of 32-bit numbers, such as replica ids."""
        self.skip(4 * max(0, self.array_length()))

    def skip_tags(self) -> None:
        """Moves over a tagged section; does nothing in classic versions."""
        if self.flexible:
            self.offset = skip_tags(self.data, self.offset)


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
