r"""Text from outside as a terminal may get it: names come from anybody who can reach a proxy or a topic.

A line break in a client-id would forge a line, an escape sequence rewrite those above, and a mark of writing
direction show another name than the one that is charged. Such characters are shown by their number.
"""

import re
from collections.abc import Iterable
from typing import Final

# What Python calls printable and nobody sees: fillers, variation selectors and other marks without a glyph.
_UNSEEN: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U0001d159"
    "\U000e0100-\U000e01ef]"
)
_SHORT: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}
_CONTINUED: Final = "\n  "


def is_printable(text: str) -> bool:
    """Whether a terminal shows every character of it and does nothing else.

    Not so are all of Unicode's classes C (controls, directions, surrogates, not assigned) and Z (separators,
    but the space itself) and what has no glyph.

    >>> is_printable("user=é"), is_printable("a\x1b[2K"), is_printable("a\u202eb"), is_printable("a\u3164b")
    (True, False, False, False)
    """
    return text.isprintable() and (text.isascii() or _UNSEEN.search(text) is None)


def printable(text: str) -> str:
    r"""Text on one line, characters that are not printable as Python writes them in a string.

    Backslashes stay as they are, so what a name's own mean can be told by `--json` only.

    >>> print(printable("a\nb\x85\u202ec"))
    a\nb\x85\u202ec
    """
    return text if is_printable(text) else "".join(map(_shown, text))


def printable_lines(text: str) -> str:
    """Text of several lines, all but the first indented, so that none of them looks like one of its own."""
    return _CONTINUED.join(printable(line) for line in text.expandtabs(4).split("\n"))


def printable_json(text: str) -> str:
    r"""JSON on one line that reads back equal, characters that are not printable by its own escapes.

    >>> print(printable_json('{"a":\n"\x85"}'))
    {"a": "\u0085"}
    """
    return text if is_printable(text) else "".join(map(_json_shown, text))


def printable_array(objects: Iterable[bytes]) -> str:
    """A JSON array, an object a line, each as of `printable_json`."""
    return "[" + ",\n ".join(printable_json(each.decode()) for each in objects) + "]"


def _shown(character: str) -> str:
    if is_printable(character):
        return character
    code = ord(character)
    if code < 0x100:
        return _SHORT.get(character) or f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_shown(character: str) -> str:
    if is_printable(character):
        return character
    # Inside its strings JSON knows these as escapes only: here they stand between two values.
    if character in _SHORT:
        return " "
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
