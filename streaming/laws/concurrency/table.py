"""State of the concurrency law: a row per partition, and the way of a batch of samples through it.

The law is in law.py and algorithms.py. Here partitions become row numbers and policies settings. A change of
a partition's algorithm or parameters starts it afresh from `initialLimit`, since what one algorithm has
learned means nothing to another; a policy that only says the same in other words changes nothing, and one
that leaves and comes back does.

A replay writes one decision per sample. The live job writes one per partition and batch, under the newest
sample's id, and only when the limit is not the one written last; a partition's first is always written.
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import pyarrow as pa

from streaming.columns.compiled import machine
from streaming.columns.limit_index import LearntLimits
from streaming.columns.outputs import DecisionRows
from streaming.contract.decisions import LIMIT_TTL_MS
from streaming.laws.concurrency import law
from streaming.laws.concurrency.algorithms import STATE
from streaming.laws.concurrency.law import FORGET_MS, NOT_LIMITED, Doubles, Flags, Integers
from streaming.laws.concurrency.samples import Samples
from streaming.laws.concurrency.settings import NUMBERS, SETTINGS, LimitSettings
from streaming.laws.law import FOR_EVER, Batch, DecisionForm, LawState
from streaming.laws.row_fields import worded
from streaming.policy.derived import PolicyCache, stretches
from streaming.policy.policy_set import PolicySet, partition_entry
from streaming.policy.timeline import PolicyTimeline
from streaming.state.subject_table import SubjectTable

start, walk = machine(law.start), machine(law.walk)
STANDS_MS: Final = 3_600_000
"""How long a limit is said again after the newest sample of its partition."""
MAX_PARTITIONS: Final = 65_536
"""Rows of one shard; beyond this number those idle longest are forgotten, ties by name."""
NO_KEY: Final = 0
"""No LimitSettings has it: the partition is not limited."""
DECISION: Final = DecisionForm(type="limit", subject=("partition",), standing=("partition",), timely=True)
_NAMES: Final = [algorithm.value for algorithm, _ in sorted(NUMBERS.items(), key=lambda known: known[1])]
"""Of the algorithms, by their numbers."""


def _limits(policies: PolicySet) -> LearntLimits[LimitSettings]:
    known: dict[int, LimitSettings] = {}

    def find(partition: str) -> LimitSettings | None:
        value = partition_entry(policies, partition)
        if value is None:
            return None
        # Most partitions go by the same entry; the set holds it, so its id is nobody else's.
        if id(value) not in known:
            known[id(value)] = LimitSettings.of(value)
        return known[id(value)]

    return LearntLimits(find)


settings_of: Final = PolicyCache(_limits)
"""The settings of partitions under a set of policies."""


@dataclass(frozen=True, slots=True)
class _Results:
    """What is found out about a batch of samples, an entry each.

    Attributes:
        row: of its partition; NOT_LIMITED: no policy matches it.
        setting: which of the settings of its stretch of time it goes by.
        limit, estimate: after it.
        algorithm: that found them.
        shadow: nobody acts on them.
    """

    row: Integers
    setting: Integers
    limit: Integers
    estimate: Doubles
    algorithm: Integers
    shadow: Flags

    @classmethod
    def of(cls, count: int) -> Self:
        return cls(
            row=np.full(count, NOT_LIMITED, dtype=np.int64),
            setting=np.zeros(count, dtype=np.int64),
            limit=np.zeros(count, dtype=np.int64),
            estimate=np.zeros(count),
            algorithm=np.zeros(count, dtype=np.int64),
            shadow=np.zeros(count, dtype=np.bool_),
        )


class ConcurrencyTable(SubjectTable, LawState):
    """Limits of all partitions of a shard, by their names."""

    dtype = STATE

    def fold(self, batch: Batch) -> DecisionRows:
        """Decide samples in order."""
        samples: Samples = batch.events
        results, rows = _Results.of(len(samples.at)), self.rows(samples.names)
        seen = np.full(len(rows), -1, dtype=np.int64)
        seen[rows >= 0] = self.state["last"][rows[rows >= 0]]
        at = np.maximum(samples.at, seen[samples.partition])
        self._forget_written(rows, samples.partition, at, seen)
        for order, since in stretches(at, batch.timeline):
            self._walk_stretch(samples, at, rows, order, since, batch.timeline, results)
        chosen = np.flatnonzero(results.row != NOT_LIMITED)
        # Of what is assigned to one place the last remains: each row's newest sample.
        newest = np.full(len(self), NOT_LIMITED, dtype=np.int64)
        newest[results.row[chosen]] = chosen
        spoken = np.flatnonzero(newest != NOT_LIMITED)
        written, limit = self.state["written"][spoken], results.limit[newest[spoken]]
        self.state["written"][spoken] = limit
        if not batch.replay:
            chosen = np.sort(newest[spoken[written != limit]])
            self.bound(MAX_PARTITIONS)
        return _decisions(samples, at, chosen, results)

    def sweep(self, timeline: PolicyTimeline, horizon: int) -> None:
        """Let rows go that are as if never seen: of an era that ended, idle for FORGET_MS, or at their start,
        once their limit stands no more.

        What changed up to `horizon` is settled for all, so that the timeline may forget it.
        """
        idle = np.flatnonzero(self.state["last"] < horizon)
        last = self.state["last"][idle]
        afresh = self._ended(idle, horizon, timeline) | (last <= horizon - FORGET_MS)
        stands = last > horizon - STANDS_MS
        limits = settings_of(timeline.at(horizon))
        number = limits.of(self.names.take(pa.array(idle)))
        keep = np.ones(len(self), dtype=np.bool_)
        columns = (column.tolist() for column in (idle, number, afresh, stands))
        for row, settings, ended, said in zip(*columns, strict=True):
            keep[row] = not ended and (said or self._has_learned(row, limits.kinds[settings]))
        self.keep(keep)

    def stand(self, subjects: pa.Array, over: Flags, now: int, timeline: PolicyTimeline) -> Flags:
        """Those that are sampled, under the policy that they were learned under."""
        rows = self.rows(subjects)
        stands: Flags = rows >= 0
        stands[stands] = now - self.state["last"][rows[stands]] < STANDS_MS
        stands[stands] = ~self._ended(rows[stands], now, timeline)
        return stands

    def _forget_written(self, rows: Integers, partition: Integers, at: Integers, seen: Integers) -> None:
        """Have limits written again that were not said for so long that not every enforcer knows them."""
        first = np.full(len(rows), FOR_EVER)
        np.minimum.at(first, partition, at)
        self.state["written"][rows[(rows >= 0) & (first - seen >= STANDS_MS)]] = -1

    def _walk_stretch(
        self, samples: Samples, at: Integers, rows: Integers, order: Integers, since: int,
        timeline: PolicyTimeline, results: _Results,
    ) -> None:  # fmt: skip
        """Walk the samples of one stretch of time without a change of policy.

        Args:
            samples: the batch.
            at: when each is applied, ms.
            rows: of its partitions; those that are added are filled in.
            order: which are of this stretch.
            since: when it begins, ms.
            timeline: the policies.
            results: filled in.
        """
        names = samples.names
        present = np.flatnonzero(np.bincount(samples.partition[order], minlength=len(names)))
        policies = timeline.at(since)
        results.shadow[order] = policies.tracks
        limits = settings_of(policies)
        kind = limits.of(names.take(pa.array(present)))
        present, kind = present[kind >= 0], kind[kind >= 0]
        known = rows[present] >= 0
        afresh = ~known
        afresh[known] = self._ended(rows[present[known]], since, timeline)
        rows[present[~known]] = self.add(names.take(pa.array(present[~known])))
        for row, number in zip(rows[present[afresh]].tolist(), kind[afresh].tolist(), strict=True):
            start(self.state[row], limits.kinds[number].row[0])
            self.state["settings"][row] = limits.kinds[number].key
        used, number = np.unique(kind, return_inverse=True)
        settings = np.concatenate([np.zeros(0, SETTINGS), *(limits.kinds[each].row for each in used)])
        # By partition of the batch; those that are not present have no event in `order`.
        row, setting = np.full((2, len(names)), NOT_LIMITED)
        row[present], setting[present] = rows[present], number
        partition = samples.partition[order]
        results.row[order], results.setting[order] = row[partition], setting[partition]
        walk(
            order, at, results.row, samples.start_ns, samples.rtt, samples.inflight, samples.drop,
            settings, results.setting, self.state, results.limit, results.estimate,
        )  # fmt: skip
        limited = order[results.row[order] != NOT_LIMITED]
        results.algorithm[limited] = settings["algorithm"][results.setting[limited]]

    def _ended(self, rows: Integers, upto: int, timeline: PolicyTimeline) -> Flags:
        """Whether what was learned in these rows means nothing any more at `upto` ms.

        So it is if their settings were others at any time since their last sample.
        """
        last, names = self.state["last"][rows], self.names.take(pa.array(rows))
        ended = np.zeros(len(rows), dtype=np.bool_)
        first = int(last.min(initial=upto))
        begins = [first, *timeline.changes(first, upto)]
        for begin, end in zip(begins, [*begins[1:], FOR_EVER], strict=True):
            limits = settings_of(timeline.at(begin))
            key = limits.field("key", limits.of(names), NO_KEY)
            ended |= (key != self.state["settings"][rows]) & (last < end)
        return ended

    def _has_learned(self, row: int, settings: LimitSettings) -> bool:
        """Whether a row differs from that of a partition never seen."""
        fresh = self.state[row : row + 1].copy()
        start(fresh[0], settings.row[0])
        fresh["written"] = self.state["written"][row]
        return bool(fresh[0] != self.state[row])


def _decisions(samples: Samples, at: Integers, chosen: Integers, results: _Results) -> DecisionRows:
    """The decisions of docs/contract.md 3.4 on these samples."""
    event, partition = pa.array(samples.event[chosen]), samples.partition[chosen]
    columns = {
        "id": samples.ids(chosen),
        "ts": samples.rows["ts"].take(event),
        "partition": worded(partition, samples.names),
        "algorithm": worded(results.algorithm[chosen], pa.array(_NAMES)),
        "limit": pa.array(results.limit[chosen]),
        "estimated_limit": pa.array(results.estimate[chosen]),
        "ttl_ms": pa.array(np.full(len(chosen), LIMIT_TTL_MS)),
    }
    shadow = results.shadow[chosen]
    if shadow.any():
        columns["shadow"] = pa.array(shadow, mask=~shadow)
    applied, ts = at[chosen], columns["ts"].to_numpy()
    if (applied != ts).any():
        columns["applied_ts"] = pa.array(applied, mask=applied == ts)
    return DecisionRows(
        type=DECISION.type,
        rows=pa.RecordBatch.from_pydict(columns),
        source=samples.rows["source"].take(event).to_numpy(),
        keys=samples.names,
        key=partition,
    )
