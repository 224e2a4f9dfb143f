"""Bodies of Kafka messages by their own definitions: bytes to fields and back, for the few frames hit.

The definitions are Kafka's JSON files, as kafka-python carries them; two newer ones stand in `definitions`.
Each is read when it is first needed. A frame that is changed is written anew from what was read, so what the
broker gets is what was judged. Tagged fields are kept as they came.

Fields of a struct come as a dict, text and ids as bytes, a list of structs of fixed size as `Rows`, which
costs the same for any length until somebody looks into it.
"""

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import orjson

from enforcer.kafka.guard.apis import APIS
from enforcer.kafka.guard.definitions import DEFINITIONS
from enforcer.wire.kafka import fields
from enforcer.wire.kafka.fields import ELEMENT_ROWS, ROWS_MAX, Cursor
from enforcer.wire.kafka.frames import FLEXIBLE_FROM, BadFrame, Reason

ELEMENTS_MAX: Final = ROWS_MAX // ELEMENT_ROWS
"""Structs of an answer that are read one by one, some 3 µs each."""
ASKED_MAX: Final = 4_000
"""The same of a request, whose entries are judged and refused too, some 10 µs each."""

TAGS: Final = "_tags"
"""Where the tagged section of a struct is kept, as it came."""

Fields = dict[str, Any]
_COMMENT: Final = re.compile(r"(?m)^\s*//.*$")
_NUMBERS: Final[Mapping[str, struct.Struct]] = MappingProxyType(
    {
        "bool": struct.Struct(">?"), "int8": struct.Struct(">b"), "int16": struct.Struct(">h"),
        "uint16": struct.Struct(">H"), "int32": struct.Struct(">i"), "uint32": struct.Struct(">I"),
        "int64": struct.Struct(">q"), "float64": struct.Struct(">d"),
    }
)  # fmt: skip


class Field(NamedTuple):
    """How one field is read and written, and what it is where nobody says."""

    name: str
    read: Callable[[Cursor], Any]
    write: Callable[[Any], bytes]
    default: Any
    width: int
    """Bytes, if that is always the same, else 0."""


class Layout:
    """The fields of a struct in one version.

    Args:
        parts: in their order.
        flexible: a tagged section follows.
    """

    def __init__(self, parts: Sequence[Field], flexible: bool) -> None:
        self.parts = tuple(parts)
        self.flexible = flexible
        widths = [part.width for part in parts]
        self.width = sum(widths) if all(widths) else 0

    def read(self, source: Cursor) -> Fields:
        """The struct at the cursor.

        Raises:
            BadFrame: it ends too early, a length in it is impossible, or it is too large to be judged.
        """
        values: Fields = {part.name: part.read(source) for part in self.parts}
        if self.flexible:
            start = source.offset
            source.skip_tags()
            if source.offset > start + 1:
                values[TAGS] = bytes(source.data[start : source.offset])
        return values

    def write(self, values: Mapping[str, Any]) -> bytes:
        """The struct as bytes; a field that is not there is its default."""
        parts = [part.write(values.get(part.name, part.default)) for part in self.parts]
        if self.flexible:
            parts.append(values.get(TAGS, fields.NO_TAGS))
        return b"".join(parts)


class Rows(Sequence[Fields]):
    """Structs of fixed size, kept as the bytes that they came in; read when they are looked at."""

    __slots__ = ("_layout", "_row_bytes", "raw", "size")

    def __init__(self, layout: Layout, raw: bytes, count: int) -> None:
        self._layout = layout
        self.raw = raw
        self.size = count
        self._row_bytes = len(raw) // count if count else 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self.size:
            raise IndexError(index)
        return self._layout.read(Cursor(self.raw, index * self._row_bytes, self._layout.flexible))


@cache
def request_layout(key: int, version: int) -> Layout:
    """The body of a request.

    Raises:
        OSError: there is no definition of it.
    """
    return _compiled(key, version, "request")


@cache
def response_layout(key: int, version: int) -> Layout:
    """The body of a response.

    Raises:
        OSError: there is no definition of it.
    """
    return _compiled(key, version, "response")


def read_body(layout: Layout, frame: bytes, offset: int, elements_max: int = ELEMENTS_MAX) -> Fields:
    """A body. What stands behind it is not read, so it is not passed on either; brokers ignore it, too.

    Raises:
        BadFrame: it ends too early, a length in it is impossible, or it is too large to be judged.
    """
    source = Cursor(frame, offset, layout.flexible)
    source.room = elements_max * ELEMENT_ROWS
    return layout.read(source)


