"""YAML read into plain values, with the line of every key and list item.

Messages about policies and settings must name the line (docs/contract.md 2), which `yaml.safe_load` forgets,
and it lets the last of two equal keys win. So values are made here, from PyYAML's node graph, by the core
schema of YAML 1.2: `yes`, `on`, `1_000`, `1:30` and dates are text, `010` is ten, `1e6` a float.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from streaming.contract.errors import ConfigError, Problem
from streaming.contract.printable import printable

# The C parser recurses on nesting and would end the process; policies nest six deep.
MAX_DEPTH = 64
_TOO_DEEP = f"nests too deep; expected at most {MAX_DEPTH} levels"
# Aliases can blow a small file up without end, so beyond the first values each byte stands for a few.
MAX_NODES = 4_000_000
MAX_NODES_PER_BYTE = 10
FREE_NODES = 100_000
MAX_FILE_BYTES = 128 * 1024 * 1024
MAX_DIGITS = 400
WHOLE_FILE = "(file)"

Path = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_MERGE = "<<"
# Not which, or whose: it may be a password that nobody has put into quotes.
_TAGGED = "has a tag; expected none, and quotes around a text that begins with !"


class _Loader(yaml.CSafeLoader):
    """PyYAML's fast loader with the plain scalars of YAML 1.2's core schema."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own name, filled below


for _kind, _pattern, _first in (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", list("-+0123456789")),
    ("float", r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", list("-+.0123456789")),
    ("float", r"^(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$", list("-+.")),
):
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(_pattern), _first)


@dataclass(slots=True, kw_only=True)
class YamlFile:
    """A YAML file as plain values.

    Attributes:
        file: its name as the user gave it.
        value: dicts with text keys in file order, lists, text, int, float, bool, None.
        lines: path -> 1-based line of that key or item; the empty path is the file itself. A list item that
            is an alias has the line of its anchor, merged keys that of where they are written.
        problems: what is wrong but left the rest readable: duplicate keys, tags, aliases in a circle.
    """

    file: str
    value: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line(self, path: Path) -> int:
        """The line of a key, of its nearest parent if the file has no such key."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def problem(self, path: Path, message: str, line: int = 0) -> Problem:
        """A problem with the key at `path`, in its line if no other is given."""
        return Problem(file=self.file, line=line or self.line(path), path=dotted(path), message=message)


def dotted(path: Path) -> str:
    """Write a path as users read it, on one line: `quotas[0].entity.user`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{printable(part)}" for part in path)
    return text.removeprefix(".") or WHOLE_FILE


