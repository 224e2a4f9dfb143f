"""State of the concurrency law: a row per partition, and the way of a batch of samples through it.

The law is in law.py and algorithms.py. Here partitions become row numbers and policies settings. A change of
a partition's algorithm or parameters starts it afresh from `initialLimit`, since what one algorithm has
learned means nothing to another; a policy that only says the same in other words changes nothing, and one
that leaves and comes back does.

A replay writes one decision per sample. The live job writes one per partition and batch, under the newest
sample's id, and only when the limit is not the one written last; a partition's first is always written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import pyarrow as pa

from streaming.columns.outputs import DecisionColumns
from streaming.contract.broker_events import Latency
from streaming.laws.concurrency.algorithms import STATE
from streaming.laws.concurrency.law import NOT_LIMITED, Doubles, Flags, Integers, start, walk
from streaming.laws.concurrency.settings import NUMBERS, SETTINGS, LimitSettings, settings_of
from streaming.laws.law import FOR_EVER, Batch, Decision, DecisionForm, Entry, LawState
from streaming.policy.derived import stretches
from streaming.policy.timeline import PolicyTimeline
from streaming.state.subject_table import SubjectTable

TTL_MS: Final = 60_000
"""How long an enforcer may go by a limit (docs/contract.md 1)."""
MAX_PARTITIONS: Final = 65_536
"""Rows of one shard. A learned limit is not forgotten for being idle, since a partition that comes back would
start from `initialLimit` again; beyond this number those idle longest are, ties by name."""
NO_KEY: Final = 0
"""No LimitSettings has it: the partition is not limited."""
DECISION: Final = DecisionForm(type="limit", subject=("partition",), standing=("partition",))
_NAMES: Final = {number: algorithm.value for algorithm, number in NUMBERS.items()}


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch of samples as columns; see `law.walk` for their meaning."""

    at: Integers
    row: Integers
    start_ns: Integers
    rtt: Integers
    inflight: Integers
    drop: Flags
    setting: Integers
    limit: Integers
    estimate: Doubles
    algorithm: Integers

    @classmethod
    def of(cls, events: Sequence[Latency]) -> Self:
        count = len(events)
        return cls(
            at=np.array([event.at for event in events], dtype=np.int64),
            row=np.full(count, NOT_LIMITED, dtype=np.int64),
            start_ns=np.array([event.start_ns for event in events], dtype=np.int64),
            rtt=np.array([event.rtt_ns for event in events], dtype=np.int64),
            inflight=np.array([event.inflight for event in events], dtype=np.int64),
            drop=np.array([event.did_drop for event in events], dtype=np.bool_),
            setting=np.zeros(count, dtype=np.int64),
            limit=np.zeros(count, dtype=np.int64),
            estimate=np.zeros(count),
            algorithm=np.zeros(count, dtype=np.int64),
        )


class ConcurrencyTable(SubjectTable, LawState):
    """Limits of all partitions of a shard, by their names."""

    dtype = STATE

    def fold(self, batch: Batch) -> DecisionColumns:
        """Decide samples in order."""
        entries: list[Entry] = batch.events
        events: list[Latency] = [entry.event for entry in entries]
        encoded = pa.array([event.partition for event in events], type=pa.string()).dictionary_encode()
        names, of_event = encoded.dictionary, encoded.indices.to_numpy()
        columns, rows = _Batch.of(events), self.rows(names)
        seen = np.full(len(names), -1, dtype=np.int64)
        seen[rows >= 0] = self.state["last"][rows[rows >= 0]]
        np.maximum(columns.at, seen[of_event], out=columns.at)
        for order, at in stretches(columns.at, batch.timeline):
            self._walk_stretch(columns, order, at, names, of_event, rows, batch.timeline)
        chosen: list[int] = np.flatnonzero(columns.row != NOT_LIMITED).tolist()
        newest = dict(zip(columns.row[chosen].tolist(), chosen, strict=True))
        written = self.state["written"]
        if not batch.replay:
            chosen = sorted(i for row, i in newest.items() if written[row] != columns.limit[i])
        written[list(newest)] = columns.limit[list(newest.values())]
        if not batch.replay:
            self.bound(MAX_PARTITIONS)
        return DECISION.columns([(entries[i].source, _decision(events[i], i, columns)) for i in chosen])

    def sweep(self, timeline: PolicyTimeline, horizon: int) -> None:
        """Let rows go that are as if never seen: those at their start, and those of an era that ended.

        A learned limit stays however long its partition is idle, up to MAX_PARTITIONS. What changed up to
        `horizon` is settled for all, so that the timeline may forget it.
        """
        idle = np.flatnonzero(self.state["last"] < horizon)
        afresh = self._ended(idle, horizon, timeline)
        limits = settings_of(timeline.at(horizon))
        number = limits.of(self.names.take(pa.array(idle)))
        keep = np.ones(len(self), dtype=np.bool_)
        for row, settings, ended in zip(idle.tolist(), number.tolist(), afresh.tolist(), strict=True):
            keep[row] = not ended and self._has_learned(row, limits.kinds[settings])
        self.keep(keep)
        self.bound(MAX_PARTITIONS)

    def _walk_stretch(
        self, columns: _Batch, order: Integers, at: int, names: pa.Array, of_event: Integers, rows: Integers,
        timeline: PolicyTimeline,
    ) -> None:  # fmt: skip
        """Walk the samples of one stretch of time, which begin at `at` ms, without a change of policy.

        Args:
            columns: the batch.
            order: which samples.
            at: see there.
            names: of all partitions of the batch.
            of_event: number of each event's partition among them.
            rows: of these; those that are added are filled in.
            timeline: the policies.
        """
        present = np.unique(of_event[order])
        limits = settings_of(timeline.at(at))
        kind = limits.of(names.take(pa.array(present)))
        present, kind = present[kind >= 0], kind[kind >= 0]
        known = rows[present] >= 0
        afresh = ~known
        afresh[known] = self._ended(rows[present[known]], at, timeline)
        rows[present[~known]] = self.add(names.take(pa.array(present[~known])))
        for row, number in zip(rows[present[afresh]].tolist(), kind[afresh].tolist(), strict=True):
            start(self.state[row], limits.kinds[number].row[0])
            self.state["settings"][row] = limits.kinds[number].key
        used, number = np.unique(kind, return_inverse=True)
        settings = np.concatenate([np.zeros(0, SETTINGS), *(limits.kinds[each].row for each in used)])
        # By partition of the batch; those that are not present have no event in `order`.
        row, setting = np.full((2, len(names)), NOT_LIMITED)
        row[present], setting[present] = rows[present], number
        columns.row[order], columns.setting[order] = row[of_event[order]], setting[of_event[order]]
        walk(
            order, columns.at, columns.row, columns.start_ns, columns.rtt, columns.inflight, columns.drop,
            settings, columns.setting, self.state, columns.limit, columns.estimate,
        )  # fmt: skip
        limited = order[columns.row[order] != NOT_LIMITED]
        columns.algorithm[limited] = settings["algorithm"][columns.setting[limited]]

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


def _decision(event: Latency, i: int, columns: _Batch) -> Decision:
    return {
        "type": "limit",
        "id": event.id,
        "ts": event.ts,
        "partition": event.partition,
        "algorithm": _NAMES[int(columns.algorithm[i])],
        "limit": int(columns.limit[i]),
        "estimated_limit": float(columns.estimate[i]),
        "ttl_ms": TTL_MS,
    }
