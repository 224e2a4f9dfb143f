"""Lines of one shape: JSON objects that say the same keys in the same order, read by compiled code.

One of them shows the shape: the bytes between its values, and a kind for each value. A line is of that shape
if those bytes stand there and its values are plain: ASCII without escapes, integers of at most 18 digits,
numbers without exponents. So it is one JSON object and no parser reads it otherwise; other lines are left.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from streaming.columns.byte_strings import NOWHERE, Bytes, Integers, after_word, bytes_of, cut
from streaming.columns.compiled import inner, lean

UNREAD: Final = -1
"""Column of a value that nobody asks for."""
END, TEXT, INTEGER, NUMBER, FLAG, EMPTY, LIST, AGAIN = range(8)
"""Kinds of steps: the line ends; a value; a list without elements, one with some begins; an element ends."""
BYTES_MAX: Final = 2**31 - 1
"""Of lines that are read together: where text begins is said in 32 bits."""
STEPS_MAX: Final = 64
"""Of a shape: events have half as many."""
_ELEMENT_BYTES: Final = 32
"""Room is made for an element in so many bytes; where more stand, lines are left."""
_DIGITS_MAX: Final = 18
_VALUES: Final = {str: TEXT, int: INTEGER, float: NUMBER, bool: FLAG}
_TYPES: Final = {TEXT: pa.string(), INTEGER: pa.int64(), NUMBER: pa.float64(), FLAG: pa.bool_()}
_QUOTE, _ESCAPE, _MINUS, _ZERO, _NINE, _DOT = (np.uint8(ord(sign)) for sign in '"\\-09.')
_OPEN, _CLOSE, _COMMA, _SPACE = (np.uint8(ord(sign)) for sign in "[], ")
_ASCII: Final = np.uint8(128)
_TRUE, _FALSE = bytes_of("true"), bytes_of("false")


class Steps(NamedTuple):
    """How a line of a shape is read: a word, then what the step's kind says, and so on.

    Attributes:
        kind: of each step.
        column: of its value; of a list of how many elements it has; UNREAD: none.
        text: all words.
        ends: where the word before each step begins, and the last one ends.
    """

    kind: Integers
    column: Integers
    text: Bytes
    ends: Integers


class Spans(NamedTuple):
    """What was read, by column and place: a text's or number's first byte and its length, or a value and 0.

    Attributes:
        first, length: as said.
        used: values of each column.
        kept: those of lines that are read.
    """

    first: Integers
    length: Integers
    used: Integers
    kept: Integers


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a shape: where its values are, and what they are made of."""

    kind: pa.DataType
    number: int = UNREAD
    inside: "Mapping[str, _Column]" = field(default_factory=dict)


