"""Reports of a shard's records as columns: plain or not, in any order, they are what the parser says."""

from base64 import b64decode
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries

from streaming.columns.records import Records
from streaming.contract.decisions import DEADLETTER
from streaming.contract.events import Tick
from streaming.contract.usage_events import GroupUsage
from streaming.laws.law import Batch, StepContext
from streaming.laws.registry import LAWS
from streaming.laws.shard import step
from streaming.laws.shares.intake import ReportIntake, Reports, Rows
from streaming.laws.shares.table import SharesTable
from streaming.policy.timeline import PolicyTimeline

HEAD = {"type": "group_usage", "period_ms": 1000}
USAGES = st.dictionaries(
    st.sampled_from(["g1", "g2", "g3", "é", ""]),
    st.sampled_from([{"publishedMsg": 1}, {"dispatchedBytes": 5, "throttledMs": {"dispatchRateInBytes": 7}}]),
    max_size=4,
)
REPORTS = st.fixed_dictionaries(
    {"broker": st.sampled_from(["b1", "b2", "ß"]), "usage": USAGES, "ts": st.integers(0, 5)},
    optional={"applied_ts": st.integers(0, 8)},
).map(lambda own: HEAD | own)
TICKS = st.builds(lambda ts: {"type": "tick", "ts": ts}, st.integers(0, 6))


def records_of(events: list[dict[str, Any]], arrivals: list[tuple[int, int]], cuts: list[int]) -> Records:
    """Records in Arrow chunks, as a worker gets them."""
    values = [orjson.dumps(event) for event in events]
    bounds = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    chunks = [pa.array(values[begin:end], pa.binary()) for begin, end in pairwise(bounds)]
    partition, offset = zip(*arrivals, strict=True) if arrivals else ((), ())
    return Records(
        topic=["t"] * len(values), partition=np.array(partition, np.int64), offset=np.array(offset, np.int64),
        ts=np.full(len(values), 9), value=pa.chunked_array(chunks, pa.binary()),
        broadcast=np.array([event["type"] == "tick" for event in events], np.bool_),
    )  # fmt: skip


def told(reports: Reports) -> list[tuple[Any, ...]]:
    """Rows with their names."""
    groups, brokers = reports.groups.to_pylist(), reports.brokers.to_pylist()
    assert len(set(groups)) == len(groups) and len(set(brokers)) == len(brokers)
    return [
        (at, ts, period, source, ticks, counts, times, groups[group], brokers[broker])
        for at, ts, period, source, ticks, counts, times, group, broker in zip(
            *(column.tolist() for column in reports[:9]), strict=True
        )
    ]


@given(st.lists(REPORTS | TICKS, max_size=9), st.lists(st.integers(0, 9), max_size=2), st.data())
@tries(300)
def test_columns_say_what_the_parser_says(
    events: list[dict[str, Any]], cuts: list[int], data: st.DataObject
) -> None:
    """By time, arrival, record; each row with the ticks before it."""
    places = st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 4)), min_size=len(events), max_size=len(events)
    )
    arrivals = data.draw(places)
    records = records_of(events, arrivals, cuts)
    intake = ReportIntake(records)
    taken = intake.scan()
    parsed = [LAWS.parse(records.value_of(i), default_id="", default_ts=9) for i in range(len(events))]
    for i in data.draw(st.permutations(np.flatnonzero(~taken).tolist())):
        intake.put(i, parsed[i])
    reported = intake.events(PolicyTimeline(), replay=False)
    assert intake.newest == max((event.at for event in parsed), default=-1)
    if reported is None:
        assert not any(isinstance(event, Tick) or event.usage for event in parsed)
        return
    reports = reported.reports
    rows, ticks = Rows(), 0
    for i in sorted(range(len(events)), key=lambda i: (parsed[i].at, arrivals[i], i)):
        event = parsed[i]
        if isinstance(event, GroupUsage):
            rows.put(event, source=i, ticks=ticks)
        ticks += isinstance(event, Tick)
    assert told(reports) == told(rows.finish())
    assert [tick.event for tick in reported.ticks] == sorted(
        (event for event in parsed if isinstance(event, Tick)), key=lambda tick: tick.at
    )
    for column in reports[:9]:
        assert column.dtype == np.int64 and column.flags.c_contiguous and column.flags.writeable


@pytest.mark.parametrize("taken", [[True, True], [False, True], [True, False]])
def test_a_report_that_every_shard_got_is_left_to_the_parser(taken: list[bool]) -> None:
    """It came by the wrong topic, which the parser's way says."""
    event = HEAD | {"broker": "b", "usage": {"g": {"publishedMsg": 1}}}
    records = records_of([event, event], [(0, 0), (0, 1)], [])
    records.broadcast = ~np.array(taken)
    intake = ReportIntake(records)
    assert intake.scan().tolist() == taken
    reported = intake.events(PolicyTimeline(), replay=False)
    assert reported is not None
    assert told(reported.reports) == [
        (9, 9, 1000, i, 0, [1, 0, 0, 0], [-1] * 4, "g", "b") for i, own in enumerate(taken) if own
    ]


def test_a_report_too_far_ahead_is_left_to_the_parser() -> None:
    """Which says by how much; by `applied_ts` too, which is when it counts."""
    event = HEAD | {"broker": "b", "usage": {"g": {"publishedMsg": 1}}}
    times = [{"ts": 14}, {"ts": 15}, {"ts": 9, "applied_ts": 15}, {}]
    records = records_of([event | own for own in times], [(0, offset) for offset in range(4)], [1])
    intake = ReportIntake(records, max_ahead_ms=5)
    assert (intake.scan().tolist(), intake.newest) == ([True, False, False, True], 14)


def test_a_law_that_fails_buries_reports_however_they_were_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each as it came; a report that cannot be used is buried by itself."""

    def fail(table: SharesTable, batch: Batch) -> list[Any]:
        raise ValueError("a bug")

    monkeypatch.setattr(SharesTable, "fold", fail)
    usage = {"g": {"publishedMsg": 1}}
    events = [
        HEAD | {"broker": "b", "usage": usage, "ts": 8},
        {"type": "tick", "ts": 7},
        HEAD | {"broker": "ß", "usage": usage, "ts": 6},
        HEAD | {"broker": "b", "usage": {"g": {"publishedMsg": -1}}},
    ]
    records = records_of(events, [(0, offset) for offset in range(4)], [2])
    _, outputs = step("shares", 0, None, records, StepContext(processed_ts=1))
    letters = [orjson.loads(value) for value in outputs.value]
    assert outputs.sink == [DEADLETTER] * 4
    assert [letter["offset"] for letter in letters] == [0, 1, 2, 3]
    assert [b64decode(letter["value_base64"]) for letter in letters] == [
        orjson.dumps(events[letter["offset"]]) for letter in letters
    ]
    assert ["a bug" in letter["reason"] for letter in letters] == [True, True, True, False]
