"""A dump of any live history, replayed with --as-decided, gives what the live job decided."""

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st
from law_kit import T0, Event, Shard, policy, quota, request
from property_kit import tries

from streaming.columns.records import Records
from streaming.contract.events import MAX_AHEAD_MS
from streaming.laws.law import StepContext
from streaming.laws.shard import step
from weir.logs.dump_lines import Annotator, DumpSummary, History, Line
from weir.logs.topic_reader import Record

USERS = ("alice", "bob")
PATHS = [f"quotas[user={user}]" for user in USERS]
INITIAL: dict[str, Any] = {PATHS[0]: quota(1, 20), PATHS[1]: quota(2, 10, algorithm="sampled_rate")}
QUOTAS = st.sampled_from([quota(1), quota(0.3, 2), quota(50, 10), quota(5, 40, algorithm="sampled_rate")])
AWAY = st.sampled_from([0, 0, 0, 1, -1, -7, -400, 900, 1000, 1001, -5000, 30_000])
"""From a record's time to that of its event: clocks of proxies, and what came late."""
Log = list[list[tuple[int, Event]]]
"""Batches of records: of each its time, and its event."""


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


def lived(batches: Log, changes: list[Event]) -> list[Event]:
    """What the live job decides, in the order written; policies are known before."""
    body, offset, written = None, 0, []
    for number, batch in enumerate(batches):
        records = Records()
        for change in changes if number == 0 else ():
            put(records, "weir.policies", offset, T0, change)
        for ts, event in batch:
            put(records, "weir.requests", offset, ts, event)
            offset += 1
        if len(records):
            body, outputs = step("mutation", 0, body, records, StepContext(initial=INITIAL, processed_ts=T0))
            assert set(outputs.listed("sink")) <= {"decisions"}, outputs.value
            written += [orjson.loads(value) for value in outputs.value]
    return written


def put(records: Records, topic: str, offset: int, ts: int, event: Event) -> None:
    for column, value in zip(
        (records.topic, records.partition, records.offset, records.ts, records.value),
        (topic, 0, offset, ts, orjson.dumps(event)), strict=True,
    ):  # fmt: skip
        column.append(value)  # type: ignore[union-attr]


def dumped(batches: Log, decisions: list[Event], changes: list[Event]) -> list[Event]:
    """The lines that a dump writes of it."""
    log = [one for batch in batches for one in batch]
    records = [
        Record("weir.requests", 0, offset, ts, orjson.dumps(event)) for offset, (ts, event) in enumerate(log)
    ]
    history, counts = History(MAX_AHEAD_MS), DumpSummary()
    history.look_for_own(records)
    history.read_decisions(map(orjson.dumps, decisions))
    history.place_others()
    policies = [Record("weir.policies", 0, n, T0, orjson.dumps(one)) for n, one in enumerate(changes)]
    lines: list[Line | None] = [
        *map(Annotator(history, counts, is_policy=True).line, policies),
        *map(Annotator(history, counts).line, records),
    ]
    return [orjson.loads(line.text) for line in sorted(line for line in lines if line)]


@given(logs(), st.lists(st.tuples(st.integers(0, 60_000), st.sampled_from(PATHS), QUOTAS), max_size=2))
@tries(200)
def test_a_dump_gives_what_was_decided(batches: Log, changed: list[tuple[int, str, dict[str, Any]]]) -> None:
    """Balances, refunds and differences; local and strict, late, ahead, out of order."""
    changes = [policy(at_ms, path, value) for at_ms, path, value in sorted(changed, key=lambda one: one[0])]
    live = lived(batches, changes)
    replayed = Shard(INITIAL).step(dumped(batches, live, changes))
    by_id = {decision["id"]: decision for decision in replayed}
    assert {one["id"]: one for one in live if "repeat" not in one} == by_id
