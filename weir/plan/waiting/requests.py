"""Requests of clients that wait as they are told and try again; see `loop`."""

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming.columns.byte_strings import Integers
from streaming.columns.compiled import machine
from streaming.columns.limit_index import NOTHING
from streaming.columns.outputs import DecisionRows
from streaming.laws.law import Batch
from streaming.laws.mutation.batch import begin
from streaming.laws.mutation.intake import resolved
from streaming.laws.mutation.law import REFUND, Events, Flags, Results, State, Terms
from streaming.laws.mutation.limits import quotas_of
from streaming.laws.mutation.rates import FULL, Doubles
from streaming.laws.mutation.requests import encoded
from streaming.laws.mutation.table import MutationTable
from streaming.laws.row_fields import places
from streaming.policy.timeline import PolicyTimeline
from streaming.state.row_names import row_names
from weir.plan.verdicts import REFUSED, Verdicts
from weir.plan.waiting.queues import HELD_MAX, HELD_MAX_MS, NOBODY, NOT_DUE, Waiting, ask

_ask = machine(ask)
_NUMBERS: Final = ("own_at", "of_ts", "mode", "items", "due", "tries", "row")
_SENT: Final = np.dtype([*((name, np.int64) for name in _NUMBERS), ("dry", np.bool_)])
"""What is known of a request: when it would be sent by itself and when it is, how often it was, and whose row
it is charged to.
"""


class _Requests(NamedTuple):
    """Some requests in the order of the log: rows of `_SENT`, by item what is asked and what was let through,
    who asks, and what the law said of them as recorded, refunds aside.
    """

    rows: NDArray[np.void]
    mutations: Doubles
    done: Flags
    user: pa.Array
    client_id: pa.Array
    verdicts: Verdicts

    def only(self, wanted: Flags) -> "_Requests":
        items = self.rows["items"]
        own = places((np.cumsum(items) - items)[wanted], items[wanted])
        taken = pa.array(wanted)
        return _Requests(
            self.rows[wanted], self.mutations[own], self.done[own], self.user.filter(taken),
            self.client_id.filter(taken), self.verdicts.only(wanted[self.rows["mode"] != REFUND]),
        )  # fmt: skip

    def behind(self, before: "_Requests | None") -> "_Requests":
        if before is None:
            return self
        rows, mutations, done = (np.concatenate(pair) for pair in zip(before[:3], self[:3], strict=True))
        user, client_id = (pa.concat_arrays(pair) for pair in zip(before[3:5], self[3:5], strict=True))
        return _Requests(rows, mutations, done, user, client_id, self.verdicts.behind(before.verdicts))


