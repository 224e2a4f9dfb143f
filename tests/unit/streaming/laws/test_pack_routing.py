"""Packed records cut up: every row, and every entry of a report, comes to the shard that its object would."""

from typing import Any

import orjson
import pyarrow as pa
import pytest
from law_kit import T0, refund, request
from pack_kit import Event, packed, stream_of
from pack_kit import rows_of as rows_in

from streaming.columns.json_columns import columns_of
from streaming.columns.json_rows import objects
from streaming.columns.packed import opened, pack
from streaming.laws import pack_routing
from streaming.laws.name_hashes import shard_of
from streaming.laws.pack_routing import PLACE, Record, RecordPart, law_of, parts
from streaming.laws.registry import LAWS
from streaming.laws.routing import routes

SHARDS = 4
NAME = "t-0-7"
USAGE = {f"g{number}": {"publishedMsg": number} for number in range(9)}
REPORT: Event = {"type": "group_usage", "id": "a", "ts": 1, "broker": "b", "period_ms": 1, "usage": USAGE}
REPORTS: list[Event] = [
    REPORT,
    {**REPORT, "id": "b", "usage": {"g1": {"publishedMsg": 1}, "é": {"publishedMsg": 2}}},
    {**REPORT, "id": "c", "usage": {"g1": {"publishedMsg": 1}, "g2": {"publishedMsg": -1}}},
    {**REPORT, "id": "d", "usage": {"g1": {"publishedMsg": 1}, "g2": {"dispatchedMsg": 5}}},
    {**REPORT, "id": "e", "ts": T0 + 60_000},
    {**REPORT, "id": "f", "ts": T0 + 60_001},
]


def cut(value: bytes, shards: int = SHARDS) -> list[RecordPart]:
    return list(parts([Record(pa.py_buffer(value), 0, 7, T0)], topic="t", shards=shards))


def rows_of(value: bytes) -> list[tuple[str, int, int, dict[str, Any]]]:
    """Law, shard, row and object of everything that was cut out of a record."""
    found = []
    for part in cut(value):
        assert part.cut
        for law, shard, (*place, number), written in told(part):
            assert place == [0, 7, T0]
            found.append((law, shard, number, orjson.loads(written)))
    return sorted(found, key=lambda one: (one[2], one[1]))


def routed(events: list[Event]) -> list[tuple[str, int, int, dict[str, Any]]]:
    """The same by way of the objects; one that cannot be used stays with the law that it is for."""
    found = [
        (law_of(str(event["type"])).name, route.shard, k, orjson.loads(route.value))
        for k, event in enumerate(events)
        for route in routes(
            orjson.dumps(event), default_id=f"{NAME}/{k}", default_ts=T0, shards=SHARDS, timeline=None
        )
    ]
    return sorted(found, key=lambda one: (one[2], one[1]))


@pytest.mark.parametrize("as_dictionary", [False, True])
def test_requests_go_by_their_subject_else_by_their_user(as_dictionary: bool) -> None:
    events = [request(f"r{n}", n, 1, user=f"u{n % 5}", subject=f"user=é{n % 7}") for n in range(50)]
    for number, missing in ((3, {}), (17, {"subject": None}), (20, {"subject": ""})):
        events[number] = {k: v for k, v in events[number].items() if k != "subject"} | missing
    events[4] |= {"items": [{"name": "t", "mutations": -1}], "subject": None}
    batch = columns_of(events).drop_columns("type")
    if as_dictionary:
        place = batch.schema.names.index("subject")
        batch = batch.set_column(place, "subject", batch["subject"].dictionary_encode())
    sent = [{k: v for k, v in event.items() if v is not None} for event in events]
    assert rows_of(stream_of(batch)) == routed(sent)


