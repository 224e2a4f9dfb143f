"""State of the concurrency law: a row per partition, and the way of a batch of samples through it.

The law is in concurrency.py and limits.py. Here partitions become row numbers, policies become *eras*: the
stretches of a partition's time without a change of its algorithm or parameters. A new era starts the
partition afresh from `initialLimit`, since what one algorithm has learned means nothing to another; a policy
that only says the same in other words changes nothing, and one that leaves and comes back does.

A replay writes one decision per sample. The live job writes one per partition and batch, under the newest
sample's id, and only when the limit is not the one written last; a partition's first is always written.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming.columns.outputs import DecisionColumns
from streaming.contract.broker_events import Latency
from streaming.laws.concurrency.algorithms import STATE
from streaming.laws.concurrency.law import NOT_LIMITED, start, walk
from streaming.laws.concurrency.settings import SETTINGS, LimitSettings, entry_for
from streaming.laws.law import Batch, Decision, DecisionForm, Entry, LawState
from streaming.policy.policy_set import PolicySet
from streaming.policy.timeline import PolicyTimeline

TTL_MS: Final = 60_000
"""How long an enforcer may go by a limit (contract section 1)."""
MAX_PARTITIONS: Final = 65_536
"""Rows of one shard. A learned limit is not forgotten for being idle, since a partition that comes back would
start from `initialLimit` again; beyond this number those idle longest are, ties by name."""
NO_KEY: Final = 0
"""No LimitSettings has it: the partition is not limited."""
DECISION: Final = DecisionForm(type="limit", subject=("partition",), standing=("partition",))
Integers = NDArray[np.int64]


class _Eras:
    """Policies of one batch as numbers.

    Attributes:
        settings: of each era. Partitions share eras; those of one partition are all different.
        since: of each partition, the times (ms) from which its eras hold, ascending.
        numbers: of each partition, its eras in that order; NOT_LIMITED for none.
    """

    def __init__(self, names: int) -> None:
        self.settings: list[LimitSettings] = []
        self.since: list[list[int]] = [[] for _ in range(names)]
        self.numbers: list[list[int]] = [[] for _ in range(names)]
        self._numbers: dict[tuple[int, int], int] = {}
        self._newest = [NO_KEY] * names

    def add(self, u: int, time: int, settings: LimitSettings | None, *, at_start: bool) -> None:
        """Partition `u` goes by `settings` from `time` on; `at_start`: what came before does not count.

        What changes nothing begins no era; what is changed back does, after the one between.
        """
        key = NO_KEY if settings is None else settings.key
        if at_start:
            self.since[u].clear()
            self.numbers[u].clear()
        elif key == self._newest[u]:
            return
        number = NOT_LIMITED
        if settings is not None:
            # The place keeps an era that comes back apart from its first time.
            number = self._numbers.setdefault((len(self.numbers[u]), key), len(self.settings))
            if number == len(self.settings):
                self.settings.append(settings)
        self.since[u].append(time)
        self.numbers[u].append(number)
        self._newest[u] = key

    def of_events(self, at: Integers, of_event: Integers) -> Integers:
        """Era of each event, given its time and its partition."""
        era = np.array([numbers[0] for numbers in self.numbers], dtype=np.int64)[of_event]
        for u, numbers in enumerate(self.numbers):
            if len(numbers) > 1:
                mine = np.flatnonzero(of_event == u)
                place = np.searchsorted(np.array(self.since[u]), at[mine], side="right") - 1
                era[mine] = np.array(numbers)[place]
        return era


class ConcurrencyTable(LawState):
    """Limits of all partitions of a shard.

    Columns: `partition` text, and the fields of STATE by name.
    """

    def __init__(self) -> None:
        self.partitions: pa.Array = pa.array([], type=pa.string())
        self.state: NDArray[Any] = np.zeros(0, dtype=STATE)
        # Entry -> settings; holds the entry too, so that its id is not given to another one.
        self._known: dict[int, tuple[Mapping[str, Any], LimitSettings]] = {}

    def __len__(self) -> int:
        return len(self.partitions)

    @classmethod
    def from_columns(cls, columns: Mapping[str, pa.Array]) -> Self:
        """The table that `columns` described; an empty mapping gives an empty table."""
        table = cls()
        if not columns:
            return table
        table.partitions = columns["partition"]
        table.state = np.zeros(len(table.partitions), dtype=STATE)
        for name in table.state.dtype.names or ():
            table.state[name] = columns[name].to_numpy(zero_copy_only=False)
        return table

    def columns(self) -> dict[str, pa.Array]:
        """The table as Arrow columns, for the checkpoint."""
        fields = {name: pa.array(self.state[name].copy()) for name in self.state.dtype.names or ()}
        return {"partition": self.partitions, **fields}

    def fold(self, batch: Batch) -> DecisionColumns:
        """Decide samples in order."""
        entries: list[Entry] = batch.events
        events: list[Latency] = [entry.event for entry in entries]
        encoded = pa.array([event.partition for event in events], type=pa.string()).dictionary_encode()
        names, of_event = encoded.dictionary, encoded.indices.to_numpy()
        rows = self._rows(names)
        at = np.array([event.at for event in events], dtype=np.int64)
        seen = np.full(len(names), -1, dtype=np.int64)
        seen[rows >= 0] = self.state["last"][rows[rows >= 0]]
        np.maximum(at, seen[of_event], out=at)
        eras = self._eras(batch.timeline, names.to_pylist(), seen, at, of_event)
        era = eras.of_events(at, of_event)
        rows = self._add(names, rows, np.unique(of_event[era != NOT_LIMITED]))
        limit, estimate = np.zeros(len(events), dtype=np.int64), np.zeros(len(events))
        walk(
            at,
            rows[of_event],
            era,
            np.array([event.start_ns for event in events], dtype=np.int64),
            np.array([event.rtt_ns for event in events], dtype=np.int64),
            np.array([event.inflight for event in events], dtype=np.int64),
            np.array([event.did_drop for event in events], dtype=np.bool_),
            np.concatenate([np.zeros(0, dtype=SETTINGS), *(each.row for each in eras.settings)]),
            self._current(eras, rows, seen),
            self.state,
            limit,
            estimate,
        )
        chosen: list[int] = np.flatnonzero(era != NOT_LIMITED).tolist()
        newest = dict(zip(rows[of_event[chosen]].tolist(), chosen, strict=True))
        if not batch.replay:
            chosen = sorted(i for row, i in newest.items() if self.state["written"][row] != limit[i])
        for row, i in newest.items():
            self.state["written"][row] = limit[i]
            self.state["settings"][row] = eras.settings[era[i]].key
        if not batch.replay:
            self._bound()
        algorithms = [each.algorithm.value for each in eras.settings]
        numbers, estimates, of_era = limit.tolist(), estimate.tolist(), era.tolist()
        return DECISION.columns(
            [
                (entries[i].source, _decision(events[i], algorithms[of_era[i]], numbers[i], estimates[i]))
                for i in chosen
            ]
        )

    def sweep(self, timeline: PolicyTimeline, horizon: int) -> None:
        """Let rows go that are as if never seen: those at their start, and those of an era that ended.

        A learned limit stays however long its partition is idle, up to MAX_PARTITIONS. What changed up to
        `horizon` is settled for all, so that the timeline may forget it.
        """
        keep = np.ones(len(self), dtype=np.bool_)
        for row in np.flatnonzero(self.state["last"] < horizon).tolist():
            keep[row] = self._says_something(row, timeline, horizon)
        if not keep.all():
            self._keep(keep)
        self._bound()

    def _says_something(self, row: int, timeline: PolicyTimeline, horizon: int) -> bool:
        last, name = int(self.state["last"][row]), self.partitions[row].as_py()
        settings = self._settings_at(timeline.at(last), name)
        for time in timeline.changes(last, horizon):
            changed = self._settings_at(timeline.at(time), name)
            if settings is None or changed is None or changed.key != settings.key:
                return False
        if settings is None or settings.key != self.state["settings"][row]:
            return False
        fresh = self.state[row : row + 1].copy()
        start(fresh[0], settings.row[0])
        fresh["written"] = self.state["written"][row]
        return bool(fresh[0] != self.state[row])

    def _bound(self) -> None:
        """Hold the table to MAX_PARTITIONS."""
        surplus = len(self) - MAX_PARTITIONS
        if surplus <= 0:
            return
        names, last = self.partitions.to_pylist(), self.state["last"].tolist()
        keep = np.ones(len(self), dtype=np.bool_)
        keep[sorted(range(len(self)), key=lambda row: (last[row], names[row]))[:surplus]] = False
        self._keep(keep)

    def _keep(self, keep: NDArray[np.bool_]) -> None:
        self.partitions = self.partitions.filter(pa.array(keep))
        self.state = self.state[keep]

    def _rows(self, names: pa.Array) -> Integers:
        """Row of each partition, -1 where it has none."""
        found = pc.index_in(names, value_set=self.partitions)
        rows: Integers = found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        return rows

    def _add(self, names: pa.Array, rows: Integers, limited: Integers) -> Integers:
        """Rows after new ones were appended for those of `limited` that have none."""
        fresh = limited[rows[limited] < 0]
        if not len(fresh):
            return rows
        rows = rows.copy()
        rows[fresh] = np.arange(len(self), len(self) + len(fresh))
        self.partitions = pa.concat_arrays([self.partitions, names.take(pa.array(fresh))])
        self.state = np.concatenate([self.state, np.zeros(len(fresh), dtype=STATE)])
        return rows

    def _settings_at(self, policies: PolicySet, partition: str) -> LimitSettings | None:
        value = entry_for(policies, partition)
        if value is None:
            return None
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = (value, LimitSettings.of(value))
        return known[1]

    def _eras(
        self,
        timeline: PolicyTimeline,
        names: Sequence[str],
        seen: Integers,
        at: Integers,
        of_event: Integers,
    ) -> _Eras:
        """The eras of these partitions from their newest event (`seen`), else their first one here, on."""
        first = np.full(len(names), np.iinfo(np.int64).max)
        np.minimum.at(first, of_event, at)
        first[seen >= 0] = seen[seen >= 0]
        since = first.tolist()
        eras = _Eras(names=len(names))
        begin = min(since)
        for time in [begin, *timeline.changes(begin, int(at.max()))]:
            policies = timeline.at(time)
            for u, name in enumerate(names):
                eras.add(u, time, self._settings_at(policies, name), at_start=time <= since[u])
        return eras

    def _current(self, eras: _Eras, rows: Integers, seen: Integers) -> Integers:
        """The era that each row is in before the batch: its first, if that is what it was learned under."""
        current = np.full(len(self), NOT_LIMITED, dtype=np.int64)
        for u in np.flatnonzero(seen >= 0).tolist():
            number = eras.numbers[u][0]
            if number != NOT_LIMITED and eras.settings[number].key == self.state["settings"][rows[u]]:
                current[rows[u]] = number
        return current


def _decision(event: Latency, algorithm: str, limit: int, estimate: float) -> Decision:
    return {
        "type": "limit",
        "id": event.id,
        "ts": event.ts,
        "partition": event.partition,
        "algorithm": algorithm,
        "limit": limit,
        "estimated_limit": estimate,
        "ttl_ms": TTL_MS,
    }
