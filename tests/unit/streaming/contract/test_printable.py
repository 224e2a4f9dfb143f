"""What a terminal may get of names from outside."""

import json
import unicodedata

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.contract.printable import is_printable, printable, printable_json, printable_lines

C0, C1 = [chr(code) for code in range(0x20)], [chr(code) for code in range(0x80, 0xA0)]
DIRECTIONS = list("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
UNSEEN = list(
    "\u00ad\u034f\u115f\u1160\u180e\u200b\u200d\u2060\u2800\u3164\ufe0f\ufeff\uffa0\U000e0041\U000e0100"
)
HOSTILE = [*C0, "\x7f", *C1, *DIRECTIONS, "\u2028", "\u2029", *UNSEEN, "\ud800", "\U0010ffff"]


@pytest.mark.parametrize("character", HOSTILE, ids=ascii)
def test_what_a_terminal_would_obey_or_hide_is_escaped(character: str) -> None:
    """In a line, and in JSON, which reads back equal."""
    line = printable(f"user=a{character}b")
    assert line.isascii() and line.isprintable()
    assert line.startswith("user=a\\") and line.endswith("b")
    assert not is_printable(character)


@pytest.mark.parametrize("text", ["", "user=alice,client-id=c 1", "Zoë", "用户", "a\\nb", "~!%<>"])
def test_what_can_be_read_stays(text: str) -> None:
    """Letters of any script, and backslashes."""
    assert printable(text) == text


@given(st.text())
def test_escaped_once_is_escaped(text: str) -> None:
    """Nothing of a forbidden kind is left, and a second time changes nothing."""
    line = printable(text)
    assert printable(line) == line
    assert not {unicodedata.category(character) for character in line} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_reads_back_equal(value: object) -> None:
    """On one line, also from a writer that puts breaks between values."""
    for written in (orjson.dumps(value, option=orjson.OPT_INDENT_2).decode(), json.dumps(value, indent="\t")):
        line = printable_json(written)
        assert orjson.loads(line) == value
        assert is_printable(line)


def test_several_lines_begin_at_the_margin_once() -> None:
    """A line that a name forges is indented."""
    assert printable_lines("weir: a\nweir: b\r\n\tat\x1b") == "weir: a\n  weir: b\\r\n      at\\x1b"