class Shape:
    """What lines have in common that say what one of them says.

    Args:
        line: that one.
        schema: keys that are read, and their types; text, int64, float64, bool, lists and structs. No list
            lies in another one.

    Raises:
        ValueError: the line is no JSON object, or has what no shape can have.
    """

    def __init__(self, line: bytes, schema: pa.Schema) -> None:
        said = orjson.loads(line)
        if type(said) is not dict:
            raise ValueError("no object")
        # As Python's json writes, or as most others do.
        self._colon, self._comma = ('": ', ", ") if b'": ' in line else ('":', ",")
        self._kinds, self._columns, self._words = list[int](), list[int](), [""]
        self._count = 0
        self._parts = self._object(said, {field.name: field.type for field in schema})
        self._step(END)
        words = [word.encode() for word in self._words[:-1]]
        self.steps = Steps(
            np.array(self._kinds), np.array(self._columns), np.frombuffer(b"".join(words), dtype=np.uint8),
            np.cumsum([0, *map(len, words)]),
        )  # fmt: skip

    def read(self, text: Bytes, ends: Integers, lines: Integers) -> tuple[NDArray[np.bool_], pa.RecordBatch]:
        """Which of some lines are of this shape, and their rows.

        Args:
            text: all lines.
            ends: where each begins, and the last one ends.
            lines: the numbers of those to read.
        """
        room = len(lines) + int(ends[-1] - ends[0]) // _ELEMENT_BYTES
        shape = (self._count, room)
        counts = np.zeros((2, self._count), dtype=np.int64)
        spans = Spans(np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64), *counts)
        taken = np.empty(len(lines), dtype=np.bool_)
        _read_lines(self.steps, text, ends, lines, spans, taken)
        columns = [_made(part, text, spans) for part in self._parts.values()]
        return taken, pa.RecordBatch.from_arrays(columns, list(self._parts))

    def _object(self, said: Mapping[str, Any], known: Mapping[str, pa.DataType]) -> dict[str, _Column]:
        """The steps of an object; the columns of what is read of it."""
        parts = dict[str, _Column]()
        self._words[-1] += "{"
        for number, (key, value) in enumerate(said.items()):
            if not (key.isascii() and key.isprintable()) or '"' in key or "\\" in key:
                raise ValueError("a key that is written with escapes")
            self._words[-1] += f'{self._comma if number else ""}"{key}{self._colon}'
            part = self._value(value, known.get(key))
            if key in known:
                parts[key] = part
        self._words[-1] += "}"
        if not parts:
            raise ValueError("nothing is read of it")
        return parts

    def _value(self, value: Any, kind: pa.DataType | None) -> _Column:
        if type(value) is dict and kind is not None and pa.types.is_struct(kind):
            return _Column(kind, UNREAD, self._object(value, {field.name: field.type for field in kind}))
        if type(value) is list and kind is not None and pa.types.is_list(kind):
            return self._list(value, kind)
        step = _VALUES.get(type(value))
        if step == INTEGER and kind != pa.int64():
            step = NUMBER
        if step is None or (kind is not None and kind != _TYPES[step]):
            raise ValueError(f"{type(value).__name__}: no value of a shape")
        column = UNREAD if kind is None else self._new()
        quote = '"' if step == TEXT else ""
        self._words[-1] += quote
        self._step(step, column)
        self._words[-1] += quote
        return _Column(_TYPES[step], column)

    def _list(self, values: list[Any], kind: pa.DataType) -> _Column:
        self._words[-1] += "["
        column, inside = self._new(), dict[str, _Column]()
        self._step(LIST if values else EMPTY, column)
        if values:
            inside[""] = self._value(values[0], kind.value_type)
            self._step(AGAIN, column)
        self._words[-1] += "]"
        return _Column(kind, column, inside)

    def _step(self, kind: int, column: int = UNREAD) -> None:
        if len(self._kinds) == STEPS_MAX:
            raise ValueError("more values than a shape has")
        self._kinds.append(kind)
        self._columns.append(column)
        self._words.append("")

    def _new(self) -> int:
        self._count += 1
        return self._count - 1


def _made(column: _Column, text: Bytes, spans: Spans) -> pa.Array:
    """What was read into a column of a shape."""
    kind, inside = column.kind, column.inside
    if pa.types.is_struct(kind):
        fields = [_made(part, text, spans) for part in inside.values()]
        return pa.StructArray.from_arrays(fields, list(inside))
    count = spans.kept[column.number]
    first, length = (values[column.number, :count] for values in (spans.first, spans.length))
    if pa.types.is_list(kind):
        elements = _made(inside[""], text, spans) if inside else pa.array([], kind.value_type)
        return pa.ListArray.from_arrays(pa.array(np.cumsum(np.append(0, first)), pa.int32()), elements)
    if kind == pa.int64():
        return pa.array(first.copy())
    return pa.array(first != 0) if kind == pa.bool_() else cut(text, first, length).cast(kind)


