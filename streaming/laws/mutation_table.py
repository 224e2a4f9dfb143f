"""State of the mutation law: a row per subject, and the way of a batch of events through it.

The law itself is in mutation.py. Here subjects become row numbers, quotas become columns, and what a change
of policy means for a balance is settled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming.contract.events import Refund, Request
from streaming.contract.policy import Algorithm, MutationQuota
from streaming.contract.policy_timeline import PolicyTimeline
from streaming.laws.law import Batch, Decision
from streaming.laws.mutation import (
    ALLOW,
    PERMISSIVE,
    PLAIN_WINDOWS,
    REFUND,
    REFUSED,
    REJECT,
    STRICT,
    THROTTLE,
    walk,
)
from streaming.laws.rates import FULL, Doubles, refill, sample_count, window_of

OUTCOMES: Final = {ALLOW: "allow", REJECT: "reject", THROTTLE: "throttle"}
NO_RING: Final[Doubles] = np.empty(0)
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Columns:
    """One batch of events as columns; see `mutation.walk` for their meaning."""

    at: Integers
    of_ts: Integers
    mode: Integers
    dry: NDArray[np.bool_]
    first: Integers
    mutations: Doubles
    rejected: NDArray[np.bool_]
    row: Integers
    rate: Doubles
    burst: Doubles
    samples: Integers
    ring_first: Integers
    outcome: Integers
    wait_ms: Integers
    level: Doubles
    plain_rate: Doubles

    @classmethod
    def of(cls, events: Sequence[Request | Refund], processed_ts: int | None) -> Self:
        count = len(events)
        items = [e.mutations if isinstance(e, Request) else (e.mutations,) for e in events]
        first = np.zeros(count + 1, dtype=np.int64)
        np.cumsum([len(numbers) for numbers in items], out=first[1:])
        mutations = np.array([number for numbers in items for number in numbers], dtype=np.float64)
        return cls(
            at=np.array([e.at for e in events], dtype=np.int64),
            of_ts=np.array([e.of_ts if isinstance(e, Refund) else 0 for e in events], dtype=np.int64),
            mode=np.array([_mode(e, processed_ts) for e in events], dtype=np.int64),
            dry=np.array([isinstance(e, Request) and e.validate_only for e in events], dtype=np.bool_),
            first=first,
            mutations=mutations,
            rejected=np.zeros(len(mutations), dtype=np.bool_),
            row=np.full(count, -1, dtype=np.int64),
            rate=np.zeros(count),
            burst=np.zeros(count),
            samples=np.zeros(count, dtype=np.int64),
            ring_first=np.zeros(count, dtype=np.int64),
            outcome=np.zeros(count, dtype=np.int64),
            wait_ms=np.zeros(count, dtype=np.int64),
            level=np.zeros(count),
            plain_rate=np.zeros(count),
        )


def is_late(event: Request, processed_ts: int | None) -> bool:
    """Whether the proxy had answered without us (contract 3.1).

    Args:
        processed_ts: wall time of the batch in ms, None in a replay, where the log says so itself.
    """
    if processed_ts is None or event.deadline_ms is None:
        return event.late
    return event.late or processed_ts > event.ts + event.deadline_ms


def _mode(event: Request | Refund, processed_ts: int | None) -> int:
    if isinstance(event, Refund):
        return REFUND
    late = is_late(event, processed_ts)
    if event.answered or (late and event.reject_late):
        return REFUSED
    return PERMISSIVE if late or not event.strict else STRICT


class MutationTable:
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
        table.plain = (
            columns["plain"].flatten().to_numpy(zero_copy_only=False).copy().reshape(-1, PLAIN_WINDOWS)
        )
        offsets = columns["ring"].offsets.to_numpy()
        windows = columns["ring"].values.to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(np.diff(offsets)):
            table.rings[int(row)] = windows[offsets[row] : offsets[row + 1]].copy()
        return table

    def columns(self) -> dict[str, pa.Array]:
        """The table as Arrow columns, for the checkpoint."""
        lengths = np.zeros(len(self) + 1, dtype=np.int32)
        for row, ring in self.rings.items():
            lengths[row + 1] = len(ring)
        rings = [self.rings[row] for row in sorted(self.rings)]
        windows = np.concatenate(rings) if rings else NO_RING
        return {
            "subject": self.subjects,
            "tokens": pa.array(self.tokens),
            "last": pa.array(self.last),
            "plain": pa.FixedSizeListArray.from_arrays(pa.array(self.plain.reshape(-1)), PLAIN_WINDOWS),
            "ring": pa.ListArray.from_arrays(pa.array(np.cumsum(lengths, dtype=np.int32)), pa.array(windows)),
        }

    def fold(self, batch: Batch) -> list[tuple[int, Decision]]:
        """Decide requests and refunds in order: one decision a request, none a refund.

        The homes of the entries are their quota entities; empty: not limited.
        """
        if not batch.entries:
            return []
        timeline, processed_ts = batch.timeline, batch.processed_ts
        events = [cast(Request | Refund, entry.event) for entry in batch.entries]
        columns = _Columns.of(events, processed_ts)
        homes = np.array([entry.home for entry in batch.entries], dtype=object)
        names, of_event = np.unique(homes, return_inverse=True)
        known = self._rows(names.tolist())
        # A subject's time never goes back, so the policies that it is judged by do not either.
        seen = np.where(known >= 0, self.last[known] if len(self) else 0, 0)
        np.maximum(columns.at, seen[of_event], out=columns.at)
        quotas: list[MutationQuota | None] = [None] * len(events)
        versions = np.zeros(len(events), dtype=np.int64)
        changes = np.array(timeline.changes(int(columns.at.min()), int(columns.at.max())), dtype=np.int64)
        stretch = np.searchsorted(changes, columns.at, side="right")
        for number in np.unique(stretch):
            order = np.flatnonzero(stretch == number)
            at = int(columns.at[order].min())
            versions[order] = timeline.at(at).version
            self._walk_stretch(columns, order, names, of_event, quotas, timeline, at)
        return [
            (entry.source, _decision(event, i, columns, quotas[i], int(versions[i]), processed_ts))
            for i, (entry, event) in enumerate(zip(batch.entries, events, strict=True))
            if isinstance(event, Request)
        ]

    def sweep(self, timeline: PolicyTimeline, horizon: int) -> None:
        """Let the subjects go whose row says nothing any more: bucket full, windows empty at `horizon`.

        Their leaving is neutral: a new row starts just like that. Changes of policy up to `horizon` are
        settled for all, so that the timeline may forget them.
        """
        changes = timeline.changes(-1, horizon)
        policies = timeline.at(horizon)
        keep = np.ones(len(self), dtype=np.bool_)
        for row in np.flatnonzero(self.last < horizon):
            subject = self.subjects[int(row)].as_py()
            self._settle(int(row), subject, changes, timeline)
            keep[row] = self._says_something(int(row), policies.mutation_quota_of_subject(subject), horizon)
        if not keep.all():
            self._keep(keep)

    def policies_from(self, horizon: int) -> int:
        """As old as `horizon`: sweeping settles what earlier changes mean."""
        return horizon

    def _says_something(self, row: int, quota: MutationQuota | None, horizon: int) -> bool:
        idle_windows = window_of(horizon) - window_of(int(self.last[row]))
        if idle_windows < PLAIN_WINDOWS:
            return True
        if quota is None:
            return False
        if quota.algorithm == Algorithm.SAMPLED_RATE:
            return idle_windows < sample_count(quota.rate, quota.burst)
        elapsed_ms = horizon - int(self.last[row])
        return refill(float(self.tokens[row]), quota.rate, quota.burst, elapsed_ms) < quota.burst

    def _keep(self, keep: NDArray[np.bool_]) -> None:
        moved = np.cumsum(keep) - 1
        self.rings = {int(moved[row]): ring for row, ring in self.rings.items() if keep[row]}
        self.subjects = self.subjects.filter(pa.array(keep))
        self.tokens, self.last, self.plain = self.tokens[keep], self.last[keep], self.plain[keep]

    def _rows(self, names: list[str]) -> Integers:
        """Row of each subject, -1 where it has none."""
        found = pc.index_in(pa.array(names, type=pa.string()), value_set=self.subjects)
        rows: Integers = found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        return rows

    def _add(self, names: list[str], at: int) -> None:
        """Append rows as a subject's first event finds them: bucket full, windows empty."""
        count = len(names)
        self.subjects = pa.concat_arrays([self.subjects, pa.array(names, type=pa.string())])
        self.tokens = np.concatenate([self.tokens, np.full(count, FULL)])
        self.last = np.concatenate([self.last, np.full(count, at, dtype=np.int64)])
        self.plain = np.concatenate([self.plain, np.zeros((count, PLAIN_WINDOWS))])

    def _walk_stretch(
        self,
        columns: _Columns,
        order: Integers,
        names: NDArray[Any],
        of_event: Integers,
        quotas: list[MutationQuota | None],
        timeline: PolicyTimeline,
        at: int,
    ) -> None:
        """Walk the events of one stretch of time without a change of policy; fills `quotas` by event."""
        policies = timeline.at(at)
        present = np.unique(of_event[order])
        limits = {int(u): policies.mutation_quota_of_subject(names[u]) for u in present}
        limited = [u for u, quota in limits.items() if quota is not None]
        if not limited:
            return
        rows = self._prepare_rows([names[u] for u in limited], at, timeline)
        rings, ring_first = self._gather_rings(rows, [limits[u] for u in limited])
        order = order[np.isin(of_event[order], limited)]
        spot = np.searchsorted(np.array(limited), of_event[order])  # `limited` ascends: np.unique sorted it
        chosen = [limits[u] for u in limited]
        columns.row[order] = np.array(rows, dtype=np.int64)[spot]
        columns.rate[order] = np.array([quota.rate if quota else 0.0 for quota in chosen])[spot]
        columns.burst[order] = np.array([quota.burst if quota else 0.0 for quota in chosen])[spot]
        columns.samples[order] = np.array([len(self.rings[row]) if row in ring_first else 0 for row in rows])[
            spot
        ]
        columns.ring_first[order] = np.array([ring_first.get(row, 0) for row in rows])[spot]
        for i, place in zip(order.tolist(), spot.tolist(), strict=True):
            quotas[i] = chosen[place]
        walk(
            order, columns.at, columns.of_ts, columns.mode, columns.dry, columns.first,
            columns.mutations, columns.rejected, columns.row, columns.rate, columns.burst, columns.samples,
            columns.ring_first,
            self.tokens, self.last, self.plain, rings,
            columns.outcome, columns.wait_ms, columns.level, columns.plain_rate,
        )  # fmt: skip
        for row, first in ring_first.items():
            self.rings[row] = rings[first : first + len(self.rings[row])].copy()

    def _prepare_rows(self, names: list[str], at: int, timeline: PolicyTimeline) -> list[int]:
        """Rows of these subjects, new ones added, old ones settled up to `at`."""
        rows = self._rows(names)
        fresh = [name for name, row in zip(names, rows, strict=True) if row < 0]
        if fresh:
            self._add(fresh, at)
            rows = self._rows(names)
        changes = timeline.changes(int(self.last[rows].min()), at)
        for name, row in zip(names, rows, strict=True):
            if changes and self.last[row] < changes[-1]:
                self._settle(int(row), name, changes, timeline)
        return [int(row) for row in rows]

    def _settle(self, row: int, subject: str, changes: Sequence[int], timeline: PolicyTimeline) -> None:
        """What the changes since the row's last update mean for it; doing it twice does no harm.

        Kafka swaps the rate and keeps the balance (facts/kip599.md 1.2). Only what leaving the table would
        have made of the row must be done by hand: a bucket that was full at a change stays full, and a
        subject that had no quota, or another algorithm, starts afresh.
        """
        last = int(self.last[row])
        for change in changes:
            if change <= last:
                continue
            old = timeline.at(change - 1).mutation_quota_of_subject(subject)
            new = timeline.at(change).mutation_quota_of_subject(subject)
            if old is None or new is None or old.algorithm != new.algorithm:
                self.tokens[row] = FULL
                self.rings.pop(row, None)
            elif refill(float(self.tokens[row]), old.rate, old.burst, change - last) >= old.burst:
                self.tokens[row] = FULL

    def _gather_rings(
        self, rows: Sequence[int], quotas: Sequence[MutationQuota | None]
    ) -> tuple[Doubles, dict[int, int]]:
        """The windows of all sampled subjects end to end, and where those of each row begin."""
        pieces: list[Doubles] = []
        first: dict[int, int] = {}
        position = 0
        for row, quota in zip(rows, quotas, strict=True):
            if quota is None or quota.algorithm != Algorithm.SAMPLED_RATE:
                continue
            ring = _resized(
                self.rings.get(row, NO_RING), sample_count(quota.rate, quota.burst), int(self.last[row])
            )
            self.rings[row] = ring
            first[row] = position
            pieces.append(ring)
            position += len(ring)
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


