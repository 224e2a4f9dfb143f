"""The table of APIs: complete, and the same in docs/protocol_notes.md 7."""

import re
from pathlib import Path

from enforcer.kafka.guard.apis import APIS, HIDDEN, READABLE, Rule
from enforcer.wire.kafka.frames import FLEXIBLE_FROM

NOTES = Path(__file__).resolve().parents[5] / "docs" / "protocol_notes.md"


def test_every_api_has_its_line() -> None:
    """No API that the proxy can frame is without a word on what becomes of it."""
    assert list(APIS) == list(range(93)) == sorted(FLEXIBLE_FROM)
    assert all(api.rules for api in APIS.values())


def test_what_is_read_says_in_which_versions() -> None:
    """Whatever a rule reads has a range, and what passes or is hidden has none."""
    unread = {Rule.PASS, Rule.HIDDEN}
    assert set(READABLE) == {key for key, api in APIS.items() if not unread & set(api.rules)}
    assert {27, 58, 83} <= HIDDEN


def test_the_notes_have_the_same_table() -> None:
    """docs/protocol_notes.md 7 lists each API with what it can do and what is done about it."""
    section = NOTES.read_text().partition("\n## 7.")[2]
    rows = re.findall(r"^\| (\d[\d, ]*) \| (\w[\w, ]*) \| (.+?) \| (.+?) \|$", section, re.MULTILINE)
    said = {
        int(key): (name, rules)
        for keys, names, _can, rules in rows
        for key, name in zip(keys.split(", "), names.split(", "), strict=True)
    }
    assert said == {key: (api.name, ", ".join(api.rules)) for key, api in APIS.items()}
