"""What the tests of the concurrency and backlog laws share: events parsed and tables folded by hand."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from event_kit import T0, Event
from usage_kit import decisions_of, gathered_of

from streaming.laws.backlog.table import BacklogTable
from streaming.laws.concurrency.table import ConcurrencyTable
from streaming.laws.law import Batch, LawState
from streaming.laws.registry import LAWS
from streaming.policy.files import check_entry
from streaming.policy.timeline import PolicyTimeline

NOW = T0 + 100_000
TABLES: dict[str, type[LawState]] = {"latency": ConcurrencyTable, "backlog": BacklogTable}

Decision = dict[str, Any]


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


def fold(
    table: LawState, events: Sequence[Event], timeline: PolicyTimeline, processed_ts: int | None = None
) -> list[Decision]:
    """The decisions of one batch of events of one type; `processed_ts` None is a replay."""
    if not events:
        # Nobody calls a law for nothing.
        return []
    parsed = [LAWS.readers[event["type"]](event, event["id"], event["ts"]) for event in events]
    law = LAWS.by_event[type(parsed[0])]
    gathered = gathered_of(parsed, law, timeline, replay=processed_ts is None)
    decided = table.fold(Batch(events=gathered, timeline=timeline, processed_ts=processed_ts, end=False))
    return [decision for _, decision in decisions_of(decided)]


def replay(events: Sequence[Event], policies: Mapping[str, Any] | PolicyTimeline) -> list[Decision]:
    """The decisions of events of one type in one batch from nothing."""
    timeline = policies if isinstance(policies, PolicyTimeline) else timeline_of(policies)
    return fold(TABLES[events[0]["type"]].from_columns({}), events, timeline)


def judged(event: Event, policies: Mapping[str, Any]) -> Decision:
    """The decision on one report, under policies that are checked as those of a file are."""
    for path, value in policies.items():
        check_entry(path, value)
    (decision,) = replay([event], policies)
    return decision
