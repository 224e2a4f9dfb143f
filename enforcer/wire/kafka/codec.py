"""Bodies of Kafka messages by Kafka's own definitions: readers of a few fields, and whole bodies as dicts.

What is read is said as in `compiler`, and compiled for each version when one is first met (a millisecond or
two). A body that is changed is written anew from what was read, tagged fields as they came, so what the
broker gets is what was judged. Fields of a struct come as a dict, text and ids as bytes, a list of structs of
fixed size as `Rows`, which costs the same for any length until somebody looks into it. And the throttle time
of any answer, which is put in place.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from enforcer.wire.kafka import frames
from enforcer.wire.kafka.compiler import TAGS, Source, parse
from enforcer.wire.kafka.definitions import CODES, Field, body, newest
from enforcer.wire.kafka.frames import (
    CORRELATION_BYTES,
    ELEMENT_ROWS,
    PRODUCE,
    ROWS_MAX,
    BadFrame,
    Fields,
    Frame,
    Read,
    Reason,
    RequestHeader,
    Rows,
    is_flexible,
    response_body_offset,
)
from streaming.contract.errors import WeirError

ELEMENTS_MAX: Final = ROWS_MAX // ELEMENT_ROWS
"""Structs of an answer that are read one by one, about a microsecond each."""
ASKED_MAX: Final = 4_000
"""The same of a request, whose entries are judged and refused too, some 10 µs each."""
_NO_TYPES: Final[Mapping[str, type[tuple[Any, ...]]]] = MappingProxyType({})
_Put = Callable[[Any], bytes]
_THROTTLE_BYTES: Final = 4


_READERS: Final[list["Reader"]] = []


def load() -> None:
    """Read the definitions of all that is read, before clients wait for them (some 20 ms).

    Raises:
        WeirError: they are not there.
    """
    try:
        for reader in _READERS:
            reader.load()
    except OSError as error:
        raise WeirError(f"Kafka's definitions of its messages, as kafka-python has them: {error}") from error


class Reader:
    """Reads some fields of the requests or responses of an API, of all its versions.

    Args:
        key: of the API.
        kind: request or response, or a part of it, as `definitions.body` says.
        wanted: which fields, as `compiler` says.
        rows: what an array's element counts for of ROWS_MAX, if something of it is wanted.
        types: field -> the named tuple that is made of each of its structs.
    """

    def __init__(
        self,
        key: int,
        kind: str,
        wanted: str,
        rows: int = ELEMENT_ROWS,
        types: Mapping[str, type[tuple[Any, ...]]] = _NO_TYPES,
    ) -> None:
        self._key = key
        self._kind = kind
        self._wanted = wanted
        self._rows = rows
        self._types = types
        self._compiled: dict[int, Read] = {}
        _READERS.append(self)

    def __call__(self, frame: Frame, version: int, offset: int, room: int = ROWS_MAX) -> Any:
        """What is wanted of the body at an offset.

        Raises:
            BadFrame: it ends too early, a length in it is impossible, it has too many items, or there is no
                such version.
        """
        read = self._compiled.get(version)
        if read is None:
            if not 0 <= version <= newest(self._key):
                # Who waits may name any: a reader would be made, and kept, for each.
                raise BadFrame(Reason.BAD_VALUE)
            source, value = self.source(version)
            read = self._compiled[version] = source.compiled(value)
        return read(frame, offset, room)

    def load(self) -> None:
        """Read its definition.

        Raises:
            OSError: there is none.
        """
        body(self._key, newest(self._key), self._kind.partition(".")[0])

    def source(self, version: int) -> tuple[Source, str]:
        """The source for a version, and the expression of what is wanted."""
        source = Source(is_flexible(self._key, version), self._rows, self._types)
        wants = parse(self._wanted)
        return source, source.struct(body(self._key, version, self._kind), wants, whole=False)


def asked(key: int, wanted: str, room: int = ROWS_MAX, **more: Any) -> Callable[[Frame, RequestHeader], Any]:
    """A reader of requests; see `Reader`."""
    reader = Reader(key, "request", wanted, **more)
    return lambda frame, header: reader(frame, header.api_version, header.body_offset, room)


def told(key: int, wanted: str, room: int = ROWS_MAX, **more: Any) -> Callable[[Frame, int], Any]:
    """A reader of responses, given with their version; see `Reader`."""
    reader = Reader(key, "response", wanted, **more)
    return lambda frame, version: reader(frame, version, response_body_offset(key, version, frame), room)


class Layout:
    """A whole body in one version.

    Args:
        parts: its fields.
        flexible: compact lengths, and tagged sections.
    """

    def __init__(self, parts: Sequence[Field], flexible: bool) -> None:
        source = Source(flexible, ELEMENT_ROWS, _NO_TYPES)
        self._read = source.compiled(source.struct(parts, None))
        self.write = _struct_writer(parts, flexible)
        """A body as bytes; a field that is not there is its default."""

    def read(self, frame: Frame, offset: int, elements_max: int = ELEMENTS_MAX) -> Fields:
        """A body. What stands behind it is not read, so it is not passed on either; brokers ignore it, too.

        Raises:
            BadFrame: it ends too early, a length in it is impossible, or it is too large to be judged.
        """
        values: Fields = self._read(frame, offset, elements_max * ELEMENT_ROWS)
        return values


@cache
def layout(key: int, version: int, kind: str) -> Layout:
    """The layout of a body, or of a part of one, as `definitions.body` says.

    Raises:
        OSError: there is no definition of it.
    """
    return Layout(body(key, version, kind), is_flexible(key, version))


def request_layout(key: int, version: int) -> Layout:
    """The body of a request."""
    return layout(key, version, "request")


def response_layout(key: int, version: int) -> Layout:
    """The body of a response."""
    return layout(key, version, "response")


def answer(header: RequestHeader, values: Fields) -> bytes:
    """A whole response of our own to a request."""
    flexible = is_flexible(header.api_key, header.api_version)
    written = response_layout(header.api_key, header.api_version).write(values)
    return frames.int32(header.correlation_id) + frames.tags(flexible) + written


def rewritten(key: int, version: int, response: bytes, change: Callable[[Fields], None]) -> bytes:
    """A response with another body: what `change` makes of it.

    Raises:
        BadFrame: it cannot be read.
    """
    offset = response_body_offset(key, version, response)
    layout = response_layout(key, version)
    body = layout.read(response, offset)
    change(body)
    return response[:offset] + layout.write(body)


def spliced(frame: bytes, spans: Sequence[tuple[int, int, bytes]]) -> bytes:
    """A frame with other bytes in some places: (start, end, what stands there now), in ascending order."""
    parts: list[bytes] = []
    copied = 0
    for start, end, value in spans:
        parts += (frame[copied:start], value)
        copied = end
    return b"".join((*parts, frame[copied:])) if parts else frame


@cache
def _place(api_key: int) -> Callable[[Frame, int], Any]:
    return told(api_key, "at:ThrottleTimeMs")


def throttle_offset(api_key: int, version: int, response: Frame) -> int:
    """Where throttle_time_ms stands in a response; 0 if this version has none.

    In Produce it stands behind the answers per partition. Classic versions end with it. Flexible ones end
    with it and a tagged section, which holds the addresses of new leaders when there are leader errors; only
    then the whole body must be walked.

    Raises:
        BadFrame: the response ends before the field.
    """
    if api_key != PRODUCE or version < 1:
        offset: int = _place(api_key)(response, version)
        return offset
    if not is_flexible(PRODUCE, version):
        offset = len(response) - _THROTTLE_BYTES
    elif ends_without_tags(response):
        offset = len(response) - _THROTTLE_BYTES - 1
    else:
        offset = _place(PRODUCE)(response, version)
    if offset < CORRELATION_BYTES:
        raise BadFrame(Reason.TRUNCATED_BODY)
    return offset


def patch_throttle(api_key: int, version: int, response: Frame, throttle_ms: int) -> bytes:
    """The response with throttle_time_ms at least `throttle_ms`; what is larger there stays.

    A response without the field, or one that says as much already, comes back as it is.

    Raises:
        BadFrame: the response ends before the field.
    """
    if throttle_ms <= 0:
        return bytes(response)
    offset = throttle_offset(api_key, version, response)
    if not offset:
        return bytes(response)
    end = offset + _THROTTLE_BYTES
    if int.from_bytes(response[offset:end], "big", signed=True) >= throttle_ms:
        return bytes(response)
    patched = bytearray(response)
    patched[offset:end] = frames.int32(throttle_ms)
    return bytes(patched)


def ends_without_tags(response: Frame) -> bool:
    """Whether a flexible Produce response certainly ends in `throttle, no tags`, from its last bytes alone.

    Without tags it ends with the empty sections of the last partition and topic, the throttle time and a
    zero. With the tag of new leaders the seventh byte from the end lies in a host, a port or a rack; the one
    combination that looks alike (rack of one letter) reads as a throttle time above 2^24 ms, 4.6 hours.
    """
    return len(response) > 7 and response[-1] == 0 and response[-7:-4] == b"\0\0\0"


def _struct_writer(parts: Sequence[Field], flexible: bool) -> Callable[[Mapping[str, Any]], bytes]:
    puts = [(part.name, part.default, _writer(part, flexible)) for part in parts if part.present]

    def write(values: Mapping[str, Any]) -> bytes:
        written = [put(values.get(name, default)) for name, default, put in puts]
        if flexible:
            written.append(values.get(TAGS, frames.NO_TAGS))
        return b"".join(written)

    return write


def _writer(part: Field, flexible: bool) -> _Put:
    kind = part.kind
    if kind == "uuid":
        return bytes
    if kind in CODES:
        return struct.Struct(">" + CODES[kind]).pack
    if kind in ("string", "bytes"):
        return _text_writer(flexible, part.nullable, frames.int16 if kind == "string" else frames.int32)
    if kind == "struct":
        write = _struct_writer(part.fields, flexible)
        if part.nullable:
            # A struct that may be null has a byte before it that says so.
            return lambda value: b"\xff" if value is None else b"\1" + write(value)
        return lambda value: write(value or {})
    return _array_writer(part, flexible)


def _text_writer(flexible: bool, nullable: bool, length: Callable[[int], bytes] = frames.int16) -> _Put:
    def write(value: bytes | None) -> bytes:
        if value is None and nullable:
            return b"\0" if flexible else length(-1)
        value = value or b""
        return (frames.uvarint(len(value) + 1) if flexible else length(len(value))) + value

    return write


def _array_writer(part: Field, flexible: bool) -> _Put:
    kind = part.kind[2:]
    put = _struct_writer(part.fields, flexible) if part.fields else None
    put = put or (_text_writer(flexible, False) if kind == "string" else None)

    def write(values: Sequence[Any] | None) -> bytes:
        if values is None:
            return frames.array_length(-1, flexible)
        count = frames.array_length(len(values), flexible)
        if isinstance(values, Rows):
            return count + values.raw
        if put is None:
            return count + struct.pack(f">{len(values)}{CODES[kind]}", *values)
        return b"".join((count, *map(put, values)))

    return write
