"""Requests of clients that wait as they are told and try again; see `loop`."""

from dataclasses import replace
from math import inf
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming.columns.byte_strings import Integers
from streaming.columns.compiled import machine
from streaming.columns.outputs import DecisionRows
from streaming.laws.law import FOR_EVER, Batch
from streaming.laws.mutation.batch import begin
from streaming.laws.mutation.law import (
    PLAIN_WINDOWS,
    REFUND,
    REFUSED,
    STRICT,
    Events,
    Flags,
    Results,
    State,
    Terms,
)
from streaming.laws.mutation.limits import quotas_of
from streaming.laws.mutation.rates import Doubles
from streaming.laws.mutation.requests import encoded
from streaming.laws.row_fields import places
from streaming.policy.timeline import PolicyTimeline
from streaming.state.row_names import row_names
from streaming.state.subject_table import SubjectTable
from weir.plan.verdicts import REFUSED as TURNED_AWAY
from weir.plan.verdicts import Verdicts
from weir.plan.waiting.queues import HELD_MAX, HELD_MAX_MS, NOBODY, NOT_DUE, ask

_ask = machine(ask)
_NUMBERS: Final = ("own_at", "of_ts", "mode", "items", "due", "tries", "row", "samples", "since")
_SENT: Final = np.dtype(
    [*((name, np.int64) for name in _NUMBERS), ("dry", np.bool_), ("rate", np.float64), ("burst", np.float64)]
)
"""What is known of a request: when it would be sent by itself and when it is, how often it was, and the terms
of its own time, since when these hold among them.
"""


class _Buckets(SubjectTable):
    dtype = np.dtype([("tokens", np.float64), ("last", np.int64), ("plain", np.float64, PLAIN_WINDOWS)])


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


