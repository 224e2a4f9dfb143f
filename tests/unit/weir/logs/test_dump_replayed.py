"""A dump of any live history, replayed with --as-decided, gives what the live job decided."""

from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st
from law_kit import T0, Event, Shard, policy, quota, replay_all, request
from property_kit import tries

from streaming.columns.records import Records
from streaming.laws.law import StepContext
from streaming.laws.shard import step
from weir.logs.dump_lines import Annotator, DumpSummary, History
from weir.logs.topic_reader import Record

REQUESTS, USAGE = "weir.requests", "weir.usage"
USERS = ("alice", "bob")
PATHS = [f"quotas[user={user}]" for user in USERS]
INITIAL: dict[str, Any] = {PATHS[0]: quota(1, 20), PATHS[1]: quota(2, 10, algorithm="sampled_rate")}
QUOTAS = st.sampled_from([quota(1), quota(0.3, 2), quota(50, 10), quota(5, 40, algorithm="sampled_rate")])
RATES: dict[str, Any] = {
    "namespaces.acme/a": {
        "subscriptionDispatchRate": {"dispatchThrottlingRateInMsg": 10},
        "dispatchRate": {"dispatchThrottlingRateInByte": 100, "ratePeriodInSecond": 7},
    },
    "broker": {"dispatchThrottlingRateInMsg": 25, "preciseDispatcherFlowControl": True},
}
AWAY = st.sampled_from([0, 0, 0, 1, -1, -7, -400, 900, 1000, 1001, -5000, 30_000])
"""From a record's time to that of its event: clocks of proxies, and what came late."""
Log = list[list[tuple[int, Event]]]
"""Batches of records: of each its time, and its event."""
Row = tuple[str, int, int, Event]
"""A record: its topic, offset and time, and its event."""


def decided(draw: st.DrawFn, event: Event) -> Event:
    """An event with something that its proxy may have decided."""
    names = [item["name"] for item in event["items"]]
    if event["strict"]:
        first = draw(st.integers(0, len(names)))
        if event.get("validate_only"):
            first = 0 if first < len(names) else first
        outcome, rejected = ("reject", names[first:]) if names[first:] else ("allow", [])
    else:
        outcome, rejected = draw(st.sampled_from(["allow", "throttle"])), []
    wait = 0 if outcome == "allow" else draw(st.integers(1, 5000))
    said = {"outcome": outcome, "rejected": rejected, "throttle_time_ms": wait, "tokens": 0.5}
    return event | {"decided": said}


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Batches of records: each its time and its event, in the order of arrival."""
    batches: Log = [[]]
    now = 0
    for number in range(draw(st.integers(1, 25))):
        now += draw(st.sampled_from([0, 0, 1, 7, 400, 999, 12_000, 70_000]))
        if draw(st.integers(0, 3)) == 0:
            batches.append([])
        user, name = draw(st.sampled_from(USERS)), f"e{number}"
        own = {"subject": f"user={user}", "ts": T0 + max(0, now + draw(AWAY))}
        counts = draw(st.lists(st.integers(0, 30), max_size=3))
        kind = draw(st.sampled_from(["asked", "decided", "decided", "refund", "refund"]))
        dry = {"validate_only": True} if draw(st.integers(0, 4)) == 0 else {}
        event = request(name, 0, *counts, user=user, strict=draw(st.booleans()), **dry, **own)
        if kind == "refund":
            event = {**event, "type": "refund", "of_ts": T0 + max(0, now - 900)}
        elif kind == "decided":
            event = decided(draw, event)
        batches[-1].append((T0 + now, event))
    return batches


@st.composite
def deliveries(draw: st.DrawFn) -> Log:
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


def records_of(rows: Sequence[Row]) -> Records:
    topic, offset, ts, events = (list(column) for column in zip(*rows, strict=True))
    value = [orjson.dumps(event) for event in events]
    return Records(topic=topic, partition=[0] * len(rows), offset=offset, ts=ts, value=value)


def lived(
    law: str, topic: str, initial: dict[str, Any], batches: Log, changes: Sequence[Event] = ()
) -> list[bytes]:
    """What the live job decides, in the order written; policies are known before."""
    body, offset, written = None, 0, list[bytes]()
    known = [("weir.policies", number, T0, change) for number, change in enumerate(changes)]
    for batch in batches:
        rows = known + [(topic, offset + number, ts, event) for number, (ts, event) in enumerate(batch)]
        known, offset = [], offset + len(batch)
        if rows:
            context = StepContext(initial=initial, processed_ts=T0, fail_fast=True)
            body, outputs = step(law, 0, body, records_of(rows), context)
            assert set(outputs.listed("sink")) <= {"decisions"}, outputs.value
            written += outputs.value
    return written


def dumped(
    topic: str, batches: Log, decisions: Iterable[bytes], changes: Sequence[Event] = ()
) -> list[tuple[int, Event]]:
    """The lines that a dump writes of it, each with its time."""
    log = [one for batch in batches for one in batch]
    records = [Record(topic, 0, offset, ts, orjson.dumps(event)) for offset, (ts, event) in enumerate(log)]
    history, counts = History(), DumpSummary()
    history.look_for_own(records)
    history.read_decisions(decisions)
    history.place_others()
    policies = [Record("weir.policies", 0, n, T0, orjson.dumps(one)) for n, one in enumerate(changes)]
    lines = [
        *map(Annotator(history, counts, is_policy=True).line, policies),
        *map(Annotator(history, counts).line, records),
    ]
    return [(line.at, orjson.loads(line.text)) for line in sorted(line for line in lines if line)]


@given(logs(), st.lists(st.tuples(st.integers(0, 60_000), st.sampled_from(PATHS), QUOTAS), max_size=2))
@tries(200)
def test_a_dump_gives_what_was_decided(batches: Log, changed: list[tuple[int, str, dict[str, Any]]]) -> None:
    """Balances, refunds and differences; local and strict, late, ahead, out of order."""
    changes = [policy(at_ms, path, value) for at_ms, path, value in sorted(changed, key=lambda one: one[0])]
    live = lived("mutation", REQUESTS, INITIAL, batches, changes)
    replayed = Shard(INITIAL).step([event for _, event in dumped(REQUESTS, batches, live, changes)])
    by_id = {decision["id"]: decision for decision in replayed}
    assert {one["id"]: one for one in map(orjson.loads, live) if "repeat" not in one} == by_id


@given(deliveries())
@tries(150)
def test_a_dump_gives_what_proxies_were_told(batches: Log) -> None:
    """Counters, waits and times applied, in one order of a broker whatever its topics."""
    live = lived("dispatch", USAGE, RATES, batches)
    rows = [(USAGE, n, at, event) for n, (at, event) in enumerate(dumped(USAGE, batches, live))]
    replayed = replay_all(records_of(rows), StepContext(initial=RATES, replay=True, fail_fast=True))
    assert sorted(replayed.value) == sorted(one for one in live if b'"repeat":true' not in one)
