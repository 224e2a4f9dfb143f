"""State of the mutation law: a row per subject, and the way of a batch of requests through it.

The law itself is in law.py. Here subjects become row numbers, quotas become terms, and what a change of
policy means for a balance is settled.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns.byte_strings import NOWHERE, Integers
from streaming.columns.compiled import lean, machine
from streaming.columns.limit_index import NOTHING
from streaming.columns.outputs import DecisionRows, DecisionTexts
from streaming.laws.law import Batch, DecisionForm, LawState
from streaming.laws.mutation import law, rates
from streaming.laws.mutation.admissions import ADMISSION, admissions
from streaming.laws.mutation.batch import Label, MutationBatch, PolicySpan, begin
from streaming.laws.mutation.intake import OrderedRequests
from streaming.laws.mutation.law import PLAIN_WINDOWS, State, Terms
from streaming.laws.mutation.limits import DEFAULTS, QUOTAS_PREFIX, Quotas, quotas_of
from streaming.laws.mutation.rates import FULL, Doubles
from streaming.laws.mutation.statements import (
    Waiting,
    again,
    due,
    list_refunds,
    said_last,
    waiting_column,
    waiting_of,
    waits,
)
from streaming.policy.derived import SETS_MAX
from streaming.policy.timeline import PolicyTimeline
from streaming.state.blob_store import BlobStore
from streaming.state.cold_rows import ColdRows
from streaming.state.row_names import row_name, row_names
from streaming.state.subject_table import SUBJECT, Flags, Rows, SubjectTable, places_in

WARM_ROWS: Final = 500
"""Rows that stay in the body of a shard: carrying one costs about 3 us a batch, a segment about 1 ms."""
COLD, _LOOKED = "cold_rows", "looked"
LOOK_MS: Final = 5_000
"""How often, in event time, all rows are looked through for what must be said again."""
FORM: Final = DecisionForm(type=ADMISSION, subject=("subject",))
NO_RING: Final[Doubles] = np.empty(0)
_FOR_ALL: Final = ("", *DEFAULTS)
"""Entries that any row may depend on, as `_own_rows` names them."""
Change = tuple[int, str]
"""When an entry of the policies was changed, ms, and its path."""

walk, refill = machine(law.walk), machine(rates.refill)


class MutationTable(SubjectTable, LawState):
    """Balances and windows of all subjects of a shard.

    Fields: `tokens` balance (inf: full), `last` ms of the last update, `plain` 11 windows of one second.
    `said_at` ms when `said` was written last.
    Columns `ring`: the windows of a sampled rate (empty for a token bucket); `waiting`: refunds that no
    admission has listed; `said`: the newest admission, if it states a debt.
    """

    dtype = np.dtype(
        [
            ("tokens", np.float64), ("last", np.int64), ("plain", np.float64, PLAIN_WINDOWS),
            ("said_at", np.int64),
        ]
    )  # fmt: skip
    # Most windows are empty most of the time: a subject that rests has none.
    sparse = frozenset({"plain"})

    def __init__(self) -> None:
        super().__init__()
        self.rings: dict[int, Doubles] = {}
        self.waiting: Waiting = {}
        self.said: pa.Array = pa.array([], pa.binary())
        self.looked = -1
        self.cold = ColdRows()

    @classmethod
    def from_columns(cls, columns: Mapping[str, pa.Array]) -> Self:
        """The table that `columns` described; an empty mapping gives an empty table."""
        table = super().from_columns(columns)
        if columns:
            table.rings = rings_of(columns["ring"])
            table.waiting, table.said = waiting_of(columns["waiting"]), columns["said"]
        return table

    def columns(self) -> dict[str, pa.Array]:
        """The table as Arrow columns, for the checkpoint."""
        rings, waiting = ring_column(self.rings, len(self)), waiting_column(self.waiting, len(self))
        return {**super().columns(), "ring": rings, "waiting": waiting, "said": self.said}

    def append(self, names: pa.Array, state: Rows) -> Integers:
        """Append rows as they are, without anything beside their numbers."""
        self.said = pa.concat_arrays([self.said, pa.nulls(len(state), pa.binary())])
        return super().append(names, state)

    def keep(self, which: Flags) -> None:
        """Let all other rows go."""
        moved = np.cumsum(which) - 1
        self.rings = {int(moved[row]): ring for row, ring in self.rings.items() if which[row]}
        self.waiting = {int(moved[row]): names for row, names in self.waiting.items() if which[row]}
        self.said = self.said.filter(pa.array(which))
        super().keep(which)

    def take_up(self, notes: Mapping[str, bytes], blobs: BlobStore | None) -> None:
        """Take up the cold rows."""
        self.cold = ColdRows(notes.get(COLD), blobs)
        self.looked = int(notes.get(_LOOKED, b"-1"))

    def leave(self) -> dict[str, bytes]:
        """Lay all rows to rest if they are many; the next batch takes out those that it needs."""
        if self.cold.possible and len(self) > WARM_ROWS:
            self.cold.add(self.columns())
            self.keep(np.zeros(len(self), dtype=np.bool_))
        looked = {_LOOKED: b"%d" % self.looked}
        return looked | ({COLD: self.cold.to_bytes()} if self.cold.used else {})

    def repeats(self, now: int, timeline: PolicyTimeline) -> DecisionTexts | None:
        """The newest admissions of subjects with a quota, in debt for REPEAT_MS since it was said."""
        if now - self.looked < LOOK_MS:
            return None
        self.looked = now
        self._put(self.cold.take_where(lambda rows: due(rows["said"], rows["said_at"].to_numpy(), now)))
        rows = np.flatnonzero(due(self.said, self.state["said_at"], now))
        if not len(rows):
            return None
        texts = self.said.take(pa.array(rows)).to_pylist()
        number = quotas_of(timeline.at(now)).of(self.names.take(pa.array(rows)))
        limited = (number != NOTHING).tolist()
        repeated = [again(text, now) if owes else None for text, owes in zip(texts, limited, strict=True)]
        paid = [text if said else None for text, said in zip(texts, repeated, strict=True)]
        self._note(rows, pa.array(paid, pa.binary()), now)
        stated = [(0, said) for said in repeated if said]
        return FORM.columns(stated, now) if stated else None

    def _note(self, rows: Integers, said: pa.Array, at: int) -> None:
        """Keep what was said of these rows at a time (ms); null: nothing that must be said again."""
        place = np.arange(len(self))
        place[rows] = len(self) + np.arange(len(rows))
        self.said = pa.concat_arrays([self.said, said]).take(pa.array(place))
        self.state["said_at"][rows] = at

    def _take_in(self, names: pa.Array) -> None:
        """Take the cold rows of these subjects into the table."""
        if len(self.cold):
            warm = self.rows(names) >= 0
            self._put(self.cold.take(names.filter(pa.array(~warm))))

    def _put(self, rows: Sequence[Mapping[str, pa.Array]]) -> None:
        """Put rows that rested into the table, some of them at a time."""
        for columns in rows:
            taken = MutationTable.from_columns(columns)
            self.rings |= {len(self) + row: ring for row, ring in taken.rings.items()}
            self.waiting |= {len(self) + row: names for row, names in taken.waiting.items()}
            self.said = pa.concat_arrays([self.said, taken.said])
            super().append(taken.names, taken.state)

    def fold(self, batch: Batch) -> DecisionRows:
        """Decide requests and refunds in order: one decision a request, none a refund."""
        asked: OrderedRequests = batch.events
        timeline, routing_keys = batch.timeline, asked.routing_keys
        own = row_names(routing_keys.names)
        self._take_in(own)
        walked = begin(asked, batch.processed_ts, as_decided=batch.as_decided, anew=batch.anew)
        rows = self.rows(own)
        # A subject's time never goes back, so the policies that it is judged by do not either.
        seen = np.where(rows >= 0, self.state["last"][rows] if len(self) else 0, 0)
        walked.move_on(seen[routing_keys.of])
        for stretch in walked.stretches(timeline):
            self._walk_stretch(walked, stretch, own, rows, timeline)
        walked.refunds = list_refunds(walked, rows, self.waiting)
        decided = admissions(walked)
        if not batch.replay and len(decided):
            self._note_said(walked, decided, rows)
        return decided

    def _note_said(self, walked: MutationBatch, decided: DecisionRows, rows: Integers) -> None:
        """Keep what must be said again of the subjects of a batch, whose routing keys have these rows."""
        assert decided.key is not None
        # The key behind the last routing key is of those whom nobody limits.
        about, said = said_last(decided, np.append(rows, NOWHERE)[decided.key])
        self._note(about, said, int(walked.events.at[walked.asked.order].max()))

    def sweep(self, timeline: PolicyTimeline, horizon: int) -> None:
        """Let the subjects go whose row says nothing any more: bucket full, windows empty at `horizon`.

        Their leaving is neutral: a new row starts just like that. Changes of policy up to `horizon` are
        settled for all, so that the timeline may forget them.
        """
        changes = timeline.changed(-1, horizon)
        entries = _own_rows(changes)
        self._take_in(entries.unique())
        if any("<default>" in path for _, path in changes):
            self._put(self.cold.take_where(lambda columns: _are_half_of(columns[SUBJECT], entries)))
        self._settle(np.arange(len(self)), self.names, changes, timeline)
        common = [
            change for change, entry in zip(changes, entries.to_pylist(), strict=True) if entry in _FOR_ALL
        ]
        if common:
            self.cold.rewrite(lambda columns: _settled(columns, common, timeline))
        quotas = quotas_of(timeline.at(horizon))
        self.keep(_speaking(self.columns(), quotas, horizon))
        self.cold.keep(lambda columns: _speaking(columns, quotas, horizon))

    def _walk_stretch(
        self, walked: MutationBatch, stretch: PolicySpan, own: pa.Array, rows: Integers,
        timeline: PolicyTimeline,
    ) -> None:  # fmt: skip
        """Walk the events of one stretch of time without a change of policy.

        Args:
            walked: the batch.
            stretch: which events, and whose.
            own: names of the rows of all routing keys of the batch.
            rows: of all routing keys of the batch; those that are added are filled in.
            timeline: the policies.
        """
        policies = timeline.at(stretch.at)
        quotas = quotas_of(policies)
        names = own.take(pa.array(stretch.routing_keys))
        number = quotas.of(names)
        limited = number >= 0
        charged = stretch.routing_keys[limited]
        rows[charged] = self._prepare(names.filter(pa.array(limited)), rows[charged], stretch.at, timeline)
        terms, state = self.terms(np.where(limited, rows[stretch.routing_keys], NOWHERE), quotas, number)
        sampled, version = np.where(limited, terms.samples > 0, -1), np.full(len(number), policies.version)
        walked.labels.append(Label(sampled, stretch.routing_keys, terms.rate, version, quotas.shadow[number]))
        walk(stretch.order, walked.events, terms, stretch.base, state, walked.results)
        self.keep_rings(np.flatnonzero(terms.samples), terms, state)

    def terms(self, rows: Integers, quotas: Quotas, number: Integers) -> tuple[Terms, State]:
        """The terms of these rows by numbers of quotas, and the state that they go by."""
        samples = quotas.samples[number]
        rings, ring_first = self._gather_rings(rows, samples)
        terms = Terms(
            row=rows, rate=quotas.rate[number], burst=quotas.burst[number], samples=samples,
            ring_first=ring_first,
        )  # fmt: skip
        return terms, State(
            tokens=self.column("tokens"), last=self.column("last"), plain=self.column("plain"), rings=rings,
            spare=np.empty(int(samples.max(initial=0))),
        )  # fmt: skip

    def keep_rings(self, which: Integers, terms: Terms, state: State) -> None:
        """Keep the windows of these terms, which have some."""
        for term in which:
            begin, end = terms.ring_first[term], terms.ring_first[term] + terms.samples[term]
            self.rings[int(terms.row[term])] = state.rings[begin:end].copy()

    def _prepare(self, names: pa.Array, rows: Integers, at: int, timeline: PolicyTimeline) -> Integers:
        """Rows of these subjects, new ones added, old ones settled up to `at`."""
        fresh = rows < 0
        known = ~fresh
        if known.any():
            self.settle(rows[known], names.filter(pa.array(known)), at, timeline)
        if fresh.any():
            rows = rows.copy()
            # As a subject's first event finds them: windows empty, bucket full.
            rows[fresh] = self.add(names.filter(pa.array(fresh)), tokens=FULL, last=at)
        return rows

    def settle(self, rows: Integers, names: pa.Array, at: int, timeline: PolicyTimeline) -> None:
        """Settle these rows up to a time, ms."""
        changes = timeline.changed(int(self.state["last"][rows].min(initial=at)), at)
        if changes:
            self._settle(rows, names, changes, timeline)

    def _settle(
        self, rows: Integers, names: pa.Array, changes: Sequence[Change], timeline: PolicyTimeline
    ) -> None:
        """What those changes that came since each row's last update mean for it; twice does no harm.

        Kafka swaps the rate, not the balance (docs/protocol_notes.md 1.1). Only what leaving the table would
        have made of the row must be done by hand: a bucket that was full at a change stays full, and a
        subject that had no quota, or another algorithm, starts afresh.
        """
        tokens, last = self.column("tokens"), self.column("last")
        older = last[rows] < max((ts for ts, _ in changes), default=-1)
        rows, names = rows[older], names.filter(pa.array(older))
        for change in _times_for(names, changes):
            concerned = last[rows] < change
            if not concerned.any():
                continue
            old, new = quotas_of(timeline.at(change - 1)), quotas_of(timeline.at(change))
            some, theirs = rows[concerned], names.filter(pa.array(concerned))
            before, after = old.of(theirs), new.of(theirs)
            sampled = (old.samples[before] > 0) != (new.samples[after] > 0)
            afresh = (before == NOTHING) | (after == NOTHING) | sampled
            for row in some[afresh].tolist():
                self.rings.pop(row, None)
            tokens[some[afresh]] = FULL
            _fill_up(some[~afresh], tokens, last, change, before[~afresh], old.rate, old.burst)

    def _gather_rings(self, row: Integers, samples: Integers) -> tuple[Doubles, Integers]:
        """The windows of all sampled subjects end to end, and where those of each begin."""
        first = np.cumsum(samples) - samples
        pieces: list[Doubles] = []
        for term in np.flatnonzero(samples):
            ring = self.rings.get(int(row[term]), NO_RING)
            pieces.append(_resized(ring, int(samples[term]), int(self.state["last"][row[term]])))
        return (np.concatenate(pieces) if pieces else NO_RING.copy()), first


def ring_column(rings: Mapping[int, Doubles], rows: int) -> pa.Array:
    """Rings by row as lists, empty where there is none."""
    lengths = np.zeros(rows + 1, dtype=np.int32)
    for row, ring in rings.items():
        lengths[row + 1] = len(ring)
    windows = np.concatenate([rings[row] for row in sorted(rings)]) if rings else NO_RING
    return pa.ListArray.from_arrays(pa.array(np.cumsum(lengths, dtype=np.int32)), pa.array(windows))


def rings_of(column: pa.Array) -> dict[int, Doubles]:
    """The rings that `ring_column` wrote."""
    offsets = column.offsets.to_numpy()
    windows = column.values.to_numpy(zero_copy_only=False)
    return {
        int(row): windows[offsets[row] : offsets[row + 1]].copy() for row in np.flatnonzero(np.diff(offsets))
    }


def _resized(ring: Doubles, length: int, last: int) -> Doubles:
    """The newest windows of `ring`, whose last update was at `last` ms, in a ring of another length."""
    if len(ring) == length:
        return ring
    resized = np.zeros(length)
    newest = rates.window_of(last)
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


def _own_rows(changes: Sequence[Change]) -> pa.Array:
    """Name of the row whose own entry was changed; of an entry for many, no row's; of the mode, empty."""
    return pa.array([row_name(path[len(QUOTAS_PREFIX) : -1]) for _, path in changes], pa.string())


