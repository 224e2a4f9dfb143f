"""State of the backlog law: the newest time of each topic, since a report says all the rest itself.

A topic's time never goes back (docs/contract.md 1): a report that comes later than a newer one is judged by
the policies of the newer one's time. Its own `ts` is what ages are measured at, because that is when the
broker looked.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from streaming.columns.limit_index import LearntLimits
from streaming.columns.outputs import DecisionRows
from streaming.laws.backlog.bulk import NOBODY, Integers, Judged, Quotas, Verdicts, judge_all
from streaming.laws.backlog.law import Rules, rules_for
from streaming.laws.backlog.reports import Reports
from streaming.laws.law import Batch, DecisionForm, LawState
from streaming.laws.row_fields import places, worded
from streaming.policy.derived import Derived, stretches
from streaming.policy.timeline import PolicyTimeline
from streaming.policy.topics import KIND_OF, BacklogKind
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

    def fold(self, batch: Batch) -> DecisionRows:
        """Judge reports in order, one decision each."""
        reports: Reports = batch.events
        rows = self.rows(reports.topics)
        present = np.bincount(reports.topic, minlength=len(rows)) > 0
        fresh = (rows < 0) & present
        rows[fresh] = self.add(reports.topics.filter(pa.array(fresh)), last=_LONG_AGO)
        row, last = rows[reports.topic], self.state["last"]
        at = np.maximum(reports.at, last[row])
        np.maximum.at(last, row, at)
        rules, kind = _rules_for(reports, at, batch.timeline)
        if not batch.replay:
            self.bound(MAX_TOPICS)
        return _decisions(reports, rules, kind, judge_all(reports, rules, kind), at)

    def sweep(self, timeline: PolicyTimeline, horizon: int) -> None:
        """Forget topics whose newest report is older than `horizon`: no report is taken back that far."""
        self.keep(self.state["last"] >= horizon)
        self.bound(MAX_TOPICS)


def _rules_for(reports: Reports, at: Integers, timeline: PolicyTimeline) -> tuple[list[Rules], Integers]:
    """Rules, and which of them apply to each report at its time (ms)."""
    rules, kind = list[Rules](), np.zeros(len(at), dtype=np.int64)
    of_topic = np.zeros(len(reports.topics), dtype=np.int64)
    for order, since in stretches(at, timeline):
        known = rules_of(timeline.at(since))
        present = np.flatnonzero(np.bincount(reports.topic[order], minlength=len(of_topic)))
        used, number = np.unique(known.of(reports.topics.take(pa.array(present))), return_inverse=True)
        of_topic[present] = number + len(rules)
        kind[order] = of_topic[reports.topic[order]]
        rules += [known.kinds[each] for each in used.tolist()]
    return rules, kind


def _decisions(
    reports: Reports, rules: Sequence[Rules], kind: Integers, judged: Judged, at: Integers
) -> DecisionRows:
    """The decisions of docs/contract.md 3.5; `at`: when each was applied, ms."""
    rows, verdicts, quotas = reports.rows, judged.verdicts, Quotas.of(rules)
    oldest = reports.positions.name[verdicts.oldest] if len(reports.positions.name) else verdicts.oldest
    columns = {
        "id": rows["id"],
        "ts": rows["ts"],
        "topic": rows["topic"],
        "backlogSize": pa.array(verdicts.size),
        "backlogQuotaLimitSize": pa.array(quotas.size[kind]),
        "backlogQuotaLimitTime": pa.array(quotas.age[kind]),
        "oldestBacklogMessageAgeSeconds": pa.array(verdicts.age),
        "oldestBacklogMessageSubscriptionName": worded(oldest, reports.names, verdicts.oldest == NOBODY),
        **_exceeded(rules, kind, verdicts),
        "evict": _evictions(reports, judged),
        "ttl_ms": pa.array(np.full(len(rows), TTL_MS)),
    }
    late = at != rows["ts"].to_numpy()
    if late.any():
        # By other policies than those of its own time, perhaps: a replay must know.
        columns["applied_ts"] = pa.array(at, mask=~late)
    return DecisionRows(
        type=DECISION.type,
        rows=pa.RecordBatch.from_pydict(columns),
        source=rows["source"].to_numpy(),
        keys=reports.topics,
        key=reports.topic,
    )


def _exceeded(rules: Sequence[Rules], kind: Integers, verdicts: Verdicts) -> dict[str, pa.Array]:
    """The columns `exceeded` and `actions`: of each report the quotas that it is beyond, size first."""
    over = np.stack([verdicts.over_size, verdicts.over_age], axis=1)
    ends = pa.array(np.cumsum([0, *over.sum(axis=1)]), pa.int32())
    which = np.broadcast_to(np.arange(len(BacklogKind)), over.shape)[over]
    said = pa.array([quota.policy for each in rules for quota in (each.size, each.age)], pa.string())
    action = pa.StructArray.from_arrays(
        [
            worded(which, pa.array(list(KIND_OF))),
            said.take(pa.array((kind[:, None] * len(BacklogKind) + np.arange(len(BacklogKind)))[over])),
        ],
        ["quota_type", "policy"],
    )
    exceeded = worded(which, pa.array([each.value for each in BacklogKind]))
    return {
        "exceeded": pa.ListArray.from_arrays(ends, exceeded),
        "actions": pa.ListArray.from_arrays(ends, action),
    }


def _evictions(reports: Reports, judged: Judged) -> pa.Array:
    """The column `evict`: the lines of each report's plan."""
    count = judged.verdicts.lines
    ends = np.cumsum([0, *count])
    place = places(judged.verdicts.first_line, count)
    position, ledger, entry, entries, before = (column[place] for column in judged.lines)
    by_time = entries == 0
    line = pa.StructArray.from_arrays(
        [
            worded(reports.positions.name[position], reports.names),
            *(pa.array(numbers, mask=by_time) for numbers in (ledger, entry, entries)),
            pa.array(before, mask=~by_time),
        ],
        ["subscription", "ledger", "entry", "entries", "before_publish_time"],
    )
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), line)