@pytest.mark.parametrize("kind", ["refund", "dispatch_usage", "latency", "backlog"])
def test_events_of_every_law_go_by_their_key(kind: str) -> None:
    law = next(law for law in LAWS.by_name.values() if kind in law.readers)
    events: list[Event] = [refund(n, 0, 1, user=f"u{n}") for n in range(9)]
    if kind != "refund":
        found = [event for batch in law.warm_up.batches for event in batch if event["type"] == kind]
        events = [dict(found[0]) | {law.key_column: f"persistent://a/b/{n}"} for n in range(9)]
    assert rows_of(packed(events)[0]) == routed(events)


def test_reports_are_cut_up_by_group_unless_they_cannot_be_used() -> None:
    assert rows_of(packed(REPORTS)[0]) == routed(REPORTS)


def test_reports_with_a_field_for_each_group() -> None:
    rows = [{k: v for k, v in report.items() if k != "type"} for report in REPORTS]
    usage = pa.array([row["usage"] for row in rows])
    batch = columns_of(rows)
    batch = batch.set_column(batch.schema.names.index("usage"), "usage", usage)
    assert rows_of(stream_of(batch, "group_usage")) == routed(REPORTS)


@pytest.mark.parametrize("kind", ["tick", "policy", "alive"])
def test_what_is_of_no_law_goes_where_that_is_said(kind: str) -> None:
    """Such a record, which anybody may write who reports, ended the job for good."""
    event = {"type": kind, "ts": T0, "proxy": "p", "path": "quotas[user=a]", "value": {"shadow": True}}
    found = rows_of(packed([event, event])[0])
    assert [(law, row) for law, _, row, _ in found] == [(LAWS.reporting.name, 0), (LAWS.reporting.name, 1)]


def test_what_is_of_no_law_is_not_cut_by_its_entries() -> None:
    """A tick whose subject was a map became a dead letter in each shard, or, with an empty one, in none."""
    subject = pa.array([[("a", 1), ("b", 2), ("c", 3)], []], pa.map_(pa.string(), pa.int64()))
    found = rows_of(stream_of(pa.record_batch({"ts": [T0, T0], "subject": subject}), "tick"))
    assert [(law, row) for law, _, row, _ in found] == [(LAWS.reporting.name, 0), (LAWS.reporting.name, 1)]


def test_with_one_shard_a_record_stays_as_it_is() -> None:
    (value,) = packed(REPORTS)
    assert cut(value, shards=1) == [RecordPart("shares", 0, value, False, 0)]


@pytest.mark.parametrize("as_dictionary", [False, True])
def test_with_rows_of_one_shard_a_record_stays_as_it_is(as_dictionary: bool) -> None:
    """As Kafka's partitions have it; whatever else is wrong with it, the shard says."""
    users = [name for name in (f"user=é{number}" for number in range(99)) if shard_of(name, SHARDS) == 2]
    subjects = pa.array(users * 3)
    rows = pa.record_batch({
        "subject": subjects.dictionary_encode() if as_dictionary else subjects, "v": ["x"] * len(subjects),
    })  # fmt: skip
    value = stream_of(rows)
    assert cut(value) == [RecordPart("mutation", 2, value, False, 0)]
    one_more = pa.array([*users, ""])
    assert [part.cut for part in cut(stream_of(pa.record_batch({"subject": one_more})))] != [False]


@pytest.mark.parametrize("value", [b"", b"rubbish", stream_of(pa.record_batch({"id": [b"x"]}))])
@pytest.mark.parametrize("shards", [1, SHARDS])
def test_what_is_no_packed_record_goes_where_that_is_said(value: bytes, shards: int) -> None:
    (part,) = cut(value, shards)
    assert (part.law, part.cut, part.value) == (LAWS.reporting.name, False, value)
    (other,) = cut(packed([{"type": "unheard", "id": "x"}])[0], 1)
    assert other.law == LAWS.reporting.name


