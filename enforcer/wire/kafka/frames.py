"""Kafka frames, headers and types of fields: bytes in, bytes out, no sockets (docs/protocol_notes.md 3.1).

A *frame* here is the payload without its 4-byte length. Everything a peer can send either parses or raises
`BadFrame`, whose reason is one of a closed set, so it can label a metric.
"""

import hashlib
import struct
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from streaming.contract.errors import WeirError


class Reason(StrEnum):
    """Why bytes are not a Kafka message; the label of the bad-frame counter."""

    NEGATIVE_LENGTH = "negative_length"
    TOO_LARGE = "too_large"
    TRUNCATED_HEADER = "truncated_header"
    TRUNCATED_BODY = "truncated_body"
    BAD_VARINT = "bad_varint"
    UNEXPECTED_NULL = "unexpected_null"
    BAD_VALUE = "bad_value"
    TOO_MANY_ITEMS = "too_many_items"
    INTERNAL = "internal"


class BadFrame(WeirError):
    """The peer sent something that cannot be a Kafka message; its connection must end.

    Args:
        reason: the closed-set cause.
    """

    def __init__(self, reason: Reason) -> None:
        super().__init__(f"bad Kafka frame: {reason.value}")
        self.reason = reason


class TooManyRows(BadFrame):
    """A message has more rows than are gone through; they may all be right."""

    def __init__(self) -> None:
        super().__init__(Reason.TOO_MANY_ITEMS)


Frame = bytes | bytearray
"""A message without its length."""
Fields = dict[str, Any]
"""A struct: its fields by Kafka's names."""
Read = Callable[[Frame, int, int], Any]
"""(frame, offset of the body, rows that may be gone through) -> what is wanted."""

LENGTH_BYTES: Final = 4
CORRELATION_BYTES: Final = 4
# Below it a copy costs less than a view.
_COPIED_BYTES: Final = 16_384
LENGTH: Final = struct.Struct(">i")
HEAD: Final = struct.Struct(">ihhih")
"""What a request begins with: its length, key, version, correlation id, the length of its client id."""
_INT16 = struct.Struct(">h")
# key, version, correlation id, length of the client id: the part that every request header shares
_HEADER = struct.Struct(">hhih")
_MAX_VARINT_BYTES: Final = 5
TOPIC_NAME_MAX: Final = 249
"""Kafka's limit. A request may name what it likes; what is longer is no topic, and is refused."""
CLIENT_ID_MAX: Final = 256
"""Longer client-ids are known by a digest, bytes."""
_KEPT_OF_LONG: Final = 64
TAGS_MAX: Final = 64
"""Tagged fields in one section; Kafka 4.1 has at most four, and more would only cost us time."""
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


class Unread:
    """Bytes of one direction of a connection that were not handled yet, read where they lie.

    `data[pos:]` begins with a frame's length. A run of frames that need no change leaves as one slice, and a
    frame that comes in many pieces is only appended to until it is whole.
    """

    __slots__ = ("_own", "data", "need", "pos")

    def __init__(self) -> None:
        self.data: bytes | bytearray = b""
        self.pos = 0
        self.need = 0
        """Bytes that the frame at the front needs to be whole; 0 where that is not known."""
        # Whether `data` may be changed: no slice of it has left.
        self._own = False

    @property
    def left_bytes(self) -> int:
        """Bytes not handled."""
        return len(self.data) - self.pos

    def add(self, data: bytes) -> bool:
        """Takes what the socket gave; False while the frame at the front still needs more."""
        if self.pos == len(self.data):
            self.data, self.pos, self._own = data, 0, False
            return True
        if self._own and isinstance(self.data, bytearray):
            del self.data[: self.pos]
        else:
            self.data = bytearray(memoryview(self.data)[self.pos :])
            self._own = True
        self.pos = 0
        self.data += data
        return len(self.data) >= self.need

    def copy(self, start: int, stop: int) -> bytes:
        """Some of the bytes, to be read and kept."""
        data = self.data
        return data[start:stop] if isinstance(data, bytes) else bytes(memoryview(data)[start:stop])

    def slice(self, start: int, stop: int) -> bytes | bytearray | memoryview:
        """Some of the bytes, not copied where that is dear."""
        data = self.data
        if stop - start == len(data):
            self._own = False
            return data
        if stop - start <= _COPIED_BYTES:
            return data[start:stop]
        self._own = False
        return memoryview(data)[start:stop]


# First version whose request has header v2 and whose response has header v1 (Kafka 4.1, class ApiKeys).
# Keys 4 to 7 left Kafka in 4.0 and stay for older brokers. NEVER marks APIs without a flexible version.
NEVER: Final = 1 << 15
FLEXIBLE_FROM: Final[dict[int, int]] = {
    0: 9, 1: 12, 2: 6, 3: 9, 4: 4, 5: 2, 6: 6, 7: 3, 8: 8, 9: 6, 10: 3, 11: 6, 12: 4, 13: 4, 14: 4, 15: 5,
    16: 3, 17: NEVER, 18: 3, 19: 5, 20: 4, 21: 2, 22: 2, 23: 4, 24: 3, 25: 3, 26: 3, 27: 1, 28: 3, 29: 2,
    30: 2, 31: 2, 32: 4, 33: 2, 34: 2, 35: 2, 36: 2, 37: 2, 38: 2, 39: 2, 40: 2, 41: 2, 42: 2, 43: 2, 44: 1,
    45: 0, 46: 0, 47: NEVER, 48: 1, 49: 1, 50: 0, 51: 0, 52: 0, 53: 1, 54: 1,
    **dict.fromkeys(range(55, 93), 0),
}  # fmt: skip

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3
FIND_COORDINATOR: Final = 10
HEARTBEAT: Final = 12
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
SASL_AUTHENTICATE: Final = 36
CREATE_PARTITIONS: Final = 37
DESCRIBE_CLUSTER: Final = 60
SHARE_FETCH: Final = 78
SHARE_ACKNOWLEDGE: Final = 79
STREAMS_HEARTBEAT: Final = 88
STREAMS_DESCRIBE: Final = 89
SASL_KEYS: Final = frozenset({SASL_HANDSHAKE, SASL_AUTHENTICATE})


