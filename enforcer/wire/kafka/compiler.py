"""Compiles readers of Kafka messages: straight code that steps over what is not wanted.

What is wanted is said by the names of Kafka's fields:

    GroupId:text Topics(at Name|TopicId:text Partitions(PartitionIndex CommittedOffset) end)

- `Name`: its value; text, bytes and ids are bytes. `Name:text`: text is decoded, what is not UTF-8 becomes
  U+FFFD. A `?` behind it: it may be null although its definition does not allow that.
- `A|B`: whichever of them the version has.
- `Topics(...)`: these of each struct; of an array a list. `Topics:count`: how many it has, -1 for null. A
  text of an array is a struct with the field `Text`, without a tagged section.
- `at:Name`, `end:Name`: the offset where it begins and ends, `of:Name` where its bytes begin, behind their
  length. `at`, `end`: the same of the struct.

The answer is a tuple in this order, or the value itself where one is wanted. A field that the version lacks
has its default, an offset of one is 0, and an array that is null has no elements. Behind what is wanted of a
body nothing is read.
"""

import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Final, NamedTuple

from enforcer.wire.kafka.definitions import CODES, WIDTHS, Field
from enforcer.wire.kafka.frames import (
    TAGS_ROOM,
    BadFrame,
    Read,
    Reason,
    Rows,
    TooManyRows,
    null,
    numbers,
    read_uvarint,
    skip_tags_within,
    wrong_count,
)

TAGS: Final = "_tags"
"""Where the tagged section of a struct is kept, as it came."""

_MARKS, _BEGINNING = ("at", "of", "end"), {"at", "of", "count"}
_TEXTS: Final = (Field("Text", True, "string", False, b""),)


class Choice(NamedTuple):
    """What is wanted of a struct.

    Attributes:
        names: the field, or those of which one is meant; none: the struct itself.
        how: `value`, `text`, `count`, `at`, `of` or `end`.
        null: it may be null.
        inner: what is wanted of its structs; None: all of it, as a dict.
    """

    names: tuple[str, ...]
    how: str = "value"
    null: bool = False
    inner: tuple["Choice", ...] | None = ()


def parse(said: str) -> tuple[Choice, ...]:
    """What is wanted, in the words of this module."""
    tokens = re.findall(r"[\w:|?]+|[()]", said)
    levels: list[list[Choice]] = [[]]
    for token in tokens:
        if token == "(":
            levels.append([])
        elif token == ")":
            inner = tuple(levels.pop())
            levels[-1][-1] = levels[-1][-1]._replace(inner=inner)
        else:
            mark, _, marked = token.partition(":")
            if mark in _MARKS:
                levels[-1].append(Choice(tuple(marked.split("|")) if marked else (), mark))
            else:
                how = marked.rstrip("?") or "value"
                levels[-1].append(Choice(tuple(mark.rstrip("?").split("|")), how, token.endswith("?")))
    return tuple(levels[0])