class RequestsThatWait(Waiting):
    """One thing of a client on its way at a time, decided when it would have come.

    Args:
        timeline: the policies, which go on while the log does.

    Attributes:
        beyond: so many were given up since more than HELD_MAX waited.
    """

    def __init__(self, timeline: PolicyTimeline) -> None:
        self.beyond = self._since = 0
        self._timeline, self._subjects = timeline, MutationTable()
        self._held: _Requests | None = None
        self._free = pa.array([], pa.string()), pa.array([], pa.string()), np.empty(0, dtype=np.int64)
        """Clients that have nothing on its way, but wait."""

    def step(
        self, batch: Batch | None, decided: DecisionRows | None, recorded: Verdicts | None, upto: int
    ) -> tuple[Verdicts | None, Integers]:
        """See `queues.Waiting`."""
        held, said = self._held, None
        new = None if batch is None or recorded is None else self._asked(batch, recorded)
        first = min((int(each.rows["own_at"].min()) for each in (held, new) if each), default=upto)
        since = max(self._since, first)
        ends = [*sorted({at for at, _ in self._timeline.changed(since, upto - 1)}), upto]
        # Each comes when its time has, or all would be looked through at every change.
        own_at = NOBODY if new is None else new.rows["own_at"]
        turn = np.minimum(np.searchsorted(ends, own_at, side="right"), len(ends) - 1)
        for number, end in enumerate(ends):
            if held is not None:
                # What is tried again may be charged under another level by now.
                held.rows["row"] = self._charged(held, since)
            if new is not None and (mine := turn == number).any():
                held = new.only(mine).behind(held)
            if held is not None:
                some, held = self._send(held, since, end)
                said = some.behind(said)
            since = end
        self._held, self._since = held, upto
        return said, NOBODY if held is None else held.verdicts.source

    def _asked(self, batch: Batch, recorded: Verdicts) -> _Requests:
        """What comes next."""
        asked = batch.events
        events, order = begin(asked, None, as_decided=False, anew=True).events, asked.order
        rows = np.zeros(len(order), dtype=_SENT)
        rows["own_at"], rows["due"] = events.at[order], NOT_DUE
        for name in ("of_ts", "mode", "items", "dry"):
            rows[name] = getattr(events, name)[order]
        subjects = asked.routing_keys
        rows["row"] = self._rows(subjects.names, int(rows["own_at"].min()))[subjects.of]
        items = places(events.first[order], events.items[order])
        taken, names = pa.array(order), (asked.requests.user, asked.requests.client_id)
        user, client_id = (each.take(taken).cast(pa.string()) for each in names)
        done = np.zeros(len(items), dtype=np.bool_)
        return _Requests(rows, events.mutations[items], done, user, client_id, recorded)

    def _charged(self, held: _Requests, at: int) -> Integers:
        """The row that each is charged to at a time, ms."""
        times = np.full(len(held.rows), at, dtype=np.int64)
        own = encoded(resolved(held.user, held.client_id, times, self._timeline))
        rows: Integers = self._rows(own.dictionary, at)[own.indices.to_numpy()]
        return rows

    def _rows(self, subjects: pa.Array, at: int) -> Integers:
        """Rows of subjects, each named once; new ones begin at a time, ms."""
        own = row_names(subjects)
        row = self._subjects.rows(own)
        fresh = np.flatnonzero(row < 0)
        row[fresh] = self._subjects.add(own.take(pa.array(fresh)), tokens=FULL, last=at)
        return row

    def _send(self, held: _Requests, since: int, upto: int) -> tuple[Verdicts, _Requests | None]:
        """Have all of them send what they do from a time, after which no policy changes, to before another:
        what came of it, and what still waits.
        """
        outcome, delay_ms = np.zeros(len(held.rows), dtype=np.int8), np.zeros(len(held.rows), dtype=np.int64)
        waits = self._decide(held, since, upto, outcome, delay_ms)
        said = held.rows["mode"] != REFUND
        # What is of that very time is not due yet: nothing holds it up.
        beyond = np.flatnonzero(waits & said & (held.rows["own_at"] < upto))[HELD_MAX:]
        waits[beyond], outcome[beyond], delay_ms[beyond] = False, REFUSED, HELD_MAX_MS
        self.beyond += len(beyond)
        verdicts = replace(held.verdicts, outcome=outcome[said], delay_ms=delay_ms[said]).only(~waits[said])
        return verdicts, held.only(waits) if waits.any() else None

    def _decide(
        self, held: _Requests, since: int, upto: int, outcome: NDArray[np.int8], delay_ms: Integers
    ) -> Flags:
        """Decide what is sent meanwhile; which ones still wait."""
        rows, count, items = held.rows, len(held.rows), len(held.mutations)
        column = {name: np.array(rows[name]) for name in rows.dtype.names or ()}
        user, client_id, free = self._free
        users, clients = pa.concat_arrays([held.user, user]), pa.concat_arrays([held.client_id, client_id])
        client = _numbers(users, clients)
        free_at = np.zeros(client.max() + 1, dtype=np.int64)
        free_at[client[count:]] = free
        soon = column["own_at"] < upto
        terms, state, term = self._terms(column["row"], soon, since)
        none, no_items = np.zeros(count, dtype=np.int64), np.zeros(items, dtype=np.bool_)
        events = Events(
            at=column["own_at"].copy(), of_ts=column["of_ts"], mode=column["mode"],
            decided=np.zeros(count, dtype=np.bool_), dry=column["dry"],
            first=np.cumsum(column["items"]) - column["items"], items=column["items"],
            mutations=held.mutations, term=term,
        )  # fmt: skip
        results = Results(
            outcome=none.copy(), wait_ms=none.copy(), level=np.empty(count), plain_rate=np.empty(count),
            rejected=no_items.copy(), own_outcome=none, own_rejected=no_items,
        )  # fmt: skip
        waits = np.ones(count, dtype=np.bool_)
        _ask(
            upto, client[:count].copy(), free_at, column["own_at"], column["due"], column["tries"], held.done,
            events, terms, state, results, outcome, delay_ms, waits,
        )  # fmt: skip
        came = np.unique(term[soon & (~waits | (column["tries"] > rows["tries"]))])
        self._subjects.keep_rings(came[terms.samples[came] > 0], terms, state)
        rows["due"], rows["tries"] = column["due"], column["tries"]
        self._keep_free(users, clients, client, free_at, upto)
        return waits

    def _terms(self, row: Integers, soon: Flags, at: int) -> tuple[Terms, State, Integers]:
        """Terms of a time (ms) for the subjects of those that may be sent, which each one goes by, and what
        they stand on.
        """
        term, subjects = np.zeros(len(row), dtype=np.int64), self._subjects
        present, term[soon] = np.unique(row[soon], return_inverse=True)
        names, quotas = subjects.names.take(pa.array(present)), quotas_of(self._timeline.at(at))
        subjects.settle(present, names, at, self._timeline)
        number = quotas.of(names)
        number[quotas.shadow[number]] = NOTHING
        terms, state = subjects.terms(np.where(number != NOTHING, present, NOTHING), quotas, number)
        return terms, state, term

    def _keep_free(
        self, users: pa.Array, clients: pa.Array, client: Integers, free_at: Integers, upto: int
    ) -> None:
        number, first = np.unique(client, return_index=True)
        late = free_at[number] > upto
        one = pa.array(first[late])
        self._free = users.take(one), clients.take(one), free_at[number[late]]


def _numbers(users: pa.Array, clients: pa.Array) -> Integers:
    """A number for each pair of user and client-id."""
    user, client = encoded(users), encoded(clients)
    pairs = user.indices.to_numpy().astype(np.int64) * len(client.dictionary) + client.indices.to_numpy()
    _, number = np.unique(pairs, return_inverse=True)
    return number.ravel().astype(np.int64)
