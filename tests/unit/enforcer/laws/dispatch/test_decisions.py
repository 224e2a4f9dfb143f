"""Dispatch decisions in: the counters that they tell, single and packed, and what is refused."""

from typing import Any

import orjson
import pyarrow as pa
from context_kit import read as read_record
from dispatch_kit import T0, event_of, ten_a_second
from each_kit import each
from message_kit import Record
from usage_kit import batch_of

from enforcer.core.feeds.rows import without_nulls
from enforcer.laws.dispatch.decisions import CounterStatement, all_dispatches_of, dispatch_of
from streaming.columns.packed import pack
from streaming.contract.events import MAX_AHEAD_MS
from streaming.laws.dispatch.table import DispatchTable
from streaming.policy.timeline import PolicyTimeline

TOPIC = "persistent://acme/orders/t1"
GOOD: dict[str, Any] = {
    "type": "dispatch", "id": "p1-1", "ts": 5, "broker": "broker-0", "topic": TOPIC, "subscription": "s",
    "available": {"msgs": 0, "bytes": None}, "throttle_time_ms": 1000, "limited_by": None,
    "entries_to_read": 0, "shadow": False, "ttl_ms": 1000, "proxy": "p1",
    "acquired": {"broker": {"msgs": 11, "bytes": 0}, "subscription": {"msgs": 4, "bytes": 1100}},
}  # fmt: skip
COUNTERS = pa.map_(pa.string(), pa.struct([("msgs", pa.int64()), ("bytes", pa.int64())]))
READ = CounterStatement("p1-1", 5, "p1", "broker-0", TOPIC, "s", ((11, 0), None, (4, 1100)))


def read(value: Any, reasons: list[str] | None = None, **also: Any) -> list[Any]:
    """What stands in a single record."""
    told = list[str]() if reasons is None else reasons
    return read_record(Record(value), unusable=told.append, **also)


def test_a_decision_is_read() -> None:
    """Its applied time counts, and levels that do not limit are none."""
    assert read(GOOD) == [READ]
    assert read({**GOOD, "applied_ts": 9, "repeat": True}) == [READ._replace(at=9)]
    without = {name: value for name, value in GOOD.items() if name not in ("proxy", "acquired")}
    assert read({**without, "acquired": {}}) == [READ._replace(proxy="", acquired=(None, None, None))]


def test_one_without_counters_says_nothing_here() -> None:
    """As of deliveries that no proxy reported."""
    reasons = list[str]()
    assert read({name: value for name, value in GOOD.items() if name != "acquired"}, reasons) == []
    assert reasons == []


@each(
    "wrong",
    [
        {"acquired": 5}, {"acquired": {"topic": 5}}, {"acquired": {"topic": {"msgs": -1}}},
        {"acquired": {"topic": {"bytes": 1.5}}}, {"acquired": {"topic": {"bytes": 2**63}}}, {"ts": "soon"},
        {"ts": None}, {"topic": "t1"}, {"broker": 7}, {"subscription": None}, {"id": 5}, {"proxy": 5},
        {"applied_ts": -1},
    ],
)  # fmt: skip
def test_what_is_no_decision_is_skipped(wrong: dict[str, Any]) -> None:
    """Numbers and names that no law gives make nothing and a reason."""
    reasons = list[str]()
    assert read(orjson.dumps(GOOD | wrong), reasons) == []
    assert len(reasons) == 1


def test_one_far_ahead_is_refused() -> None:
    """By it all that comes would be passed over as older."""
    reasons = list[str]()
    now_ms = {"now_ms": lambda _record_ms: 1_000}
    assert read({**GOOD, "applied_ts": 1_001 + MAX_AHEAD_MS}, reasons, **now_ms) == []
    assert len(reasons) == 1
    assert len(read({**GOOD, "applied_ts": 1_000 + MAX_AHEAD_MS}, reasons, **now_ms)) == 1


def test_packed_ones_are_read() -> None:
    """Levels that do not limit are nulls there."""
    other = {**GOOD, "id": "p2-7", "acquired": {"topic": {"msgs": 1, "bytes": None}}}
    rows = [{name: value for name, value in one.items() if name != "type"} for one in (GOOD, other)]
    (value,) = pack("dispatch", pa.RecordBatch.from_pylist(rows))
    found = read_record(Record(value, packed=True), "p1")
    assert found == [READ, READ._replace(id="p2-7", acquired=(None, (1, 0), None))]