def newest(key: int) -> int:
    """The last version that the definitions of an API have, the lesser of request and response."""
    return min(_span(_definition(key, kind)["validVersions"])[1] for kind in ("request", "response"))


def _compiled(key: int, version: int, kind: str) -> Layout:
    definition = _definition(key, kind)
    common = {part["name"]: part["fields"] for part in definition.get("commonStructs", ())}
    flexible = version >= FLEXIBLE_FROM[key]
    return _layout(definition["fields"], common, version, flexible)


@cache
def _definition(key: int, kind: str) -> Mapping[str, Any]:
    found = DEFINITIONS.get((key, kind))
    if found is not None:
        return found
    # To import kafka-python for a few files would cost the proxy a fifth of a second and its memory.
    package = find_spec("kafka")
    if package is None or package.origin is None:
        raise FileNotFoundError("kafka-python is not installed")
    folder = Path(package.origin).parent / "protocol" / "schemas" / "resources"
    text = (folder / f"{APIS[key].name}{kind.capitalize()}.json").read_text()
    read: Mapping[str, Any] = orjson.loads(_COMMENT.sub("", text))
    return read


def _span(text: str) -> tuple[int, int]:
    """`3+`, `0-12` or `7` as first and last version; `none` as an empty span."""
    if text == "none":
        return 0, -1
    first, _, last = text.partition("-")
    if first.endswith("+"):
        return int(first[:-1]), (1 << 15) - 1
    return int(first), int(last or first)


def _holds(text: str, version: int) -> bool:
    first, last = _span(text)
    return first <= version <= last


def _layout(
    definitions: Sequence[Mapping[str, Any]], common: Mapping[str, Any], version: int, flexible: bool
) -> Layout:
    parts = [
        _field(definition, common, version, flexible)
        for definition in definitions
        if _holds(definition["versions"], version)
        and not _holds(definition.get("taggedVersions", "none"), version)
    ]
    return Layout(parts, flexible)


def _field(definition: Mapping[str, Any], common: Mapping[str, Any], version: int, flexible: bool) -> Field:
    name, kind = definition["name"], definition["type"]
    nullable = _holds(definition.get("nullableVersions", "none"), version)
    number = _NUMBERS.get(kind)
    if number is not None:
        return Field(name, _number_reader(number), number.pack, _number(definition, kind), number.size)
    if kind == "uuid":
        size = len(fields.NO_ID)
        return Field(name, lambda source: source.raw(size), bytes, fields.NO_ID, size)
    if kind == "string":
        default = None if nullable else b""
        return Field(name, _text_reader(nullable), _text_writer(flexible, nullable), default, 0)
    if kind in ("bytes", "records"):
        return Field(name, _bytes_reader(nullable), _bytes_writer(flexible), None if nullable else b"", 0)
    item = kind.removeprefix("[]")
    if item in _NUMBERS:
        return Field(name, _numbers_reader(item, nullable), _numbers_writer(item, flexible), (), 0)
    if item == "string":
        return Field(name, _texts_reader(nullable), _texts_writer(flexible), (), 0)
    layout = _layout(definition.get("fields") or common[item], common, version, flexible)
    if kind == item:
        return Field(name, _struct_reader(layout, nullable), _struct_writer(layout, nullable), None, 0)
    return Field(name, _list_reader(layout, nullable), _list_writer(layout, flexible), (), 0)


def _number(definition: Mapping[str, Any], kind: str) -> Any:
    said = str(definition.get("default", "0"))
    if kind == "bool":
        return said.lower() == "true"
    return float(said) if kind == "float64" else int(said, 0)


def _number_reader(number: struct.Struct) -> Callable[[Cursor], Any]:
    def read(source: Cursor) -> Any:
        start = source.offset
        source.skip(number.size)
        return number.unpack_from(source.data, start)[0]

    return read


def _some(length: int, nullable: bool) -> bool:
    """Whether there is a value.

    Raises:
        BadFrame: there is none where one must be.
    """
    if length < 0 and not nullable:
        raise BadFrame(Reason.UNEXPECTED_NULL)
    return length >= 0


def _take(source: Cursor, count: int) -> None:
    """Some structs are about to be read.

    Raises:
        BadFrame: together with those before they are too many.
    """
    source.room -= count * ELEMENT_ROWS
    if source.room < 0:
        raise BadFrame(Reason.TOO_MANY_ITEMS)


