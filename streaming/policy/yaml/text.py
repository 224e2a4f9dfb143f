"""Values written as YAML that `lines` reads back equal. PyYAML writes the YAML of 1.1, where `1e6` and
`0o7` are text and need no quotes."""

import re
from enum import Enum
from typing import Any

import orjson

from streaming.contract.printable import printable

# What needs no quotes under any reading of YAML, in a block or between braces.
_PLAIN = re.compile(r"\.?[A-Za-z_/](?:[\w./@%+-]|:(?=[\w/]))*", re.ASCII)
_MEANING = str.maketrans({'"': '\\"', "\\": "\\\\"})
_WORDS = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n", ".inf", ".nan"))


def rendered(value: Any) -> str:
    """A value on one line; mappings and lists in braces and brackets."""
    match value:
        case Enum():
            return rendered(value.value)
        case str():
            plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
            # YAML refuses what can't be printed as it is, and knows these escapes.
            return value if plain else f'"{printable(value.translate(_MEANING))}"'
        case dict():
            return f"{{{', '.join(f'{rendered(name)}: {rendered(item)}' for name, item in value.items())}}}"
        case list() | tuple():
            return f"[{', '.join(map(rendered, value))}]"
        case _:
            return orjson.dumps(value).decode()