def test_a_column_of_our_own_name_does_no_harm() -> None:
    """It stays beside ours, which come last: a dead letter has the whole object."""
    rows = pa.record_batch({"subject": ["user=a", None], **{name: ["x", "x"] for name in PLACE}})
    found = [opened(part.value)[1] for part in cut(next(pack("request", rows)))]
    assert sorted([column.to_pylist() for column in part.columns[1:]] for part in found) == [
        [*[["x"]] * len(PLACE), [0], [7], [T0], [number]] for number in range(2)
    ]


def test_reports_of_many_records_are_cut_together_and_know_where_they_came_from() -> None:
    """As if each record were cut by itself: rows that cannot be used, and other columns, among them."""
    odd = {key: value for key, value in REPORT.items() if key != "ts"}
    values = [
        packed(REPORTS[:3])[0], b"rubbish", packed(REPORTS[3:])[0], packed([odd])[0], packed(REPORTS)[0],
    ]  # fmt: skip
    records = [
        Record(pa.py_buffer(value), number % 2, 10 + number, T0 + number)
        for number, value in enumerate(values)
    ]
    together, alone = (
        sorted(row for few in pieces for part in parts(few, topic="t", shards=SHARDS) for row in told(part))
        for pieces in ([records], [[record] for record in records])
    )
    assert together == alone
    count = sum(part.cut for part in parts(records, topic="t", shards=SHARDS))
    assert count < sum(part.cut for few in records for part in parts([few], topic="t", shards=SHARDS))


def test_small_records_that_say_much_are_not_cut_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long name in a dictionary takes no bytes in a row, but its law writes it out in each."""
    rows = rows_in([REPORT] * 50)
    ids = pa.DictionaryArray.from_arrays(pa.array([0] * 50, pa.int32()), pa.array(["i" * 2000]))
    value = stream_of(rows.set_column(rows.schema.get_field_index("id"), "id", ids), "group_usage")
    records = [Record(pa.py_buffer(value), 0, number, T0) for number in range(4)]
    (whole,) = {len(list(parts([record], topic="t", shards=SHARDS))) for record in records}
    assert len(list(parts(records, topic="t", shards=SHARDS))) == whole
    monkeypatch.setattr(pack_routing, "TOGETHER_BYTES", 200_000)
    assert len(list(parts(records, topic="t", shards=SHARDS))) == 2 * whole


def told(part: RecordPart) -> list[tuple[Any, ...]]:
    """Law, shard, place and object of each row of a part; its bytes if it is a record as it came."""
    if not part.cut:
        return [(part.law, part.shard, (), part.value)]
    type, rows = opened(part.value)
    places = zip(*(rows[name].to_pylist() for name in PLACE), strict=True)
    written = objects(type, rows.drop_columns(list(PLACE))).to_pylist()
    return [(part.law, part.shard, *one) for one in zip(places, written, strict=True)]


def test_records_with_a_null_among_their_names_go_together() -> None:
    """As dictionaries they could not be joined, which would end the query at each start."""
    named = [
        pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array([name, None]))
        for name in ("x", "y")
    ]
    records = [
        Record(pa.py_buffer(stream_of(pa.record_batch({"broker": column}), "group_usage")), 0, number, T0)
        for number, column in enumerate(named)
    ]
    found = list(parts(records, topic="t", shards=SHARDS))
    assert found and all(part.cut for part in found)
    assert sum(len(opened(part.value)[1]) for part in found) == 4


def test_names_that_only_unpack_can_read_lead_rows_to_their_shards() -> None:
    """Of two batches the second has a null in its dictionary: the record is looked at row by row."""
    event = request("r", 0, 1, subject="user=alice")
    rows = columns_of([event]).drop_columns("type")
    place = rows.schema.get_field_index("subject")
    subject = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), pa.array(["user=alice", None]))
    named = rows.set_column(place, "subject", subject)
    table = pa.Table.from_batches([named.slice(0, 0), named])
    (part,) = cut(stream_of(table, "request"))
    assert (part.law, part.shard) == (LAWS.on_requests.name, shard_of("user=alice", SHARDS))
    assert part.cut
