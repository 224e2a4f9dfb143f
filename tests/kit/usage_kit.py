"""What the tests of the laws on `weir.usage` share: events made, tables fed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
from event_kit import T0, Event

from streaming.columns.outputs import Decided
from streaming.columns.records import Records
from streaming.laws.law import Batch, Decision, Entry, LawState
from streaming.laws.pack_routing import law_of
from streaming.laws.registry import LAWS
from streaming.laws.shares.intake import ReportBatch, ReportIntake, no_reports
from streaming.policy.files import check_entry
from streaming.policy.timeline import PolicyTimeline
from streaming.state.body import Body, decode, encode

NOW = T0 + 100_000


def entry_of(event: Event, source: int = 0) -> Entry:
    """An event as a law gets it, read by the contract's own reader."""
    read = LAWS.parse(orjson.dumps(event), default_id=f"e{source}", default_ts=None)
    return Entry(read, source)


def batch_of(
    events: Sequence[Event], timeline: PolicyTimeline, law: type[LawState], processed_ts: int | None = None,
    *, end: bool = False,
) -> Batch:  # fmt: skip
    """Events as lines of one file, in the order of docs/contract.md 1; `processed_ts` None is a replay."""
    (spec,) = (spec for spec in LAWS.by_name.values() if spec.table is law)
    lines = list(range(len(events)))
    records = Records(topic=["f"] * len(lines), partition=lines, offset=lines, ts=[None] * len(lines),
                      value=[b""] * len(lines), file=[0] * len(lines))  # fmt: skip
    intake = spec.intake(records, 0)
    for line, event in enumerate(events):
        intake.put(line, entry_of(event, line).event)
    gathered = intake.events(timeline, replay=processed_ts is None) or no_reports()
    return Batch(events=gathered, timeline=timeline, processed_ts=processed_ts, end=end)


def batch_from(entries: list[Entry], timeline: PolicyTimeline, *, end: bool = False) -> Batch:
    """A batch of a replay, in order; reports as columns, as the law of shares gets them."""
    intake = ReportIntake(Records())
    for entry in entries:
        intake.put(entry.source, entry.event)
    events = ReportBatch.of(intake._parsed())
    return Batch(events=events, timeline=timeline, processed_ts=None, end=end)


def decisions_of(decided: Decided) -> list[tuple[int, Decision]]:
    """(source, decision) of what a law's `fold` returned, in its order."""
    values = map(orjson.loads, decided.column("value").to_pylist())
    return list(zip(decided.source.tolist(), values, strict=True))


def fold(
    table: LawState, events: Sequence[Event], timeline: PolicyTimeline, processed_ts: int | None = None,
    *, end: bool = False,
) -> list[Decision]:  # fmt: skip
    """What a table decides on a batch of events of one type, in its order."""
    if not events and not end:
        # Nobody calls a law for nothing.
        return []
    decided = table.fold(batch_of(events, timeline, type(table), processed_ts, end=end))
    return [decision for _, decision in decisions_of(decided)]


def decide(
    table: LawState, events: Iterable[Event], timeline: PolicyTimeline, *, end: bool = False
) -> list[Decision]:
    """What a table decides in a replay on a batch of events, sorted by (ts, type, id)."""
    return in_order(fold(table, list(events), timeline, end=end))


def replay(events: Sequence[Event], policies: Mapping[str, Any] | PolicyTimeline) -> list[Decision]:
    """The decisions of events of one type in one batch from nothing."""
    timeline = policies if isinstance(policies, PolicyTimeline) else timeline_of(policies)
    return fold(law_of(events[0]["type"]).table(), events, timeline)


def judged(event: Event, policies: Mapping[str, Any]) -> Decision:
    """The decision on one report, under policies that are checked as those of a file are."""
    for path, value in policies.items():
        check_entry(path, value)
    (decision,) = replay([event], policies)
    return decision


def limit_policy(partition: str = "*", **value: Any) -> dict[str, Any]:
    """Policies with one entry of `backpressure.partitions`, as a file would hold it."""
    check_entry(f"backpressure.partitions.{partition}", value)
    return {f"backpressure.partitions.{partition}": value}


def timeline_of(initial: Mapping[str, Any], changes: Iterable[tuple[int, str, Any]] = ()) -> PolicyTimeline:
    """Policies, and (ms after T0, path, value) of what changes in them."""
    timeline = PolicyTimeline(initial)
    for at_ms, path, value in changes:
        timeline.apply(path, value, T0 + at_ms)
    return timeline


def in_order(decisions: Iterable[Decision]) -> list[Decision]:
    """Decisions as a replay writes them."""
    return sorted(decisions, key=lambda decision: (decision["ts"], decision["type"], decision["id"]))


def reloaded(table: Any) -> Any:
    """The table after its state was written to a checkpoint and read back."""
    return type(table).from_columns(decode(encode(Body(columns=table.columns(), notes={}))).columns)