def _text_reader(nullable: bool) -> Callable[[Cursor], bytes | None]:
    def read(source: Cursor) -> bytes | None:
        length = source.string_length()
        return source.raw(length) if _some(length, nullable) else None

    return read


def _text_writer(flexible: bool, nullable: bool) -> Callable[[bytes | None], bytes]:
    def write(value: bytes | None) -> bytes:
        value = value if nullable else value or b""
        if value is None:
            return b"\0" if flexible else fields.int16(-1)
        return (fields.uvarint(len(value) + 1) if flexible else fields.int16(len(value))) + value

    return write


def _bytes_reader(nullable: bool) -> Callable[[Cursor], bytes | None]:
    def read(source: Cursor) -> bytes | None:
        value = source.nullable_bytes()
        return value if _some(-1 if value is None else 0, nullable) else None

    return read


def _bytes_writer(flexible: bool) -> Callable[[bytes | None], bytes]:
    def write(value: bytes | None) -> bytes:
        return fields.array_length(-1 if value is None else len(value), flexible) + (value or b"")

    return write


def _numbers_reader(kind: str, nullable: bool) -> Callable[[Cursor], tuple[Any, ...] | None]:
    number = _NUMBERS[kind]

    def read(source: Cursor) -> tuple[Any, ...] | None:
        count = source.array_length()
        if not _some(count, nullable):
            return None
        start = source.offset
        source.skip(count * number.size)
        return struct.unpack_from(f">{count}{number.format[1:]}", source.data, start)

    return read


def _numbers_writer(kind: str, flexible: bool) -> Callable[[Sequence[Any] | None], bytes]:
    code = _NUMBERS[kind].format[1:]

    def write(values: Sequence[Any] | None) -> bytes:
        if values is None:
            return fields.array_length(-1, flexible)
        return fields.array_length(len(values), flexible) + struct.pack(f">{len(values)}{code}", *values)

    return write


def _texts_reader(nullable: bool) -> Callable[[Cursor], list[bytes | None] | None]:
    read_one = _text_reader(False)

    def read(source: Cursor) -> list[bytes | None] | None:
        count = source.array_length()
        if not _some(count, nullable):
            return None
        _take(source, count)
        return [read_one(source) for _ in range(count)]

    return read


def _texts_writer(flexible: bool) -> Callable[[Sequence[bytes | None] | None], bytes]:
    write_one = _text_writer(flexible, False)

    def write(values: Sequence[bytes | None] | None) -> bytes:
        if values is None:
            return fields.array_length(-1, flexible)
        return b"".join((fields.array_length(len(values), flexible), *map(write_one, values)))

    return write


def _struct_reader(layout: Layout, nullable: bool) -> Callable[[Cursor], Fields | None]:
    def read(source: Cursor) -> Fields | None:
        # A struct that may be null has a byte before it that says so.
        return layout.read(source) if _some(source.int8() if nullable else 0, nullable) else None

    return read


def _struct_writer(layout: Layout, nullable: bool) -> Callable[[Fields | None], bytes]:
    def write(value: Fields | None) -> bytes:
        if value is None and nullable:
            return b"\xff"
        return (b"\1" if nullable else b"") + layout.write(value or {})

    return write


def _list_reader(layout: Layout, nullable: bool) -> Callable[[Cursor], Sequence[Fields] | None]:
    def read(source: Cursor) -> Sequence[Fields] | None:
        count = source.array_length()
        if not _some(count, nullable):
            return None
        row_bytes = layout.width + layout.flexible
        start, stop = source.offset, source.offset + count * row_bytes
        # Without a tag the last byte of each is a zero.
        if layout.width and (
            not layout.flexible or bytes(source.data[start + layout.width : stop : row_bytes]) == bytes(count)
        ):
            source.skip(stop - start)
            return Rows(layout, bytes(source.data[start:stop]), count)
        _take(source, count)
        return [layout.read(source) for _ in range(count)]

    return read


def _list_writer(layout: Layout, flexible: bool) -> Callable[[Sequence[Fields] | None], bytes]:
    def write(values: Sequence[Fields] | None) -> bytes:
        if values is None:
            return fields.array_length(-1, flexible)
        count = fields.array_length(len(values), flexible)
        if isinstance(values, Rows):
            return count + values.raw
        return b"".join((count, *map(layout.write, values)))

    return write
