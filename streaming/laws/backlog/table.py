"""State of the backlog law: the newest time of each topic, since a report says all the rest itself.

A topic's time never goes back (docs/contract.md 1): a report that comes later than a newer one is judged by
the policies of the newer one's time. Its own `ts` is what ages are measured at, because that is when the
broker looked.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from streaming.columns.limit_index import LearntLimits
from streaming.columns.outputs import DecisionColumns
from streaming.contract.broker_events import Backlog
from streaming.laws.backlog.law import Rules, judge, rules_for
from streaming.laws.law import Batch, Decision, DecisionForm, Entry, LawState
from streaming.policy.derived import Derived, stretches
from streaming.policy.timeline import PolicyTimeline
from streaming.state.subject_table import SubjectTable

TTL_MS: Final = 60_000
"""How long an enforcer may go by a decision (docs/contract.md 1)."""
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
MAX_CACHED: Final = 64
"""Sets of policies whose rules are remembered: those of a worker's shards."""
_LONG_AGO: Final = -(2**62)


rules_of: Final = Derived(
    lambda policies: LearntLimits(lambda topic: rules_for(policies, topic)), MAX_CACHED
)
"""The rules for topics under a set of policies."""


class BacklogTable(SubjectTable, LawState):
    """The newest time of all topics of a shard, by their names.

    Field: `last` ms of its newest report.
    """

    dtype = np.dtype([("last", np.int64)])

    def fold(self, batch: Batch) -> DecisionColumns:
        """Judge reports in order, one decision each."""
        entries: list[Entry] = batch.events
        events: list[Backlog] = [entry.event for entry in entries]
        encoded = pa.array([event.topic for event in events], type=pa.string()).dictionary_encode()
        topics, of_event = encoded.dictionary, encoded.indices.to_numpy()
        rows = self.rows(topics)
        fresh = rows < 0
        rows[fresh] = self.add(topics.filter(pa.array(fresh)), last=_LONG_AGO)
        row, last = rows[of_event], self.state["last"]
        at = np.maximum(np.array([event.at for event in events], dtype=np.int64), last[row])
        np.maximum.at(last, row, at)
        rules: dict[int, Rules] = {}
        for order, time in stretches(at, batch.timeline):
            known = rules_of(batch.timeline.at(time))
            kind = known.of(topics.take(pa.array(of_event[order])))
            rules |= {i: known.kinds[number] for i, number in zip(order.tolist(), kind.tolist(), strict=True)}
        if not batch.replay:
            self.bound(MAX_TOPICS)
        return DECISION.columns(
            [(entry.source, _decision(entry.event, rules[i])) for i, entry in enumerate(entries)]
        )

    def sweep(self, timeline: PolicyTimeline, horizon: int) -> None:
        """Forget topics whose newest report is older than `horizon`: no report is taken back that far."""
        self.keep(self.state["last"] >= horizon)
        self.bound(MAX_TOPICS)



def _decision(event: Backlog, rules: Rules) -> Decision:
    head = {"type": "backlog", "id": event.id, "ts": event.ts, "topic": event.topic}
    return {**head, **judge(event, rules), "ttl_ms": TTL_MS}
