"""State of the backlog law: the newest time of each topic, since a report says all the rest itself.

A topic's time never goes back (contract section 1): a report that comes later than a newer one is judged by
the policies of the newer one's time. Its own `ts` is what ages are measured at, because that is when the
broker looked.
"""

from collections.abc import Mapping
from typing import Final, Self

import pyarrow as pa

from streaming.columns.outputs import DecisionColumns
from streaming.contract.broker_events import Backlog
from streaming.laws.backlog.law import Rules, judge, rules_for
from streaming.laws.law import Batch, Decision, DecisionForm, LawState
from streaming.policy.timeline import PolicyTimeline

TTL_MS: Final = 60_000
"""How long an enforcer may go by a decision (contract section 1)."""
QUIET_MS: Final = 3_600_000
"""A backlog that nobody has reported for an hour is not known any more."""
DECISION: Final = DecisionForm(
    type="backlog",
    subject=("topic",),
    standing=("topic",),
    until=lambda decision: int(decision["ts"] + QUIET_MS),
)
MAX_TOPICS: Final = 65_536
"""Rows of one shard; beyond it those reported longest ago leave first, ties by name."""


class BacklogTable(LawState):
    """The newest time of all topics of a shard.

    Columns: `topic` text, `last` ms of its newest report.
    """

    def __init__(self) -> None:
        self.last: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.last)

    @classmethod
    def from_columns(cls, columns: Mapping[str, pa.Array]) -> Self:
        """The table that `columns` described; an empty mapping gives an empty table."""
        table = cls()
        if columns:
            table.last = dict(zip(columns["topic"].to_pylist(), columns["last"].to_pylist(), strict=True))
        return table

    def columns(self) -> dict[str, pa.Array]:
        """The table as Arrow columns, for the checkpoint."""
        return {
            "topic": pa.array(self.last.keys(), type=pa.string()),
            "last": pa.array(self.last.values(), type=pa.int64()),
        }

    def fold(self, batch: Batch) -> DecisionColumns:
        """Judge reports in order, one decision each."""
        rules: dict[tuple[int, str], Rules] = {}
        decided: list[tuple[int, Decision]] = []
        for entry in batch.events:
            event: Backlog = entry.event
            at = self.last[event.topic] = max(event.at, self.last.get(event.topic, event.at))
            policies = batch.timeline.at(at)
            key = (policies.version, event.topic)
            if key not in rules:
                rules[key] = rules_for(policies, event.topic)
            head = {"type": "backlog", "id": event.id, "ts": event.ts, "topic": event.topic}
            decided.append((entry.source, {**head, **judge(event, rules[key]), "ttl_ms": TTL_MS}))
        if not batch.replay:
            self._bound()
        return DECISION.columns(decided)

    def sweep(self, timeline: PolicyTimeline, horizon: int) -> None:
        """Forget topics whose newest report is older than `horizon`: no report is taken back that far."""
        self.last = {topic: last for topic, last in self.last.items() if last >= horizon}
        self._bound()

    def _bound(self) -> None:
        """Hold the table to MAX_TOPICS."""
        surplus = len(self.last) - MAX_TOPICS
        if surplus > 0:
            for topic in sorted(self.last, key=lambda name: (self.last[name], name))[:surplus]:
                del self.last[topic]
