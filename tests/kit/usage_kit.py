"""What the tests of the laws on `weir.usage` share: events made, tables fed."""

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from streaming.columns.outputs import Decided
from streaming.columns.records import Records
from streaming.laws.law import Batch, Decision, Entry, LawSpec, LawState
from streaming.laws.registry import LAWS
from streaming.laws.shares.intake import ReportBatch, ReportIntake
from streaming.laws.shares.table import SharesTable
from streaming.policy.timeline import PolicyTimeline
from streaming.state.body import Body, decode, encode

Event = dict[str, Any]


def entry_of(event: Event, source: int = 0) -> Entry:
    """An event as a law gets it, read by the contract's own reader."""
    read = LAWS.parse(orjson.dumps(event), default_id=f"e{source}", default_ts=None)
    return Entry(read, source)


def batch_of(
    events: Iterable[Event], timeline: PolicyTimeline, law: type[LawState], *, end: bool = False
) -> Batch:
    """Events of a replay in the order of docs/contract.md 1; sources are their places."""
    entries = [entry_of(event, place) for place, event in enumerate(events)]
    entries.sort(key=lambda entry: entry.event.ts)
    if law is SharesTable:
        return batch_from(entries, timeline, end=end)
    spec = LAWS.by_event[type(entries[0].event)]
    gathered = gathered_of([entry.event for entry in entries], spec, timeline, replay=True)
    return Batch(events=gathered, timeline=timeline, processed_ts=None, end=end)


def gathered_of(events: Sequence[Any], law: LawSpec, timeline: PolicyTimeline, *, replay: bool) -> Any:
    """What a law's intake makes of events that the parser has read, lines of one file."""
    lines = list(range(len(events)))
    records = Records(topic=["f"] * len(lines), partition=lines, offset=lines, ts=[None] * len(lines),
                      value=[b""] * len(lines), file=[0] * len(lines))  # fmt: skip
    intake = law.intake(records, 0)
    for line, event in enumerate(events):
        intake.put(line, event)
    return intake.events(timeline, replay=replay)


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


def decide(
    table: LawState, events: Iterable[Event], timeline: PolicyTimeline, *, end: bool = False
) -> list[Decision]:
    """What a table decides on a batch of events, sorted by (ts, type, id)."""
    events = list(events)
    if not events and not end:
        # Nobody calls a law for nothing.
        return []
    decided = table.fold(batch_of(events, timeline, type(table), end=end))
    return in_order(decision for _, decision in decisions_of(decided))


def in_order(decisions: Iterable[Decision]) -> list[Decision]:
    """Decisions as a replay writes them."""
    return sorted(decisions, key=lambda decision: (decision["ts"], decision["type"], decision["id"]))


def reloaded(table: Any) -> Any:
    """The table after its state was written to a checkpoint and read back."""
    return type(table).from_columns(decode(encode(Body(columns=table.columns(), notes={}))).columns)
