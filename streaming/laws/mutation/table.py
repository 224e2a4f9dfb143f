"""State of the mutation law: a row per subject, and the way of a batch of requests through it.

The law itself is in mutation.py. Here subjects become row numbers, quotas become terms, and what a change of
policy means for a balance is settled.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming.columns.byte_strings import NOWHERE, Integers
from streaming.columns.compiled import lean
from streaming.columns.outputs import DecisionColumns
from streaming.contract.names import DEFAULT_NAME
from streaming.laws.law import Batch, LawState
from streaming.laws.mutation.batch import Stretch, Walked, admissions, begin, label
from streaming.laws.mutation.intake import Asked
from streaming.laws.mutation.law import PLAIN_WINDOWS, State, Terms, walk
from streaming.laws.mutation.limits import QUOTAS_PREFIX, Quotas, quotas_of
from streaming.laws.mutation.rates import FULL, Doubles, refill, window_of
from streaming.laws.mutation.windows import NO_RING, plain_column, plain_of, ring_column, rings_of
from streaming.policy.timeline import PolicyTimeline
from streaming.state.blob_store import BlobStore
from streaming.state.cold_rows import ColdRows

WARM_ROWS: Final = 500
"""Rows that stay in the body of a shard: carrying one costs about 3 us a batch, a segment about 1 ms."""
_COLD: Final = "cold_rows"


class MutationTable(LawState):
    """Balances and windows of all subjects of a shard.

    Columns: `subject` text, `tokens` balance (inf: full), `last` ms of the last update, `plain` 11 windows of
    one second, `ring` the windows of a sampled rate (empty for a token bucket).
    """

    def __init__(self) -> None:
        self.subjects: pa.Array = pa.array([], type=pa.string())
        self.tokens: Doubles = np.empty(0)
        self.last: Integers = np.empty(0, dtype=np.int64)
        self.plain: Doubles = np.empty((0, PLAIN_WINDOWS))
        self.rings: dict[int, Doubles] = {}
        self.cold = ColdRows()

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def from_columns(cls, columns: Mapping[str, pa.Array]) -> Self:
        """The table that `columns` described; an empty mapping gives an empty table."""
        table = cls()
        if not columns:
            return table
        table.subjects = columns["subject"]
        # Copies: Arrow's memory is read-only and belongs to the checkpoint's bytes.
        table.tokens = columns["tokens"].to_numpy(zero_copy_only=False).copy()
        table.last = columns["last"].to_numpy(zero_copy_only=False).copy()
        table.plain = plain_of(columns["plain"])
        table.rings = rings_of(columns["ring"])
        return table

    def columns(self) -> dict[str, pa.Array]:
        """The table as Arrow columns, for the checkpoint."""
        return {
            "subject": self.subjects,
            "tokens": pa.array(self.tokens),
            "last": pa.array(self.last),
            "plain": plain_column(self.plain),
            "ring": ring_column(self.rings, len(self)),
        }

    def take_up(self, notes: Mapping[str, bytes], blobs: BlobStore | None) -> None:
        """Take up the cold rows."""
        self.cold = ColdRows(notes.get(_COLD), blobs)

    def leave(self) -> dict[str, bytes]:
        """Lay all rows to rest if they are many; the next batch takes out those that it needs."""
        if self.cold.possible and len(self) > WARM_ROWS:
            self.cold.add(self.columns())
            self._keep(np.zeros(len(self), dtype=np.bool_))
        return {_COLD: self.cold.to_bytes()} if self.cold.used else {}

    def _take_in(self, names: pa.Array) -> None:
        """Take the cold rows of these subjects into the table."""
        if not len(self.cold):
            return
        warm = self._rows(names) >= 0
        for columns in self.cold.take(names.filter(pa.array(~warm))):
            taken = MutationTable.from_columns(columns)
            self.rings |= {len(self) + row: ring for row, ring in taken.rings.items()}
            self.subjects = pa.concat_arrays([self.subjects, taken.subjects])
            self.tokens = np.concatenate([self.tokens, taken.tokens])
            self.last = np.concatenate([self.last, taken.last])
            self.plain = np.concatenate([self.plain, taken.plain])

    def fold(self, batch: Batch) -> DecisionColumns:
        """Decide requests and refunds in order: one decision a request, none a refund."""
        asked: Asked = batch.events
        timeline, routing_keys = batch.timeline, asked.routing_keys
        self._take_in(routing_keys.names)
        walked = begin(asked, batch.processed_ts)
        rows = self._rows(routing_keys.names)
        # A subject's time never goes back, so the policies that it is judged by do not either.
        seen = np.where(rows >= 0, self.last[rows] if len(self) else 0, 0)
        walked.move_on(seen[routing_keys.of])
        for stretch in walked.stretches(timeline):
            self._walk_stretch(walked, stretch, rows, timeline)
        return admissions(walked)

    def sweep(self, timeline: PolicyTimeline, horizon: int) -> None:
        """Let the subjects go whose row says nothing any more: bucket full, windows empty at `horizon`.

        Their leaving is neutral: a new row starts just like that. Changes of policy up to `horizon` are
        settled for all, so that the timeline may forget them.
        """
        changes = timeline.changed(-1, horizon)
        # A change of one subject's own entry concerns that row alone; one of a default any row.
        own = {path[len(QUOTAS_PREFIX) : -1] for _, path in changes if DEFAULT_NAME not in path}
        self._take_in(pa.array(sorted(own), type=pa.string()))
        self._settle(np.arange(len(self)), self.subjects, sorted({ts for ts, _ in changes}), timeline)
        common = sorted({ts for ts, path in changes if DEFAULT_NAME in path})
        if common:
            self.cold.rewrite(lambda columns: _settled(columns, common, timeline))
        quotas = quotas_of(timeline.at(horizon))
        keep = _speaking(self.subjects, self.tokens, self.last, quotas, horizon)
        if not keep.all():
            self._keep(keep)
        self.cold.keep(
            lambda columns: _speaking(
                columns["subject"], columns["tokens"].to_numpy(), columns["last"].to_numpy(), quotas, horizon
            )
        )

    def _keep(self, keep: NDArray[np.bool_]) -> None:
        moved = np.cumsum(keep) - 1
        self.rings = {int(moved[row]): ring for row, ring in self.rings.items() if keep[row]}
        self.subjects = self.subjects.filter(pa.array(keep))
        self.tokens, self.last, self.plain = self.tokens[keep], self.last[keep], self.plain[keep]

    def _rows(self, names: pa.Array) -> Integers:
        """Row of each subject, -1 where it has none."""
        found = pc.index_in(names, value_set=self.subjects)
        rows: Integers = found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        return rows

    def _add(self, names: pa.Array, at: int) -> Integers:
        """Append rows as a subject's first event finds them, bucket full and windows empty; their numbers."""
        first, count = len(self), len(names)
        self.subjects = pa.concat_arrays([self.subjects, names])
        self.tokens = np.concatenate([self.tokens, np.full(count, FULL)])
        self.last = np.concatenate([self.last, np.full(count, at, dtype=np.int64)])
        self.plain = np.concatenate([self.plain, np.zeros((count, PLAIN_WINDOWS))])
        return np.arange(first, first + count)

    def _walk_stretch(
        self, walked: Walked, stretch: Stretch, rows: Integers, timeline: PolicyTimeline
    ) -> None:
        """Walk the events of one stretch of time without a change of policy.

        Args:
            walked: the batch.
            stretch: which events, and whose.
            rows: of all routing keys of the batch; those that are added are filled in.
            timeline: the policies.
        """
        policies = timeline.at(stretch.at)
        quotas = quotas_of(policies)
        names = walked.routing_keys.names.take(pa.array(stretch.routing_keys))
        number = quotas.of(names)
        limited = number >= 0
        charged = stretch.routing_keys[limited]
        rows[charged] = self._prepare(names.filter(pa.array(limited)), rows[charged], stretch.at, timeline)
        row = np.where(limited, rows[stretch.routing_keys], NOWHERE)
        samples = np.where(limited, quotas.samples[number] if len(quotas.samples) else 0, 0)
        rings, ring_first = self._gather_rings(row, samples)
        rate, burst = (
            np.where(limited, column[number] if len(column) else 0.0, 0.0)
            for column in (quotas.rate, quotas.burst)
        )
        terms = Terms(row=row, rate=rate, burst=burst, samples=samples, ring_first=ring_first)
        shadow = limited & (quotas.shadow[number] if len(quotas.shadow) else False)
        walked.labels.append(label(terms, stretch, policies.version, shadow))
        state = State(tokens=self.tokens, last=self.last, plain=self.plain, rings=rings)
        walk(stretch.order, walked.events, terms, stretch.base, state, walked.results)
        for term in np.flatnonzero(samples):
            begin, end = ring_first[term], ring_first[term] + samples[term]
            self.rings[int(row[term])] = rings[begin:end].copy()

    def _prepare(self, names: pa.Array, rows: Integers, at: int, timeline: PolicyTimeline) -> Integers:
        """Rows of these subjects, new ones added, old ones settled up to `at`."""
        fresh = rows < 0
        known = ~fresh
        if known.any():
            changes = timeline.changed(int(self.last[rows[known]].min()), at)
            if changes:
                times = sorted({ts for ts, _ in changes})
                self._settle(rows[known], names.filter(pa.array(known)), times, timeline)
        if fresh.any():
            rows = rows.copy()
            rows[fresh] = self._add(names.filter(pa.array(fresh)), at)
        return rows

    def _settle(
        self, rows: Integers, names: pa.Array, changes: Sequence[int], timeline: PolicyTimeline
    ) -> None:
        """What the changes since each row's last update mean for it; doing it twice does no harm.

        Kafka swaps the rate and keeps the balance (facts/kip599.md 1.2). Only what leaving the table would
        have made of the row must be done by hand: a bucket that was full at a change stays full, and a
        subject that had no quota, or another algorithm, starts afresh.
        """
        for change in changes:
            concerned = self.last[rows] < change
            if not concerned.any():
                continue
            old, new = quotas_of(timeline.at(change - 1)), quotas_of(timeline.at(change))
            some, theirs = rows[concerned], names.filter(pa.array(concerned))
            before, after = old.of(theirs), new.of(theirs)
            afresh = (before < 0) | (after < 0)
            both = ~afresh
            afresh[both] = old.sampled(before[both]) != new.sampled(after[both])
            for row in some[afresh].tolist():
                self.rings.pop(row, None)
            self.tokens[some[afresh]] = FULL
            kept, number = some[~afresh], before[~afresh]
            _fill_up(kept, self.tokens, self.last, change, number, old.rate, old.burst)

    def _gather_rings(self, row: Integers, samples: Integers) -> tuple[Doubles, Integers]:
        """The windows of all sampled subjects end to end, and where those of each begin."""
        first = np.cumsum(samples) - samples
        pieces: list[Doubles] = []
        for term in np.flatnonzero(samples):
            ring = self.rings.get(int(row[term]), NO_RING)
            pieces.append(_resized(ring, int(samples[term]), int(self.last[row[term]])))
        return (np.concatenate(pieces) if pieces else NO_RING.copy()), first