class RequestsThatWait:
    """One thing of a client on its way at a time, decided when it would have come.

    Args:
        timeline: the policies, which go on while the log does.

    Attributes:
        beyond: so many were given up since more than HELD_MAX waited.
    """

    closed = FOR_EVER

    def __init__(self, timeline: PolicyTimeline) -> None:
        self.beyond = 0
        self._timeline, self._buckets = timeline, _Buckets()
        self._held: _Requests | None = None
        self._rings: dict[tuple[int, int], Doubles] = {}
        self._free = pa.array([], pa.string()), pa.array([], pa.string()), np.empty(0, dtype=np.int64)
        """Clients that have nothing on its way, but wait."""

    def step(
        self, batch: Batch | None, decided: DecisionRows | None, recorded: Verdicts | None, upto: int
    ) -> tuple[Verdicts | None, Integers]:
        """See `loop.Waiting`."""
        held = self._held
        if batch is not None and recorded is not None:
            held = self._asked(batch, recorded).behind(held)
        if held is None:
            return None, NOBODY
        outcome, delay_ms = np.zeros(len(held.rows), dtype=np.int8), np.zeros(len(held.rows), dtype=np.int64)
        waits = self._send(held, upto, outcome, delay_ms)
        said = held.rows["mode"] != REFUND
        # What is of that very time is not due yet: nothing holds it up.
        beyond = np.flatnonzero(waits & said & (held.rows["own_at"] < upto))[HELD_MAX:]
        waits[beyond], outcome[beyond], delay_ms[beyond] = False, TURNED_AWAY, HELD_MAX_MS
        self.beyond += len(beyond)
        verdicts = replace(held.verdicts, outcome=outcome[said], delay_ms=delay_ms[said]).only(~waits[said])
        self._held = held.only(waits) if waits.any() else None
        self._forget_rings()
        return verdicts, NOBODY if self._held is None else self._held.verdicts.source

    def _asked(self, batch: Batch, recorded: Verdicts) -> _Requests:
        """What comes next, with its terms."""
        asked = batch.events
        walked = begin(asked, None, as_decided=False)
        events, order = walked.events, asked.order
        # Who has refused by itself would have asked the law.
        events.mode[events.mode == REFUSED] = STRICT
        rows = np.zeros(len(order), dtype=_SENT)
        rows["own_at"], rows["due"] = events.at[order], NOT_DUE
        for name in ("of_ts", "mode", "items", "dry"):
            rows[name] = getattr(events, name)[order]
        own = row_names(asked.routing_keys.names)
        row = self._buckets.rows(own)
        fresh = np.flatnonzero(row < 0)
        added = {"tokens": inf, "last": int(rows["own_at"].min())}
        row[fresh] = self._buckets.add(own.take(pa.array(fresh)), **added)
        terms = [np.empty((0, 5))]
        for stretch in walked.stretches(batch.timeline):
            quotas = quotas_of(batch.timeline.at(stretch.at))
            number = quotas.of(own.take(pa.array(stretch.routing_keys)))
            limited = (number >= 0) & ~quotas.shadow[number]
            since = np.full(len(number), batch.timeline.since(stretch.at))
            samples = np.where(limited, quotas.samples[number], 0)
            limits = quotas.rate[number], quotas.burst[number], samples, since
            terms.append(np.stack([np.where(limited, row[stretch.routing_keys], -1), *limits], axis=1))
        of_term = np.concatenate(terms)[events.term[order]]
        for name, column in zip(("row", "rate", "burst", "samples", "since"), of_term.T, strict=True):
            rows[name] = column
        items = places(events.first[order], events.items[order])
        taken, names = pa.array(order), (asked.requests.user, asked.requests.client_id)
        user, client_id = (each.take(taken).cast(pa.string()) for each in names)
        done = np.zeros(len(items), dtype=np.bool_)
        return _Requests(rows, events.mutations[items], done, user, client_id, recorded)

    def _send(self, held: _Requests, upto: int, outcome: NDArray[np.int8], delay_ms: Integers) -> Flags:
        """Have all of them send what they do before a time; which ones still wait."""
        rows, count, items = held.rows, len(held.rows), len(held.mutations)
        column = {name: np.ascontiguousarray(rows[name]) for name in rows.dtype.names or ()}
        user, client_id, free = self._free
        users, clients = pa.concat_arrays([held.user, user]), pa.concat_arrays([held.client_id, client_id])
        client = _numbers(users, clients)
        free_at = np.zeros(client.max() + 1, dtype=np.int64)
        free_at[client[count:]] = free
        rings, ring_first = self._ringed(column)
        state = State(
            **{name: self._buckets.column(name) for name in ("tokens", "last", "plain")}, rings=rings,
            spare=np.empty(int(column["samples"].max(initial=0))),
        )  # fmt: skip
        none, no_items = np.zeros(count, dtype=np.int64), np.zeros(items, dtype=np.bool_)
        events = Events(
            at=column["own_at"].copy(), of_ts=column["of_ts"], mode=column["mode"],
            decided=np.zeros(count, dtype=np.bool_), dry=column["dry"],
            first=np.cumsum(column["items"]) - column["items"], items=column["items"],
            mutations=held.mutations, term=np.arange(count),
        )  # fmt: skip
        terms = Terms(column["row"], column["rate"], column["burst"], column["samples"], ring_first)
        results = Results(
            outcome=none.copy(), wait_ms=none.copy(), level=np.empty(count), plain_rate=np.empty(count),
            rejected=no_items.copy(), own_outcome=none, own_rejected=no_items,
        )  # fmt: skip
        waits = np.ones(count, dtype=np.bool_)
        _ask(
            upto, client[:count].copy(), free_at, column["own_at"], column["due"], column["tries"], held.done,
            events, terms, state, results, outcome, delay_ms, waits,
        )  # fmt: skip
        rows["due"], rows["tries"] = column["due"], column["tries"]
        self._keep_free(users, clients, client, free_at, upto)
        return waits

    def _keep_free(
        self, users: pa.Array, clients: pa.Array, client: Integers, free_at: Integers, upto: int
    ) -> None:
        number, first = np.unique(client, return_index=True)
        late = free_at[number] > upto
        one = pa.array(first[late])
        self._free = users.take(one), clients.take(one), free_at[number[late]]

    def _ringed(self, column: dict[str, Integers]) -> tuple[Doubles, Integers]:
        """The windows of all sampled rates, and where those of each request begin."""
        first, sampled = np.zeros(len(column["row"]), dtype=np.int64), np.flatnonzero(column["samples"])
        keys = list(zip(*(column[name][sampled].tolist() for name in ("row", "since")), strict=True))
        for key, samples in dict(zip(keys, column["samples"][sampled].tolist(), strict=True)).items():
            if key not in self._rings:
                self._rings[key] = np.zeros(samples)
        ends = np.cumsum([0, *map(len, self._rings.values())])
        rings = np.concatenate([np.empty(0), *self._rings.values()])
        # Views: what the law writes stays.
        self._rings = dict(zip(self._rings, np.split(rings, ends[1:-1]), strict=False))
        begins = dict(zip(self._rings, ends.tolist(), strict=False))
        first[sampled] = [begins[key] for key in keys]
        return rings, first

    def _forget_rings(self) -> None:
        """Those of policies that hold no more, but for requests that wait."""
        newest = max((since for _, since in self._rings), default=0)
        rows = set() if self._held is None else set(self._held.rows[["row", "since"]].tolist())
        self._rings = {key: ring for key, ring in self._rings.items() if key[1] == newest or key in rows}


def _numbers(users: pa.Array, clients: pa.Array) -> Integers:
    """A number for each pair of user and client-id."""
    user, client = encoded(users), encoded(clients)
    pairs = user.indices.to_numpy().astype(np.int64) * len(client.dictionary) + client.indices.to_numpy()
    _, number = np.unique(pairs, return_inverse=True)
    return number.ravel().astype(np.int64)
