"""Values written as YAML that `lines` reads back equal. PyYAML writes the YAML of 1.1, where `1e6` and
`0o7` are text and need no quotes."""

import re
from enum import Enum
from typing import Any

import orjson

from streaming.contract.printable import is_printable

# What needs no quotes under any reading of YAML, in a block or between braces.
_PLAIN = re.compile(r"\.?[A-Za-z_/](?:[\w./@%+-]|:(?=[\w/]))*", re.ASCII)
_WORDS = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n", ".inf", ".nan"))


def rendered(value: Any) -> str:
    """A value on one line; mappings and lists in braces and brackets."""
    match value:
        case Enum():
            return rendered(value.value)
        case str():
            return value if _PLAIN.fullmatch(value) and value.lower() not in _WORDS else quoted(value)
        case dict():
            return f"{{{', '.join(f'{rendered(name)}: {rendered(item)}' for name, item in value.items())}}}"
        case list() | tuple():
            return f"[{', '.join(map(rendered, value))}]"
        case _:
            return orjson.dumps(value).decode()


def quoted(text: str) -> str:
    """A text in double quotes; what can't be printed is escaped, since YAML refuses it as it is."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if is_printable(character):
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
