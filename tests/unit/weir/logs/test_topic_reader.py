"""Records of the library as our own: single, packed, damaged, and those that are not wanted."""

import orjson
from message_kit import Record
from pack_kit import packed

from weir.logs import topic_reader

EVENTS = [{"type": "backlog", "id": name, "topic": "t"} for name in ("a", "b")]


def values(record: Record, *types: str) -> list[bytes]:
    """What is read of one."""
    return [each.value for each in topic_reader.records_of(record, types)]  # type: ignore[arg-type]


def test_rows_of_other_types_are_left_out() -> None:
    """Unread; single records are left to who wants them, whatever their type is."""
    (value,) = packed(EVENTS)
    rows = [orjson.dumps(event) for event in EVENTS]
    assert values(Record(value, packed=True)) == rows
    assert values(Record(value, packed=True), "backlog") == rows
    assert values(Record(value, packed=True), "share", "limit") == []
    assert values(Record(b"single"), "share") == [b"single"]


def test_what_cannot_be_unpacked_is_shown_as_it_is() -> None:
    """Whoever reads it says what is wrong."""
    assert values(Record(b"garbage", packed=True)) == [b"garbage"]
    assert values(Record(b"garbage", packed=True), "backlog") == [b"garbage"]
