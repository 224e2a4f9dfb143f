"""Dispatch decisions in: the counters that they tell, single and packed, and what is refused."""

from typing import Any

import orjson
import pyarrow as pa
import pytest
from context_kit import read as read_record
from message_kit import Record

from enforcer.laws.dispatch.decisions import CounterStatement
from streaming.columns.packed import pack
from streaming.contract.events import MAX_AHEAD_MS

TOPIC = "persistent://acme/orders/t1"
GOOD: dict[str, Any] = {
    "type": "dispatch", "id": "p1-1", "ts": 5, "broker": "broker-0", "topic": TOPIC, "subscription": "s",
    "available": {"msgs": 0, "bytes": None}, "throttle_time_ms": 1000, "limited_by": None,
    "entries_to_read": 0, "shadow": False, "ttl_ms": 1000, "proxy": "p1",
    "acquired": {"broker": {"msgs": 11, "bytes": 0}, "subscription": {"msgs": 4, "bytes": 1100}},
}  # fmt: skip
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


@pytest.mark.parametrize(
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