def read_yaml(file: str) -> YamlFile:
    """Read a file.

    Raises:
        ConfigError: it can't be read at all (no such file, not UTF-8, wrong YAML), with one problem.
    """
    try:
        with open(file, "rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise _unreadable(file, 1, f"cannot be read: {why}; expected a readable YAML file") from error
    return parse_yaml(raw, file)


def parse_yaml(raw: bytes, file: str) -> YamlFile:
    """Read YAML from bytes; see `read_yaml`. No content at all gives the value None."""
    if len(raw) > MAX_FILE_BYTES:
        raise _unreadable(file, 1, f"is too large; expected at most {MAX_FILE_BYTES} bytes")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise _unreadable(file, line, "is not valid UTF-8; expected text in UTF-8") from error
    try:
        _check_depth(text, file)
        root, second = _compose(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(part for part in (error.context, error.problem) if part)
        raise _unreadable(
            file, mark.line + 1 if mark else 1, f"is not valid YAML ({what}); expected correct YAML here"
        ) from error
    except yaml.reader.ReaderError as error:
        # PyYAML's fast parser counts bytes, not characters.
        line = text.encode()[: error.position].count(b"\n") + 1
        raise _unreadable(
            file, line, "is not valid YAML (a control character); expected printable text"
        ) from error
    # Wrong YAML ends here; what follows can be reported together with the problems of the values.
    most = min(MAX_NODES, FREE_NODES + MAX_NODES_PER_BYTE * len(raw))
    result = _Builder(YamlFile(file=file, lines={(): 1}), most).build(root)
    if second is not None:
        message = "holds a second document from here on; expected one document"
        result.problems.append(result.problem((), message, second.start_mark.line + 1))
    return result


def _unreadable(file: str, line: int, message: str) -> ConfigError:
    return ConfigError([Problem(file=file, line=line, path=WHOLE_FILE, message=message)])


def _check_depth(text: str, file: str) -> None:
    """Refuse deep nesting while only events are read, since composing recurses in C."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent) and event.start_mark is not None:
            depth += 1
            if depth > MAX_DEPTH:
                raise _unreadable(file, event.start_mark.line + 1, _TOO_DEEP)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _compose(text: str) -> tuple[yaml.Node | None, yaml.Node | None]:
    """The first document and, if there is one, the second."""
    loader = _Loader(text)
    try:
        first = loader.get_node() if loader.check_node() else None
        return first, loader.get_node() if loader.check_node() else None
    finally:
        loader.dispose()


class _Builder:
    """Turns nodes into values; notes lines and problems in the file it is given."""

    def __init__(self, result: YamlFile, most: int) -> None:
        self.result, self.most = result, most
        self.nodes = 0
        self.open: set[int] = set()  # collections being built, so that an alias to a parent is seen

    def build(self, root: yaml.Node | None) -> YamlFile:
        self.result.value = None if root is None else self._value(root, ())
        return self.result

    def _value(self, node: yaml.Node, path: Path) -> Any:
        self._count(node)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        # A tag is an order to construct something else; nothing of the kind is ever carried out.
        if node.tag not in (_TAG + "map", _TAG + "seq"):
            self._problem(path, _TAGGED)
            return None
        if id(node) in self.open:
            self._problem(path, "is an alias of something that it is itself a part of; expected a value")
            return None
        self.open.add(id(node))
        value = self._mapping(node, path) if isinstance(node, yaml.MappingNode) else self._list(node, path)
        self.open.discard(id(node))
        return value

    def _count(self, node: yaml.Node) -> None:
        self.nodes += 1
        # By aliases values nest that stand side by side in the file.
        too_deep = len(self.open) > MAX_DEPTH
        if too_deep or self.nodes > self.most:
            message = _TOO_DEEP if too_deep else f"is too large; expected at most {self.most} values"
            raise _unreadable(self.result.file, node.start_mark.line + 1, message)

    def _list(self, node: yaml.Node, path: Path) -> list[Any]:
        values = []
        for index, item in enumerate(node.value):
            self.result.lines[(*path, index)] = item.start_mark.line + 1
            values.append(self._value(item, (*path, index)))
        return values

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        own: dict[str, int] = {}
        for name, line, value_node, merged in self._pairs(node, path):
            # The first one stays, so that a later message about the key is about the line named here.
            if name in own:
                if not merged:
                    message = f"is written twice, first in line {own[name]}; expected each key once"
                    self._problem((*path, name), message, line)
                continue
            own[name] = line
            self.result.lines[(*path, name)] = line
            values[name] = self._value(value_node, (*path, name))
        return values

    def _pairs(self, node: yaml.MappingNode, path: Path) -> Iterator[tuple[str, int, yaml.Node, bool]]:
        """Keys of a mapping, its own before merged ones: (name, line, value, merged)."""
        merges = []
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                self._problem(path, "has a key that is not text; expected text", line)
            elif key.value == _MERGE and not key.style:
                merges.append(value)
            else:
                yield key.value, line, value, False
        # After the mapping's own keys, wherever the merge stands: those win.
        for value in merges:
            yield from self._merged(value, path)

    def _merged(self, node: yaml.Node, path: Path) -> Iterator[tuple[str, int, yaml.Node, bool]]:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for source in sources:
            # Also what is empty, or says again what stands there.
            self._count(source)
            if not isinstance(source, yaml.MappingNode) or id(source) in self.open:
                message = "merges something that is not a mapping of its own; expected an alias of a mapping"
                self._problem((*path, _MERGE), message, node.start_mark.line + 1)
                continue
            self.open.add(id(source))
            for name, line, value, _ in self._pairs(source, path):
                self._count(value)
                yield name, line, value, True
            self.open.discard(id(source))

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        text = node.value
        match node.tag.removeprefix(_TAG):
            case "str":
                return text
            case "null" if text.lower() in ("", "~", "null"):
                return None
            case "bool" if text.lower() in ("true", "false"):
                return text.lower() == "true"
            # Python refuses to read thousands of digits, with an error that names no line.
            case "int" | "float" if len(text) > MAX_DIGITS:
                self._problem(path, f"is a number of {len(text)} characters; expected at most {MAX_DIGITS}")
            case "int" | "float" as kind:
                try:
                    return _integer(text) if kind == "int" else _float(text)
                except ValueError:
                    self._problem(path, "is tagged as a number but is none; expected a number")
            case _:
                self._problem(path, _TAGGED)
        return None

    def _problem(self, path: Path, message: str, line: int = 0) -> None:
        self.result.problems.append(self.result.problem(path, message, line))


def _integer(text: str) -> int:
    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)


def _float(text: str) -> float:
    plain = text.lower()
    return float(plain.replace(".inf", "inf")) if plain != ".nan" else float("nan")