@lean
def _read_lines(
    steps: Steps, text: Bytes, ends: Integers, lines: Integers, spans: Spans, taken: NDArray[np.bool_]
) -> None:
    for number in range(len(lines)):
        line = lines[number]
        taken[number] = _read_line(steps, text, ends[line], ends[line + 1], spans)
        for column in range(len(spans.used)):
            if taken[number]:
                spans.kept[column] = spans.used[column]
            else:
                spans.used[column] = spans.kept[column]


@inner
def _read_line(steps: Steps, text: Bytes, at: int, end: int, spans: Spans) -> bool:
    """Whether a line is of a shape; if so, its values are put."""
    step = begun = elements = 0
    while True:
        at = _after(text, at, end, steps, step)
        if at < 0:
            return False
        kind, column = steps.kind[step], steps.column[step]
        first = length = 0
        if kind == END:
            return at == end
        if kind == LIST:
            begun, elements = step, 0
            if at < end and text[at] == _CLOSE:
                while steps.kind[step] != AGAIN:
                    step += 1
            else:
                column = UNREAD
        elif kind == AGAIN:
            elements += 1
            if at < end and text[at] == _COMMA:
                at += 2 if at + 1 < end and text[at + 1] == _SPACE else 1
                step, column = begun, UNREAD
            first = elements
        elif kind != EMPTY:
            first, length, at = _value(text, at, end, kind)
        if at < 0 or not _put(spans, column, first, length):
            return False
        step += 1


@inner
def _after(text: Bytes, at: int, end: int, steps: Steps, step: int) -> int:
    """Position after the word before a step if it stands at `at`, or NOWHERE."""
    begin, size = steps.ends[step], steps.ends[step + 1] - steps.ends[step]
    if end - at < size:
        return NOWHERE
    for offset in range(size):
        if text[at + offset] != steps.text[begin + offset]:
            return NOWHERE
    return int(at + size)


@inner
def _value(text: Bytes, at: int, end: int, kind: int) -> tuple[int, int, int]:
    """What a column of `Spans` has of the value that begins at `at`; where it ends, or NOWHERE."""
    if kind == FLAG:
        true = after_word(text, at, end, _TRUE)
        return (1, 0, true) if true >= 0 else (0, 0, after_word(text, at, end, _FALSE))
    if kind != TEXT:
        return _number(text, at, end, kind)
    begin = at
    while at < end and _SPACE <= text[at] < _ASCII and text[at] != _QUOTE and text[at] != _ESCAPE:
        at += 1
    return begin, at - begin, at


@inner
def _number(text: Bytes, at: int, end: int, kind: int) -> tuple[int, int, int]:
    digits = at + 1 if at < end and text[at] == _MINUS else at
    stop = _digits_end(text, digits, end)
    # -0 is one number or another.
    zero = stop > digits and text[digits] == _ZERO
    if not 0 < stop - digits <= _DIGITS_MAX or (zero and stop - digits > 1):
        return 0, 0, NOWHERE
    if kind == NUMBER and stop < end and text[stop] == _DOT:
        fraction = _digits_end(text, stop + 1, end)
        return at, fraction - at, fraction if fraction > stop + 1 else NOWHERE
    if zero and digits > at:
        return 0, 0, NOWHERE
    if kind == NUMBER:
        return at, stop - at, stop
    value = 0
    for place in range(digits, stop):
        value = value * 10 + int(text[place] - _ZERO)
    return -value if digits > at else value, 0, stop


@inner
def _digits_end(text: Bytes, at: int, end: int) -> int:
    while at < end and _ZERO <= text[at] <= _NINE:
        at += 1
    return at


@inner
def _put(spans: Spans, column: int, first: int, length: int) -> bool:
    """Put a value into its column; whether there is room."""
    if column == UNREAD:
        return True
    row = spans.used[column]
    if row == spans.first.shape[1]:
        return False
    spans.first[column, row], spans.length[column, row] = first, length
    spans.used[column] = row + 1
    return True