class Source:
    """The source of a reader, as it is written line by line.

    Args:
        flexible: compact lengths, and tagged sections.
        rows: what an element counts for of which something is wanted.
        types: field -> the named tuple, of as many fields, that is made of its structs past its constructor.
    """

    def __init__(self, flexible: bool, rows: int, types: Mapping[str, type[tuple[Any, ...]]]) -> None:
        self._flexible = flexible
        self._rows = rows
        self._types = types
        self._lines: list[str] = []
        self._depth = 2
        self._taken: Counter[str] = Counter(
            ("count", "data", "error", "null", "numbers", "offset", "read", "room", "size", "stop")
        )
        self._known: dict[str, Any] = {
            "BadFrame": BadFrame, "Reason": Reason, "error": struct.error, "read_uvarint": read_uvarint,
            "skip_tags": skip_tags_within, "null": null, "wrong_count": wrong_count, "numbers": numbers,
            "Rows": Rows, "TooManyRows": TooManyRows,
        }  # fmt: skip

    def text(self, value: str) -> str:
        """All of it, where `value` is the expression of what was wanted."""
        head = (
            "def read(data, offset, room):",
            "    try:",
            f"        size, tags_room = len(data), {TAGS_ROOM}",
        )
        tail = (
            "    except (error, IndexError) as early:",
            "        raise BadFrame(Reason.TRUNCATED_BODY) from early",
            "    if offset > size:",
            "        raise BadFrame(Reason.TRUNCATED_BODY)",
            f"    return {value}",
        )
        return "\n".join((*head, *self._lines, *tail, ""))

    def compiled(self, value: str) -> Read:
        """The reader."""
        exec(compile(self.text(value), "<codec>", "exec"), self._known)
        read: Read = self._known["read"]
        return read

    def struct(self, parts: Sequence[Field], wants: Sequence[Choice] | None, *, whole: bool = True) -> str:
        """Read a struct.

        Args:
            parts: its fields.
            wants: what is wanted of it; None: all, as a dict.
            whole: read it to its end even if what is wanted stands before.

        Returns:
            The expression of what is wanted.
        """
        everything = wants is None
        if wants is None:
            wants = [Choice((part.name,), inner=None) for part in parts if part.present]
        whole = whole or Choice((), "end") in wants
        found = [self._mark("Start") if want == Choice((), "at") else "" for want in wants]
        self._fields(parts, wants, found, whole)
        tags = self._tags(keep=everything) if whole and parts != _TEXTS else ""
        for place in (place for place, want in enumerate(wants) if want == Choice((), "end")):
            found[place] = self._mark("End")
        if not everything:
            return found[0] if len(found) == 1 else f"({', '.join(found)})"
        pairs = ", ".join(f'"{want.names[0]}": {value}' for want, value in zip(wants, found, strict=True))
        return f"{{{pairs}}}" + (f' | ({{"{TAGS}": {tags}}} if {tags} else {{}})' if tags else "")

    def _fields(self, parts: Sequence[Field], wants: Sequence[Choice], found: list[str], whole: bool) -> None:
        """Read the fields of a struct; `found` gets the expressions of what is wanted of them."""
        of: dict[str, list[int]] = {part.name: [] for part in parts}
        for place, want in enumerate(wants):
            if want.names:
                of[_meant(parts, want.names)].append(place)
        run: list[tuple[Field, list[int]]] = []
        left = len(parts) if whole else sum(part.present for part in parts if of[part.name])
        for part in parts:
            places = of[part.name]
            if not part.present:
                for place in places:
                    found[place] = _absent(part, wants[place].how)
            elif left:
                left -= bool(places) and not whole
                if not left and not part.width and all(wants[place].how in _BEGINNING for place in places):
                    self._fixed(run, wants, found)
                    self._begin(part, places, wants, found)
                elif part.width:
                    run.append((part, places))
                else:
                    self._fixed(run, wants, found)
                    self._variable(part, places, wants, found)
        self._fixed(run, wants, found)

    def _add(self, *lines: str) -> None:
        self._lines += ["    " * self._depth + line for line in lines]

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        self._add(head)
        self._depth += 1
        yield
        self._depth -= 1

    def _variable_of(self, name: str) -> str:
        name = re.sub(r"(?<=.)([A-Z])", r"_\1", name).lower()
        self._taken[name] += 1
        return name if self._taken[name] == 1 else f"{name}_{self._taken[name]}"

    def _mark(self, name: str, further: int = 0) -> str:
        variable = self._variable_of(name)
        self._add(f"{variable} = offset" + (f" + {further}" if further else ""))
        return variable

    def _unpacker(self, code: str) -> str:
        name = f"read_{code.replace('?', 't')}"
        self._known[name] = struct.Struct(">" + code).unpack_from
        return name

    def _fixed(self, run: list[tuple[Field, list[int]]], wants: Sequence[Choice], found: list[str]) -> None:
        """Read fields of fixed size that follow each other, in one step."""
        code, variables, skipped, at = "", [], 0, 0
        for part, places in run:
            valued = ""
            for place in places:
                if wants[place].how in ("value", "text"):
                    valued = found[place] = self._variable_of(part.name)
                else:
                    how = wants[place].how
                    found[place] = self._mark(part.name + how.title(), at + part.width * (how == "end"))
            if valued:
                code += (f"{skipped}x" if skipped else "") + CODES[part.kind]
                variables.append(valued)
                skipped = 0
            else:
                skipped += part.width
            at += part.width
        run.clear()
        if variables:
            left = ", ".join(variables) if len(variables) > 1 else f"({variables[0]},)"
            self._add(f"{left} = {self._unpacker(code)}(data, offset)")
        if at:
            self._add(f"offset += {at}")

    def _variable(
        self, part: Field, places: Sequence[int], wants: Sequence[Choice], found: list[str]
    ) -> None:
        """Read a field whose size its bytes tell."""
        valued = next((place for place in places if wants[place].how in ("value", "text")), None)
        want = None if valued is None else wants[valued]
        variable = "" if want is None else self._variable_of(part.name)
        self._begin(part, places, wants, found)
        if part.kind in ("string", "bytes"):
            self._text(part, want, variable)
        elif part.kind == "struct":
            self._one(part, want, variable)
        else:
            self._array(part, want, variable)
        for place in places:
            if wants[place].how == "end":
                found[place] = self._mark(part.name + "End")
        if valued is not None:
            found[valued] = variable

    def _begin(self, part: Field, places: Sequence[int], wants: Sequence[Choice], found: list[str]) -> None:
        """Read the length in front of a field whose size its bytes tell."""
        marks = {wants[place].how: place for place in places}
        if "at" in marks:
            found[marks["at"]] = self._mark(part.name + "At")
        if part.kind != "struct":
            self._length("h" if part.kind == "string" else "i")
        if "of" in marks:
            found[marks["of"]] = self._mark(part.name + "Of")
        if part.kind.startswith("[]"):
            with self._block("if not -1 <= count <= size - offset:"):
                self._add("wrong_count(count)")
        if "count" in marks:
            found[marks["count"]] = self._variable_of(part.name)
            self._add(f"{found[marks['count']]} = count")

    def _length(self, code: str) -> None:
        if self._flexible:
            self._add("count = data[offset] - 1", "offset += 1")
            with self._block("if count > 126:"):
                self._add("count, offset = read_uvarint(data, offset - 1)", "count -= 1")
        else:
            self._add(f"(count,) = {self._unpacker(code)}(data, offset)")
            self._add(f"offset += {struct.calcsize(code)}")

    def _text(self, part: Field, want: Choice | None, variable: str) -> None:
        with self._block("if count < 0:"):
            allowed = want is None or want.null or part.nullable
            self._add(f"{variable or '_'} = null(count, {allowed})")
        with self._block("else:"):
            if want is not None:
                here = "data[offset : offset + count]"
                text = f'str({here}, "utf-8", "replace")' if want.how == "text" else f"bytes({here})"
                self._add(f"{variable} = {text}")
            self._add("offset += count")

    def _one(self, part: Field, want: Choice | None, variable: str) -> None:
        there: AbstractContextManager[None] = nullcontext()
        if part.nullable:
            self._add(f"(count,) = {self._unpacker('b')}(data, offset)", "offset += 1")
            if variable:
                self._add(f"{variable} = None")
            there = self._block("if count >= 0:")
        with there:
            value = self.struct(part.fields, () if want is None else want.inner)
            if variable:
                self._add(f"{variable} = {self._made(part, want, value)}")

    def _made(self, part: Field, want: Choice | None, value: str) -> str:
        if part.name not in self._types or want is None:
            return value
        name = f"make_{self._variable_of(part.name)}"
        self._known |= {name: self._types[part.name], "new": tuple.__new__}
        return f"new({name}, {value if value.startswith('(') else f'({value},)'})"

    def _array(self, part: Field, want: Choice | None, variable: str) -> None:
        everything = want is not None and want.inner is None
        if variable:
            self._add(f"{variable} = []")
        if everything:
            with self._block("if count < 0:"):
                self._add(f"{variable} = null(count, {part.nullable})")
        kind = part.kind[2:]
        with self._block("else:" if everything else "if count > 0:"):
            if kind in WIDTHS:
                if variable:
                    self._add(f'{variable} = numbers(data, offset, count, "{CODES[kind]}")')
                self._add(f"offset += count * {WIDTHS[kind]}")
            elif kind == "string":
                self._loop(variable, partial(self._element, want))
            else:
                self._structs(part, want, variable)

    def _element(self, want: Choice | None) -> str:
        alone = Choice(("Text",), "end" if want is None else want.how)
        return self.struct(_TEXTS, (want and want.inner) or (alone,), whole=False)

    def _structs(self, part: Field, want: Choice | None, variable: str) -> None:
        widths = [one.width for one in part.fields if one.present]
        everything = want is not None and want.inner is None
        wants = () if want is None else want.inner

        def element() -> str:
            return self._made(part, want, self.struct(part.fields, wants))

        if not all(widths) or not (want is None or everything):
            self._loop(variable, element)
            return
        row_bytes = sum(widths) + self._flexible
        self._add(f"stop = offset + count * {row_bytes}")
        if self._flexible:
            # Without tags the last byte of each is a zero.
            self._add(f"if data[offset + {row_bytes - 1} : stop : {row_bytes}].count(0) == count:")
            self._depth += 1
        if everything:
            row = Source(self._flexible, self._rows, {})
            self._known[f"read_{variable}"] = row.compiled(row.struct(part.fields, None))
            self._add(f"{variable} = Rows(read_{variable}, bytes(data[offset:stop]), count)")
        self._add("offset = stop")
        if self._flexible:
            self._depth -= 1
            with self._block("else:"):
                self._loop(variable, element)

    def _loop(self, variable: str, element: Callable[[], str]) -> None:
        self._add(f"room -= count * {self._rows}" if variable else "room -= count")
        with self._block("if room < 0:"):
            self._add("raise TooManyRows")
        with self._block("for _ in range(count):"):
            value = element()
            if variable:
                self._add(f"{variable}.append({value})")

    def _tags(self, *, keep: bool) -> str:
        if not self._flexible:
            return ""
        variable = self._variable_of("tags") if keep else ""
        begin = self._mark("TagsAt") if keep else ""
        if keep:
            self._add(f"{variable} = None")
        with self._block("if data[offset]:"):
            self._add("offset, tags_room = skip_tags(data, offset, tags_room)")
            if keep:
                self._add(f"{variable} = bytes(data[{begin}:offset])")
        with self._block("else:"):
            self._add("offset += 1")
        return variable


def _meant(parts: Sequence[Field], names: Sequence[str]) -> str:
    there = {part.name: part.present for part in parts}
    return next((name for name in names if there[name]), names[0])


def _absent(part: Field, how: str) -> str:
    """The expression of what is wanted of a field that the version does not have."""
    if how == "value":
        return repr(part.default)
    return repr((part.default or b"").decode()) if how == "text" else "0"
