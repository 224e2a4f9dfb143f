"""State of the backlog law: the newest time of each topic, since a report says all the rest itself.

A topic's time never goes back (docs/contract.md 1): a report that comes later than a newer one is judged by
the policies of the newer one's time. Its own `ts` is what ages are measured at, because that is when the
broker looked.
"""

from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from streaming.columns.outputs import DecisionRows
from streaming.contract.backlog.decisions import TTL_MS
from streaming.contract.broker_events import Backlog
from streaming.contract.fields import INT64_MAX
from streaming.laws.backlog.law import Rules, judge, rules_for
from streaming.laws.law import Batch, DecisionForm, Entry, LawState
from streaming.laws.row_fields import WORDS
from streaming.policy.derived import PolicyCache, stretches
from streaming.policy.timeline import PolicyTimeline
from streaming.state.subject_table import SubjectTable

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
_LONG_AGO: Final = -(2**62)
_INTEGER: Final = pa.int64()
_COLUMNS: Final = pa.schema({
    "id": pa.string(), "ts": _INTEGER, "topic": WORDS, "backlogSize": pa.float64(),
    "backlogQuotaLimitSize": _INTEGER, "backlogQuotaLimitTime": _INTEGER,
    "oldestBacklogMessageAgeSeconds": _INTEGER, "oldestBacklogMessageSubscriptionName": WORDS,
    "exceeded": pa.list_(WORDS), "actions": pa.list_(pa.struct({"quota_type": WORDS, "policy": WORDS})),
    "evict": pa.list_(pa.struct({
        "subscription": WORDS, "ledger": _INTEGER, "entry": _INTEGER, "entries": _INTEGER,
        "before_publish_time": _INTEGER,
    })),
    "ttl_ms": _INTEGER,
})  # fmt: skip
"""Of the decisions of docs/contract.md 3.5."""
_OPTIONAL: Final = {"shadow": pa.bool_(), "applied_ts": _INTEGER}
"""What only decisions say that are not acted on, or of reports that were applied at another time."""


rules_of: Final = PolicyCache(lambda policies: lru_cache(MAX_TOPICS)(partial(rules_for, policies)))
"""The rules for a topic under a set of policies."""


class BacklogTable(SubjectTable, LawState):
    """The newest time of all topics of a shard, by their names.

    Field: `last` ms of its newest report.
    """

    dtype = np.dtype([("last", np.int64)])

    def fold(self, batch: Batch) -> DecisionRows:
        """Judge reports in order, one decision each."""
        entries: list[Entry] = batch.events
        events = [entry.event for entry in entries]
        named = pa.array([event.topic for event in events], WORDS)
        topics, topic = named.dictionary, named.indices.to_numpy()
        rows = self.rows(topics)
        fresh = rows < 0
        rows[fresh] = self.add(topics.filter(pa.array(fresh)), last=_LONG_AGO)
        row, last = rows[topic], self.state["last"]
        at = np.maximum([event.at for event in events], last[row])
        np.maximum.at(last, row, at)
        if not batch.replay:
            self.bound(MAX_TOPICS)
        decided: list[dict[str, Any]] = [{}] * len(events)
        for order, since in stretches(at, batch.timeline):
            policies = batch.timeline.at(since)
            rules = rules_of(policies)
            for i in order.tolist():
                decided[i] = _decision(events[i], rules(events[i].topic), int(at[i]), policies.tracks)
        said = {name: kind for name, kind in _OPTIONAL.items() if any(name in each for each in decided)}
        columns = pa.schema([*_COLUMNS, *map(pa.field, said, said.values())])
        return DecisionRows(
            type=DECISION.type,
            rows=pa.RecordBatch.from_pylist(decided, columns),
            source=np.array([entry.source for entry in entries], dtype=np.int64),
            keys=topics,
            key=topic.astype(np.int64),
        )

    def sweep(self, timeline: PolicyTimeline, horizon: int) -> None:
        """Forget topics whose newest report is older than `horizon`: no report is taken back that far."""
        self.keep(self.state["last"] >= horizon)


def _decision(event: Backlog, rules: Rules, at: int, shadow: bool) -> dict[str, Any]:
    """What is decided on a report that is applied at `at`, ms, in shadow or not."""
    said = judge(event, rules)
    for line in said["evict"]:
        if "entries" in line:
            # A sum that no 64 bits hold is cut there.
            line["entries"] = min(INT64_MAX, line["entries"])
    more: dict[str, Any] = {"shadow": True} if shadow else {}
    if at != event.ts:
        more["applied_ts"] = at
    return {"id": event.id, "ts": event.ts, "topic": event.topic, **said, "ttl_ms": TTL_MS, **more}