def is_flexible(api_key: int, version: int) -> bool:
    """Whether this version uses compact fields and tagged sections; unknown keys count as not flexible."""
    return version >= FLEXIBLE_FROM.get(api_key, NEVER)


class RequestHeader(NamedTuple):
    """What every request begins with. A tuple, not a dataclass: one is built per request passed on.

    Attributes:
        api_key: which request.
        api_version: its version.
        correlation_id: number that the response repeats.
        client_id: None if absent; see `client_name`.
        body_offset: where the body begins in the frame.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def client_name(client_id: bytes) -> str:
    """A client-id as rules, tables and events know it.

    Bytes that are not UTF-8 become U+FFFD, as in the Java broker. One of more than CLIENT_ID_MAX bytes, which
    may have 32,767 and would be kept in many places, is known by its beginning and a digest.
    """
    if len(client_id) <= CLIENT_ID_MAX:
        return client_id.decode("utf-8", "replace")
    digest = hashlib.blake2b(client_id, digest_size=16).hexdigest()
    return f"{client_id[:_KEPT_OF_LONG].decode('utf-8', 'replace')}~{digest}"


def parse_header(frame: bytes) -> RequestHeader:
    """Reads the request header, v1 or v2 by the API's version.

    Raises:
        BadFrame: the frame ends inside the header, or a length in it is impossible.
    """
    try:
        key, version, correlation, length = _HEADER.unpack_from(frame)
    except struct.error as error:
        raise BadFrame(Reason.TRUNCATED_HEADER) from error
    offset = _HEADER.size
    client_id = None
    if length >= 0:
        raw = frame[offset : offset + length]
        if len(raw) < length:
            raise BadFrame(Reason.TRUNCATED_HEADER)
        client_id = client_name(raw)
        offset += length
    elif length != -1:
        raise BadFrame(Reason.NEGATIVE_LENGTH)
    if version >= FLEXIBLE_FROM.get(key, NEVER):
        if offset >= len(frame):
            raise BadFrame(Reason.TRUNCATED_HEADER)
        # Nearly always there are no tags: one zero byte.
        offset = offset + 1 if frame[offset] == 0 else skip_tags(frame, offset)
    return RequestHeader(key, version, correlation, client_id, offset)


def client_id_field(frame: bytes) -> bytes:
    """The client id of a request as it came, its length included: what is not UTF-8 would else grow.

    Args:
        frame: a request whose header was parsed.
    """
    (length,) = _INT16.unpack_from(frame, _HEADER.size - _INT16.size)
    return frame[_HEADER.size - _INT16.size : _HEADER.size + max(0, int(length))]


def response_body_offset(api_key: int, version: int, response: Frame) -> int:
    """Where the body of a response begins: after header v0, or v1 with its tags.

    ApiVersions always answers with header v0, since the client cannot know yet what the broker understands.

    Raises:
        BadFrame: the response ends inside its header.
    """
    if len(response) < CORRELATION_BYTES:
        raise BadFrame(Reason.TRUNCATED_HEADER)
    if api_key == API_VERSIONS or not is_flexible(api_key, version):
        return CORRELATION_BYTES
    return skip_tags(response, CORRELATION_BYTES)


def read_uvarint(data: Frame, offset: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits and the offset after it.

    Raises:
        BadFrame: it runs off the end or is longer than five bytes.
    """
    value = shift = 0
    for index in range(offset, offset + _MAX_VARINT_BYTES):
        if index >= len(data):
            raise BadFrame(Reason.TRUNCATED_BODY)
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, index + 1
        shift += 7
    raise BadFrame(Reason.BAD_VARINT)


def skip_tags(data: Frame, offset: int) -> int:
    """The offset after the tagged section that begins at `offset`.

    Raises:
        BadFrame: the section runs off the end or has more than TAGS_MAX fields.
    """
    ends = (end for *_, end in tagged_fields(data, offset))
    return max(ends, default=read_uvarint(data, offset)[1])


def tagged_fields(data: Frame, offset: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of a tagged section: number, where the length stands, where the content begins and ends.

    Raises:
        BadFrame: as `skip_tags`.
    """
    count, offset = read_uvarint(data, offset)
    if count > TAGS_MAX:
        raise BadFrame(Reason.TOO_MANY_ITEMS)
    for _ in range(count):
        tag, at = read_uvarint(data, offset)
        size, start = read_uvarint(data, at)
        offset = start + size
        if offset > len(data):
            raise BadFrame(Reason.TRUNCATED_BODY)
        yield tag, at, start, offset


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
    return LENGTH.pack(value)


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