def decided() -> pa.RecordBatch:
    """What the job writes: of three levels, applied later than said, and of nobody who reported."""
    policies = ten_a_second(dispatchThrottlingRateInByte=50) | {
        "namespaces.acme/orders": {"dispatchRate": {"dispatchThrottlingRateInMsg": 5}}
    }
    places = [("broker-0", TOPIC, "s"), ("broker-1", "persistent://other/n/t", ""), ("broker-0", TOPIC, "")]
    events = [
        event_of(f"p1-{place}", T0 - place, 3, 40, 1, True, names, proxy)
        for place, (names, proxy) in enumerate(zip(places * 2, ["p1", "p2", "p1"] * 2, strict=True))
    ]
    del events[1]["proxy"]
    timeline, table = PolicyTimeline(policies), DispatchTable()
    table.fold(batch_of(events[:1], timeline, DispatchTable))
    return table.fold(batch_of(events, timeline, DispatchTable)).rows


def packed(rows: pa.RecordBatch) -> bytes:
    """The rows as a record."""
    (value,) = pack("dispatch", rows)
    return value


def one_by_one(rows: pa.RecordBatch) -> list[CounterStatement]:
    """What each row says by itself."""
    said = (dispatch_of(without_nulls(row)) for row in rows.to_pylist(maps_as_pydicts="strict"))
    return [each for each in said if each is not None]


def test_what_the_job_writes_is_read_from_its_columns() -> None:
    """As row by row, and in their order."""
    rows = decided()
    found = all_dispatches_of(packed(rows))
    assert found is not None and found == one_by_one(rows) and len(found) == rows.num_rows - 1
    assert found == read_record(Record(packed(rows), packed=True), "p1")
    assert "applied_ts" in rows.schema.names


@each(
    ("name", "column"),
    [
        ("topic", pa.array([TOPIC, "t1"])), ("topic", pa.array([5, 6])), ("id", pa.array(["a", None])),
        ("ts", pa.array([5, -1])), ("ts", pa.array([5, 2**62])), ("ts", pa.array([5.5, 1.0])),
        ("applied_ts", pa.array([None, -1])), ("proxy", pa.array([1, 2])), ("acquired", pa.array([1, 2])),
        ("acquired", pa.array([{"msgs": 1}, {"topic": 2}])), ("subscription", None),
        ("acquired", pa.array([[("topic", {"msgs": -1, "bytes": 0})]] * 2, COUNTERS)),
        ("acquired", pa.array([[("topic", {"msgs": 1, "bytes": 0})] * 2] * 2, COUNTERS)),
        ("acquired", pa.array([[("topic", None)], []], COUNTERS)),
    ],
)  # fmt: skip
def test_what_the_job_never_writes_is_looked_at_row_by_row(name: str, column: pa.Array | None) -> None:
    """So what is wrong is told of, and the other rows hold."""
    rows = decided().slice(0, 2)
    place = rows.schema.get_field_index(name)
    rows = rows.drop_columns(name) if column is None else rows.set_column(place, name, column)
    assert all_dispatches_of(packed(rows)) is None


def test_levels_that_are_none_say_nothing() -> None:
    """Nor do nulls among counters say more than 0."""
    counters = [[("topic", {"msgs": None, "bytes": 7}), ("cluster", {"msgs": 1, "bytes": 1})], []]
    rows = decided().slice(0, 2)
    rows = rows.set_column(rows.schema.get_field_index("acquired"), "acquired", pa.array(counters, COUNTERS))
    found = all_dispatches_of(packed(rows))
    assert found is not None and [said.acquired for said in found] == [(None, (0, 7), None), (None,) * 3]
    assert found == one_by_one(rows)


def test_columns_that_are_far_ahead_are_refused_one_by_one() -> None:
    """The others are read."""
    rows, reasons = decided(), list[str]()
    ahead = pa.array([T0 + MAX_AHEAD_MS + 1, *rows["applied_ts"].to_pylist()[1:]])
    rows = rows.set_column(rows.schema.get_field_index("applied_ts"), "applied_ts", ahead)
    now_ms = {"now_ms": lambda _record_ms: T0}
    found = read_record(Record(packed(rows), packed=True), "p1", unusable=reasons.append, **now_ms)
    assert len(found) == rows.num_rows - 2 and len(reasons) == 1