def _resized(ring: Doubles, length: int, last: int) -> Doubles:
    """The newest windows of `ring`, whose last update was at `last` ms, in a ring of another length."""
    if len(ring) == length:
        return ring
    resized = np.zeros(length)
    newest = window_of(last)
    for window in range(newest - min(len(ring), length) + 1, newest + 1):
        resized[window % length] = ring[window % len(ring)]
    return resized


@lean
def _fill_up(
    rows: Integers, tokens: Doubles, last: Integers, at: int, number: Integers, rate: Doubles, burst: Doubles
) -> None:
    """Mark the buckets that are full at `at` ms as full, whatever their burst becomes."""
    for position in range(len(rows)):
        row, quota = rows[position], number[position]
        if refill(tokens[row], rate[quota], burst[quota], at - last[row]) >= burst[quota]:
            tokens[row] = np.inf


def _settled(
    columns: Mapping[str, pa.Array], changes: Sequence[int], timeline: PolicyTimeline
) -> dict[str, pa.Array]:
    """These rows after these changes."""
    table = MutationTable.from_columns(columns)
    table._settle(np.arange(len(table)), table.subjects, changes, timeline)
    return table.columns()


def _speaking(
    names: pa.Array, tokens: Doubles, last: Integers, quotas: Quotas, horizon: int
) -> NDArray[np.bool_]:
    """Whether each row differs, at `horizon` and later, from one that is not there."""
    keep = np.empty(len(names), dtype=np.bool_)
    _say_something(
        tokens, last, horizon, quotas.of(names), quotas.rate, quotas.burst, quotas.samples, keep
    )
    return keep


@lean
def _say_something(
    tokens: Doubles, last: Integers, horizon: int, number: Integers, rate: Doubles,
    burst: Doubles, samples: Integers, keep: NDArray[np.bool_],
) -> None:  # fmt: skip
    for row in range(len(keep)):
        quota = number[row]
        idle_windows = window_of(horizon) - window_of(last[row])
        if idle_windows < PLAIN_WINDOWS:
            keep[row] = True
        elif quota < 0:
            keep[row] = False
        elif samples[quota] > 0:
            keep[row] = idle_windows < samples[quota]
        else:
            filled = refill(tokens[row], rate[quota], burst[quota], horizon - last[row])
            keep[row] = filled < burst[quota]
