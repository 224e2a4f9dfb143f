"""Where the fields of a Kafka message lie, by Kafka's own schemas as kafka-python brings them, else as ours.

What the fuzzer changes it finds here; the product's own readers have no part in it.
"""

import re
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from kafka.protocol.schemas.load_json import load_json

from enforcer.wire.kafka.definitions import DEFINITIONS, NAMES
from enforcer.wire.kafka.frames import is_flexible
from streaming.kafka_io import messages

_FIXED = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "float64": 8,
    "uuid": 16,
}  # fmt: skip
HEAD_BYTES = 8
"""API key, version and correlation id of a request."""
_API_VERSIONS = 18


class _End(Exception):
    """The message is not as its schema says."""


@dataclass(frozen=True, slots=True)
class Text:
    """A string, a byte string or records: its length in front of it.

    Attributes:
        start: of the length.
        body: of the content.
        end: after it.
        kind: classic16, classic32 or compact.
    """

    start: int
    body: int
    end: int
    kind: str


@dataclass(frozen=True, slots=True)
class Items:
    """An array.

    Attributes:
        start: of the count.
        spans: (start, end) of each item.
        end: after the last item.
        kind: classic32 or compact.
    """

    start: int
    spans: tuple[tuple[int, int], ...]
    end: int
    kind: str

    @property
    def body(self) -> int:
        """Where the items begin."""
        return self.spans[0][0] if self.spans else self.end


@dataclass(slots=True)
class Layout:
    """Where things are in one message.

    Attributes:
        numbers: (start, end) of fields of fixed size.
        texts: strings and the like.
        arrays: arrays, also those within others.
        tags: starts of tagged sections that are empty.
        end: how far the message was read.
    """

    numbers: list[tuple[int, int]] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)
    arrays: list[Items] = field(default_factory=list)
    tags: list[int] = field(default_factory=list)
    end: int = 0


def layout_of(key: int, version: int, data: bytes, *, answer: bool) -> Layout:
    """The fields of a request or a response; as far as its schema is known and fits."""
    walk = _Walk(data, version, is_flexible(key, version))
    try:
        walk.head(key, answer)
        schema = _schema(key, answer)
        if schema is not None:
            walk.fields(schema["fields"])
            walk.tag_section()
    except (_End, IndexError):
        pass
    walk.found.end = min(walk.at, len(data))
    return walk.found


@cache
def _schema(key: int, answer: bool) -> Any:
    kind = "Response" if answer else "Request"
    if (own := DEFINITIONS.get((key, kind.lower()))) is not None:
        return own
    for package in (messages, None):
        with suppress(IndexError, FileNotFoundError):
            return load_json(NAMES[key] + kind, package)
    return None


@cache
def _within(versions: str, version: int) -> bool:
    if versions == "none":
        return False
    found = re.fullmatch(r"(\d+)(\+|-(\d+))?", versions)
    assert found is not None, versions
    low, more, high = int(found[1]), found[2], found[3]
    return version >= low and (more == "+" or version <= int(high or low))


class _Walk:
    def __init__(self, data: bytes, version: int, flexible: bool) -> None:
        self.data, self.version, self.flexible, self.at = data, version, flexible, 0
        self.found = Layout()

    def head(self, key: int, answer: bool) -> None:
        """Correlation id and, of a request, what else stands before its body."""
        self._number(4 if answer else 2)
        if not answer:
            self._number(2)
            self._number(4)
            self._text(compact=False, wide=False)
        if self.flexible and not (answer and key == _API_VERSIONS):
            self.tag_section()

    def fields(self, fields: list[dict[str, Any]]) -> None:
        """The fields of a struct that this version has."""
        for one in fields:
            if _within(one["versions"], self.version) and "tag" not in one:
                self._field(one["type"], one)

    def tag_section(self) -> None:
        """What ends each struct of a flexible version."""
        if not self.flexible:
            return
        start = self.at
        count = self._uvarint()
        if count == 0:
            self.found.tags.append(start)
        for _ in range(count):
            self._uvarint()
            self._text(compact=True, wide=False, offset=0)

    def _field(self, kind: str, one: dict[str, Any]) -> None:
        compact = self.flexible and one.get("flexibleVersions") != "none"
        if kind.startswith("[]"):
            self._array(kind[2:], one, compact)
        elif kind in _FIXED:
            self._number(_FIXED[kind])
        elif kind in ("string", "bytes", "records"):
            self._text(compact=compact, wide=kind != "string")
        else:
            self._struct(one)

    def _struct(self, one: dict[str, Any]) -> None:
        nullable = one.get("nullableVersions")
        if nullable is not None and not one["type"].startswith("[]") and _within(nullable, self.version):
            self._number(1)
            if self.data[self.at - 1] == 0xFF:
                return
        self.fields(one["fields"])
        self.tag_section()

    def _array(self, inner: str, one: dict[str, Any], compact: bool) -> None:
        start = self.at
        count = self._uvarint() - 1 if compact else self._int(4)
        spans = []
        for _ in range(count):
            begin = self.at
            if "fields" in one:
                self._struct(one)
            else:
                self._field(inner, {"versions": "0+", "type": inner})
            spans.append((begin, self.at))
        kind = "compact" if compact else "classic32"
        self.found.arrays.append(Items(start, tuple(spans), self.at, kind))

    def _text(self, *, compact: bool, wide: bool, offset: int = 1) -> None:
        start = self.at
        length = self._uvarint() - offset if compact else self._int(4 if wide else 2)
        body = self.at
        self._skip(max(0, length))
        kind = "compact" if compact else "classic32" if wide else "classic16"
        self.found.texts.append(Text(start, body, self.at, kind))

    def _number(self, size: int) -> None:
        self._skip(size)
        self.found.numbers.append((self.at - size, self.at))

    def _int(self, size: int) -> int:
        self._skip(size)
        return int.from_bytes(self.data[self.at - size : self.at], "big", signed=True)

    def _uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 28:
                raise _End

    def _skip(self, size: int) -> None:
        self.at += size
        if self.at > len(self.data):
            raise _End
