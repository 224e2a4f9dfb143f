"""Reports of a shard's records as columns: plain or not, in any order, they are what the parser says."""

from base64 import b64decode
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack_kit import packed, records_with
from property_kit import tries

from streaming.columns.records import Records
from streaming.contract.decisions import DEADLETTER
from streaming.contract.events import Tick
from streaming.contract.fields import INT64_MAX
from streaming.contract.usage_events import GroupUsage
from streaming.laws.law import Batch, StepContext
from streaming.laws.registry import LAWS
from streaming.laws.shard import step
from streaming.laws.shares.intake import NOT_SAID, ReportIntake, Reports
from streaming.laws.shares.table import SharesTable
from streaming.policy.timeline import PolicyTimeline

HEAD = {"type": "group_usage", "period_ms": 1000}
USAGES = st.dictionaries(
    st.sampled_from(["g1", "g2", "g3", "é", ""]),
    st.sampled_from([
        {"publishedMsg": 1}, {"dispatchedBytes": 5, "throttledMs": {"dispatchRateInBytes": 7}},
        {"publishedMsg": 0, "publishedBytes": INT64_MAX, "throttledMs": {"publishRateInMsgs": INT64_MAX}},
    ]),
    max_size=4,
)  # fmt: skip
REPORTS = st.fixed_dictionaries(
    {"broker": st.sampled_from(["b1", "b2", "ß"]), "usage": USAGES, "ts": st.integers(0, 5)},
    optional={"applied_ts": st.integers(0, 8)},
).map(lambda own: HEAD | own)
TICKS = st.builds(lambda ts: {"type": "tick", "ts": ts}, st.integers(0, 6))


Sent = list[tuple[list[dict[str, Any]], bool]]
"""Kafka records: the events of each, and whether it is packed; one that is not holds one."""


def records_of(sent: Sent, arrivals: list[tuple[int, int]]) -> Records:
    """Records in an Arrow chunk, as a worker gets them."""
    values = [packed(events)[0] if in_columns else orjson.dumps(events[0]) for events, in_columns in sent]
    ticks = [events[0]["type"] == "tick" for events, _ in sent]
    return records_with(values, [in_columns for _, in_columns in sent], 9, "t", arrivals, ticks)


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


@given(
    st.lists(
        st.tuples(st.lists(REPORTS, min_size=1, max_size=4), st.just(True))
        | st.tuples(st.lists(REPORTS | TICKS, min_size=1, max_size=1), st.just(False)),
        max_size=7,
    ),
    st.data(),
)
@tries(300)
def test_columns_say_what_the_parser_says(sent: Sent, data: st.DataObject) -> None:
    """By time, arrival, record; each row with the ticks before it."""
    place = st.tuples(st.integers(0, 2), st.integers(0, 4))
    places = st.lists(place, min_size=len(sent), max_size=len(sent), unique=True)
    records = records_of(sent, data.draw(places))
    intake = ReportIntake(records)
    taken = intake.scan()
    # A report is only left where the columns of its pack do not say that it is one: all name no group.
    packs = [pack for pack in records.packs if pa.types.is_struct(pack.rows["usage"].type.item_type)]
    assert taken.sum() == sum(map(len, packs))
    parsed = [LAWS.parse(records.value_of(i), default_id="", default_ts=9) for i in range(len(records))]
    for i in data.draw(st.permutations(np.flatnonzero(~taken).tolist())):
        intake.put(i, parsed[i])
    reported = intake.events(PolicyTimeline(), replay=False)
    assert intake.newest == max((event.at for event in parsed), default=-1)
    if reported is None:
        assert not any(isinstance(event, Tick) or event.usage for event in parsed)
        return
    reports = reported.reports
    rows, ticks = list[tuple[Any, ...]](), list[tuple[int, int]]()
    for i in sorted(range(len(records)), key=lambda i: (parsed[i].at, records.order_of(i))):
        event = parsed[i]
        for name, said in event.usage if isinstance(event, GroupUsage) else ():
            times = [NOT_SAID if time is None else time for time in said.throttled_ms]
            head = event.at, event.ts, event.period_ms, i, len(ticks)
            rows.append((*head, [*said.counts], times, name, event.broker))
        ticks += [(event.at, i)] * isinstance(event, Tick)
    assert told(reports) == rows
    assert list(zip(reported.tick_at.tolist(), reported.tick_source.tolist(), strict=True)) == ticks
    for column in reports[:9]:
        assert column.dtype == np.int64 and column.flags.c_contiguous and column.flags.writeable


def test_a_report_that_every_shard_got_is_left_to_the_parser() -> None:
    """It came by the wrong topic, which the parser's way says."""
    event = HEAD | {"broker": "b", "usage": {"g": {"publishedMsg": 1}}}
    records = records_of([([event], True), ([event, event], True)], [(0, 0), (0, 1)])
    records.broadcast = np.array([True, False, False])
    assert ReportIntake(records).scan().tolist() == [False, True, True]


def test_a_report_too_far_ahead_is_left_to_the_parser() -> None:
    """Which says by how much; by `applied_ts` too, which is when it counts."""
    event = HEAD | {"broker": "b", "usage": {"g": {"publishedMsg": 1}}}
    times = [{"ts": 14}, {"ts": 15}, {"ts": 9, "applied_ts": 15}, {}]
    records = records_of([([event | own for own in times], True)], [(0, 0)])
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
    sent = [([event], number == 2) for number, event in enumerate(events)]
    records = records_of(sent, [(0, offset) for offset in range(4)])
    _, outputs = step("shares", 0, None, records, StepContext(processed_ts=1))
    letters = [orjson.loads(value) for value in outputs.value]
    assert outputs.listed("sink") == [DEADLETTER] * 4
    assert [(letter["offset"], letter.get("row")) for letter in letters] == [
        (0, None), (1, None), (3, None), (2, 0),
    ]  # fmt: skip
    assert [b64decode(letter["value_base64"]) for letter in letters] == [
        orjson.dumps(events[letter["offset"]]) for letter in letters
    ]
    assert ["a bug" in letter["reason"] for letter in letters] == [True, True, False, True]
