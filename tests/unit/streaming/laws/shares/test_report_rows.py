"""Packed reports read in bulk: what is taken is what the parser reads from the row's JSON object."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries

from streaming.columns.json_rows import objects
from streaming.columns.packed import pack, unpack
from streaming.columns.records import Pack, Records
from streaming.contract.errors import BadEvent
from streaming.contract.fields import INT64_MAX, TS_MAX_MS
from streaming.contract.usage_events import COUNTS, DIMENSIONS, GroupReport, GroupUsage
from streaming.laws.registry import LAWS
from streaming.laws.shares.intake import NOT_SAID, ReportIntake, plain_rows

INTEGERS = st.one_of(st.sampled_from([0, 1, 7, INT64_MAX, -1, -2, -5]), st.none())
TIMES = st.sampled_from([None, 0, 9, 15, 16, -1, -2, TS_MAX_MS, TS_MAX_MS + 1])
STRUCTS = pa.struct([(name, pa.int64()) for name in (DIMENSIONS[0], "other", DIMENSIONS[2])])
THROTTLED: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (STRUCTS, st.none() | st.fixed_dictionaries({name: INTEGERS for name in (DIMENSIONS[0], "other")})),
    (
        pa.map_(pa.string(), pa.int64()),
        st.none() | st.lists(st.tuples(st.sampled_from([*DIMENSIONS[:2], "other"]), INTEGERS), max_size=3),
    ),
    (pa.int64(), st.none() | st.just(5)),
    (pa.null(), st.none()),
]


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    """Rows with columns of good and of other types, values of every kind, fields left out."""
    count = draw(st.integers(1, 4))
    kind, times = draw(st.sampled_from(THROTTLED))
    fields = {name: pa.int64() for name in draw(st.sets(st.sampled_from(COUNTS)))}
    odd = draw(st.sampled_from([None, None, None, pa.float64(), pa.bool_(), pa.uint64()]))
    if odd is not None and fields:
        fields[next(iter(fields))] = odd
    told = {
        name: INTEGERS.map(lambda value, kind=kind: None if value is None else _cast(abs(value), kind))
        if kind != pa.int64() else INTEGERS
        for name, kind in fields.items()
    }  # fmt: skip
    entry = st.none() | st.fixed_dictionaries({**told, "throttledMs": times, "topics": st.just(3)})
    usage = st.none() | st.lists(st.tuples(st.sampled_from(["a", "b", "é\n", ""]), entry), max_size=3)
    item = pa.struct([*fields.items(), ("throttledMs", kind), ("topics", pa.int64())])
    columns: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
        "id": (pa.string(), st.sampled_from([None, "x"])),
        "v": (pa.int64(), st.sampled_from([None, 1, 2, 0])),
        "ts": (pa.int64(), TIMES),
        "applied_ts": (pa.int64(), TIMES),
        "broker": (pa.string(), st.sampled_from(["b1", "b2", None, ""])),
        "period_ms": (pa.int64(), st.sampled_from([1, 60_000, 1, 0, None])),
        "usage": (pa.map_(pa.string(), item), usage),
    }
    kept = {"broker", "period_ms", "usage"} - draw(st.sets(st.sampled_from(["broker", "usage"]), max_size=1))
    kept |= draw(st.sets(st.sampled_from(["id", "v", "ts", "applied_ts"])))
    arrays = {
        name: pa.array(draw(st.lists(values, min_size=count, max_size=count)), kind)
        for name, (kind, values) in columns.items() if name in kept
    }  # fmt: skip
    if draw(st.booleans()) and "broker" in arrays:
        arrays["broker"] = arrays["broker"].dictionary_encode()
    if draw(st.integers(0, 9)) == 0:
        arrays["id"] = pa.array([5] * count)
    return pa.record_batch(arrays)


def _cast(value: int, kind: Any) -> Any:
    return value % 2 == 0 if kind == pa.bool_() else float(value % 9) if kind == pa.float64() else value


def parsed(rows: pa.RecordBatch, row: int, time: int) -> GroupUsage | None:
    """What the parser says of a row; None: it cannot be used."""
    value = bytes(objects("group_usage", rows.slice(row, 1))[0].as_py())
    try:
        event = LAWS.parse(value, default_id="d", default_ts=None if time < 0 else time, max_ahead_ms=6)
    except BadEvent:
        return None
    assert isinstance(event, GroupUsage)
    return event


def told(rows: pa.RecordBatch, time: int) -> dict[int, tuple[Any, ...]]:
    """Of each row that is taken, what was read; their records came at `time`, -1: at none that is known."""
    numbers, times = np.arange(rows.num_rows), np.full(rows.num_rows, time)
    records = Records(
        topic=["t"] * len(numbers), partition=numbers, offset=numbers, ts=None if time < 0 else times,
        packs=[Pack(0, "group_usage", rows, numbers)],
    )  # fmt: skip
    intake = ReportIntake(records, 6)
    taken = intake.scan()
    assert plain_rows(rows, times, 6).tolist() == taken.tolist()
    found = {
        one["source"]: (one["ts"], one["at"], one["broker"], one["period_ms"], tuple(
            (entry["group"], GroupReport(
                counts=tuple(entry[name] for name in COUNTS),
                throttled_ms=tuple(None if entry[name] == NOT_SAID else entry[name] for name in DIMENSIONS),
            ))
            for entry in one["usage"]
        ))
        for part in intake._read for one in part.to_pylist()
    }  # fmt: skip
    assert list(found) == np.flatnonzero(taken).tolist()
    return found


@given(batches(), st.sampled_from([-1, 9, 10]), st.integers(0, 2))
@tries(600)
def test_what_is_taken_is_what_the_parser_reads(rows: pa.RecordBatch, time: int, begin: int) -> None:
    """As it was drawn, and packed and unpacked; stretches of rows too."""
    ((value,),) = [list(pack("group_usage", rows))]
    again = unpack(value)[1]
    for some in (again, again.slice(min(begin, rows.num_rows - 1))):
        for row, read in told(some, time).items():
            event = parsed(some, row, time)
            assert event is not None
            assert read == (event.ts, event.at, event.broker, event.period_ms, event.usage)


USUAL = {"publishedMsg": 600, "publishedBytes": 0, "throttledMs": {"publishRateInMsgs": 5}}


@pytest.mark.parametrize("throttled", [STRUCTS, pa.null()])
def test_usual_reports_are_taken(throttled: Any) -> None:
    """Not only nothing that is wrong, but all that proxies write."""
    counts = [(name, pa.int64()) for name in ("publishedMsg", "publishedBytes")]
    item = pa.struct([*counts, ("throttledMs", throttled)])
    times = {STRUCTS: {DIMENSIONS[0]: 5}, pa.null(): None}[throttled]
    entries = [(name, {**USUAL, "throttledMs": times}) for name in ("a", "b")]
    usage = pa.array([entries], pa.map_(pa.string(), item))
    rows = pa.record_batch({"id": ["x"], "broker": ["b"], "period_ms": [60_000], "usage": usage})
    expected = GroupReport(
        counts=(600, 0, 0, 0), throttled_ms=(None if times is None else 5, None, None, None)
    )
    assert told(rows, 9) == {0: (9, 9, "b", 60_000, (("a", expected), ("b", expected)))}


def test_fields_of_one_name_are_left() -> None:
    """Objects of Arrow may have a field twice: the parser takes the last that says something."""
    counts = pa.array([600])
    for name in ("throttledMs", "publishedMsg"):
        columns = {"throttledMs": pa.array([{DIMENSIONS[0]: 5}]), "publishedMsg": counts}
        parts = [counts, *columns.values(), columns[name]]
        entries = pa.StructArray.from_arrays(parts, ["publishedBytes", *columns, name])
        usage = pa.MapArray.from_arrays([0, 1], ["a"], entries)
        rows = pa.record_batch({"broker": ["b"], "period_ms": [60_000], "usage": usage})
        assert parsed(rows, 0, 9) is not None
        assert not told(rows, 9)


def test_a_group_named_twice_is_left() -> None:
    """Of two the parser takes the last; in other reports of the pack it may stand too."""
    entry = {"publishedMsg": 1}
    kind = pa.map_(pa.string(), pa.struct([("publishedMsg", pa.int64())]))
    usage = pa.array([[("a", entry), ("b", entry)], [("a", entry), ("a", entry)], [("a", entry)]], kind)
    rows = pa.record_batch({"broker": ["b"] * 3, "period_ms": [1] * 3, "usage": usage})
    assert list(told(rows, 0)) == [0, 2]
