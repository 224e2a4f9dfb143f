"""Reading and writing the field types of Kafka messages, classic and flexible."""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from enforcer.wire.kafka.frames import (
    CORRELATION_BYTES,
    TAGS_MAX,
    BadFrame,
    Frame,
    Reason,
    read_uvarint,
    skip_tags,
)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
CORRELATION_END: Final = CORRELATION_BYTES  # where a response body begins after header v0
NO_ID: Final = bytes(16)  # the all-zero topic id: none
UNSUPPORTED_VERSION: Final = 35  # Kafka's error code
NO_TAGS: Final = b"\0"
ROWS_MAX: Final = 100_000
"""Rows of one message that are gone through, such as partitions: more would hold up all other traffic."""
ELEMENT_ROWS: Final = 8
"""What an element that is read field by field counts for: it takes so many times as long as a row."""
STRING: Final = 1
INT32_ARRAY: Final = 4
"""What a row of `Cursor.skip_rows` holds, by the bytes that its length counts."""
TAGS_ROOM: Final = 10_000
"""Tagged fields of one message that are gone through, about 1 µs each; real ones have a handful, or one for
each partition that has a new leader."""

Fields = dict[str, Any]
"""A struct: its fields by Kafka's names."""
Read = Callable[[Frame, int, int], Any]
"""(frame, offset of the body, rows that may be gone through) -> what is wanted."""


class Cursor:
    """A position in a message that moves forward as fields are read.

    Every method raises `BadFrame` when the message ends too early or a length is impossible. Text that is
    not UTF-8 becomes U+FFFD: no such topic name is valid, and the raw bytes are what is passed on.

    Args:
        data: the whole frame.
        offset: where the first field begins.
        flexible: compact strings and arrays, and tagged sections.
    """

    __slots__ = ("data", "flexible", "offset", "room", "tags_room")

    def __init__(self, data: Frame, offset: int, flexible: bool) -> None:
        self.data = data
        self.offset = offset
        self.flexible = flexible
        self.room = ROWS_MAX
        """Rows that may still be gone through."""
        self.tags_room = TAGS_ROOM

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

    def array_length(self) -> int:
        """How many elements follow, -1 for a null array."""
        length = self.uvarint() - 1 if self.flexible else self.int32()
        if length < -1:
            raise BadFrame(Reason.NEGATIVE_LENGTH)
        # Every element takes at least a byte, so a longer claim is a lie that would only cost us time.
        if length > len(self.data) - self.offset:
            raise BadFrame(Reason.TRUNCATED_BODY)
        return length

    def numbers(self) -> tuple[int, ...]:
        """An array of 32-bit numbers; a null array has none."""
        count, start = max(0, self.array_length()), self.offset
        self.skip(_INT32.size * count)
        return struct.unpack_from(f">{count}i", self.data, start)

    def elements(self, rows: int = ELEMENT_ROWS) -> Iterator[int]:
        """Counts through an array whose elements the caller reads; a null array has none.

        Args:
            rows: what each counts for; less where the caller takes a short cut.

        Raises:
            BadFrame: the arrays of this message have too many elements together.
        """
        return iter(range(self._spend(self.array_length(), rows)))

    def _spend(self, count: int, rows: int) -> int:
        count = max(0, count)
        self.room -= count * rows
        if self.room < 0:
            raise BadFrame(Reason.TOO_MANY_ITEMS)
        return count

    def skip_rows(self, *, before: int = 0, parts: tuple[int, ...] = (), after: int = 0) -> int:
        """Moves over an array of rows of one shape, far faster than field by field.

        Returns:
            How many there are; -1: a null array.

        Args:
            before: bytes of fixed-size fields that a row begins with.
            parts: what follows: STRING, or INT32_ARRAY.
            after: bytes of fixed-size fields that follow; a tagged section ends the row.
        """
        data, flexible, count = self.data, self.flexible, self.array_length()
        offset = self.offset
        try:
            for _ in range(self._spend(count, 1)):
                offset += before
                for width in parts:
                    if not flexible:
                        (length,) = (_INT32 if width == INT32_ARRAY else _INT16).unpack_from(data, offset)
                        if length < -1:
                            raise BadFrame(Reason.NEGATIVE_LENGTH)
                        offset += (4 if width == INT32_ARRAY else 2) + width * max(0, length)
                    elif (size := data[offset]) < 0x80:
                        offset += 1 + width * (size - 1) if size else 1
                    else:
                        size, offset = read_uvarint(data, offset)
                        offset += width * (size - 1)
                offset += after
                if flexible:
                    if data[offset] == 0:
                        offset += 1
                    else:
                        self.offset = offset
                        self.skip_tags()
                        offset = self.offset
        except (IndexError, struct.error) as error:
            raise BadFrame(Reason.TRUNCATED_BODY) from error
        self.offset = offset
        self.skip(0)
        return count

    def skip_tags(self) -> None:
        """Moves over a tagged section; does nothing in classic versions."""
        if not self.flexible:
            return
        data, offset = self.data, self.offset
        if offset < len(data) and data[offset] == 0:
            # Nearly always there are none: one zero byte.
            self.offset = offset + 1
            return
        self.offset, self.tags_room = skip_tags_within(data, offset, self.tags_room)


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


def raw_string(data: bytes, offset: int, flexible: bool) -> bytes | None:
    """The string or null at `offset` as it stands there.

    For what is repeated to its sender: what is not UTF-8 would not survive decoding, nor keep its length.
    """
    cursor = Cursor(data, offset, flexible)
    length = cursor.string_length()
    return None if length < 0 else cursor.raw(length)


def array_length(count: int, flexible: bool) -> bytes:
    """The count in front of an array, -1 for a null array."""
    return uvarint(count + 1) if flexible else int32(count)


def tags(flexible: bool) -> bytes:
    """An empty tagged section, or nothing in classic versions."""
    return NO_TAGS if flexible else b""
