"""A dump of what proxies delivered, in and out of order, replays to what the live job told them."""

import orjson
from hypothesis import given
from hypothesis import strategies as st
from law_kit import T0, Event, replay_all
from property_kit import tries

from streaming.columns.records import Records
from streaming.laws.law import StepContext
from streaming.laws.shard import step
from weir.logs.dump_lines import Annotator, DumpSummary, History
from weir.logs.topic_reader import Record

POLICIES: dict[str, Event] = {
    "namespaces.acme/a": {
        "subscriptionDispatchRate": {"dispatchThrottlingRateInMsg": 10},
        "dispatchRate": {"dispatchThrottlingRateInByte": 100, "ratePeriodInSecond": 7},
    },
    "broker": {"dispatchThrottlingRateInMsg": 25, "preciseDispatcherFlowControl": True},
}
Log = list[list[tuple[int, Event]]]
"""Batches of records: of each its time, and its event."""


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """What two proxies report of two brokers; their clocks and their ways are not the same."""
    batches: Log = [[]]
    now = T0 + 10_000
    for number in range(draw(st.integers(1, 25))):
        now += draw(st.sampled_from([0, 0, 1, 400, 1000, 12_000]))
        if draw(st.integers(0, 3)) == 0:
            batches.append([])
        event = {
            "type": "dispatch_usage", "id": f"e{number}",
            "ts": now + draw(st.sampled_from([0, 0, -1, -400, 300])),
            "proxy": draw(st.sampled_from(["p1", "p2"])), "broker": draw(st.sampled_from(["b1", "b2"])),
            "topic": f"persistent://acme/a/t{draw(st.integers(0, 1))}",
            "subscription": draw(st.sampled_from(["", "s1", "s2"])), "msgs": draw(st.integers(0, 30)),
            "bytes": draw(st.integers(0, 90)), "entries": 1, "backlog": True,
        }  # fmt: skip
        batches[-1].append((now, event))
    return [batch for batch in batches if batch]


def records_of(batch: list[tuple[int, Event]], first: int) -> Records:
    count = len(batch)
    return Records(
        topic=["weir.usage"] * count, partition=[0] * count, offset=list(range(first, first + count)),
        ts=[ts for ts, _ in batch], value=[orjson.dumps(event) for _, event in batch],
    )  # fmt: skip


@given(logs())
@tries(150)
def test_a_dump_gives_what_proxies_were_told(batches: Log) -> None:
    """Counters, waits and times applied, in one order of a broker whatever its topics."""
    body, offset, live = None, 0, list[bytes]()
    for batch in batches:
        context = StepContext(initial=POLICIES, processed_ts=T0, fail_fast=True)
        body, outputs = step("dispatch", 0, body, records_of(batch, offset), context)
        live += outputs.value
        offset += len(batch)
    history = History()
    history.read_decisions(live)
    annotator = Annotator(history, DumpSummary())
    raw = [
        Record("weir.usage", 0, number, ts, orjson.dumps(event))
        for number, (ts, event) in enumerate(one for batch in batches for one in batch)
    ]
    lines = sorted(line for line in map(annotator.line, raw) if line is not None)
    dumped = [(line.at, orjson.loads(line.text)) for line in lines]
    replayed = replay_all(records_of(dumped, 0), StepContext(initial=POLICIES, replay=True, fail_fast=True))
    told = [one for one in live if b'"repeat":true' not in one]
    assert sorted(replayed.value) == sorted(told)