def _times_for(names: pa.Array, changes: Sequence[Change]) -> list[int]:
    """When changes were made that may concern rows of these names; others cost the quotas of a whole set.

    Of few sets those are at hand, and all count.
    """
    times = {ts for ts, _ in changes}
    if len(times) < SETS_MAX // 2:
        return sorted(times)
    entries = pa.concat_arrays([names, *_halves(names), pa.array(_FOR_ALL)])
    concern = places_in(entries, _own_rows(changes)) >= 0
    return sorted({ts for (ts, _), theirs in zip(changes, concern, strict=True) if theirs})


def _halves(names: pa.Array) -> list[pa.Array]:
    """Of rows the entries for all clients of each one's user, and for its client-id of all users."""
    of_user = pc.replace_substring_regex(names, ",[^,]*$", ",client-id=<default>")
    return [of_user, pc.replace_substring_regex(names, "^[^,]*,", "user=<default>,")]


def _are_half_of(names: pa.Array, entries: pa.Array) -> Flags:
    """Whether one of the two of each row is among these."""
    of_user, of_client = (places_in(entries, half) >= 0 for half in _halves(names))
    return of_user | of_client


def _settled(
    columns: Mapping[str, pa.Array], changes: Sequence[Change], timeline: PolicyTimeline
) -> dict[str, pa.Array]:
    """These rows after these changes."""
    table = MutationTable.from_columns(columns)
    table._settle(np.arange(len(table)), table.names, changes, timeline)
    return table.columns()


def _speaking(columns: Mapping[str, pa.Array], quotas: Quotas, horizon: int) -> Flags:
    """Whether each row differs, at `horizon` and later, from one that is not there."""
    tokens, last = columns["tokens"].to_numpy().copy(), columns["last"].to_numpy()
    number = quotas.of(columns[SUBJECT])
    _fill_up(np.arange(len(number)), tokens, last, horizon, number, quotas.rate, quotas.burst)
    idle_windows = rates.window_of(horizon) - last // rates.WINDOW_MS
    samples = quotas.samples[number]
    owes = np.where(samples > 0, idle_windows < samples, tokens < FULL) & (number != NOTHING)
    keep: Flags = (idle_windows < PLAIN_WINDOWS) | owes
    return keep | waits(columns["waiting"], horizon)