def _decision(
    event: Request,
    i: int,
    columns: _Columns,
    quota: MutationQuota | None,
    version: int,
    processed_ts: int | None,
) -> Decision:
    """The admission of contract 3.1; `mutations` (charged) and the bucket's plain `rate` are additions."""
    gone = columns.rejected[columns.first[i] : columns.first[i + 1]]
    if quota is None:
        gone = np.full(len(event.names), columns.mode[i] == REFUSED)
    charged = (
        0 if event.validate_only else sum(n for n, out in zip(event.mutations, gone, strict=True) if not out)
    )
    decision: Decision = {
        "type": "admission",
        "id": event.id,
        "ts": event.ts,
        "proxy": event.proxy,
        "subject": "" if quota is None else quota.subject,
        "algorithm": None if quota is None else quota.algorithm,
        "outcome": OUTCOMES[int(columns.outcome[i])]
        if quota is not None
        else "reject"
        if gone.any()
        else "allow",
        "throttle_time_ms": int(columns.wait_ms[i]),
        "rejected": [name for name, out in zip(event.names, gone, strict=True) if out],
    }
    if quota is not None and quota.algorithm == Algorithm.SAMPLED_RATE:
        decision["rate"] = float(columns.level[i])
    elif quota is not None:
        decision["tokens"] = float(columns.level[i])
        decision["rate"] = float(columns.plain_rate[i])
    decision["limit"] = None if quota is None else quota.rate
    decision["mutations"] = charged
    decision["policy_version"] = version
    decision["shadow"] = quota is not None and quota.shadow
    if is_late(event, processed_ts):
        decision["late"] = True
    if event.answered:
        decision["answered"] = "not_before"
    return decision
