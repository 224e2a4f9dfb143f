"""Decisions that stand are said again while they hold (docs/contract.md 1).

A law that says in its `DecisionForm` what a newer decision replaces has them kept here; another may say by
`LawState.repeats` what stands, so that no bytes need to be kept.

An enforcer that starts reads the decisions topic back by one longest life time and knows all, so what holds
on must be said again before half of its life time has passed; dispatch debts, which may last for days, each
half minute. Time moves by events and ticks, never by a
clock, so a log is repeated alike however it is cut into batches, except for the repeats themselves.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns.outputs import Decided, DecisionRows, DecisionTexts
from streaming.contract.decisions import RECORD_BYTES_MAX
from streaming.laws.law import REPEAT_PARTS, Decision, DecisionForm, Flags
from streaming.laws.sheet import words_of
from streaming.state.body import Body, decode, encode

MAX_STANDING: Final = 131_072
STANDING_BYTES: Final = 1024 * MAX_STANDING
"""Rows of one shard and bytes of their decisions, since a backlog's plan of evictions may fill a record;
beyond either those written longest ago leave first: their life time simply ends."""
REPEATED_MAX: Final = RECORD_BYTES_MAX - len(b',"repeat":true')
"""Bytes of key and value. What is larger was not written either."""
_SCHEMA: Final = pa.schema(
    {
        "key": pa.string(),
        "value": pa.binary(),
        "ttl": pa.int64(),
        "written": pa.int64(),
        "until": pa.int64(),
    }
)


class Refresh:
    """What one shard has decided that still holds.

    Args:
        form: of the law's decisions.
        raw: what `to_bytes` gave; None: nothing yet.

    Columns, a row per subject: `key` (whom it is about), `value` (the decision as first written), `ttl` ms,
    `written` (event time of the last writing, ms), `until` (event time after which it says nothing, ms).
    """

    def __init__(self, form: DecisionForm, raw: bytes | None) -> None:
        self._form = form
        columns = None if raw is None else decode(raw).columns
        self._rows = (
            _SCHEMA.empty_table()
            if columns is None
            else pa.table([columns[name] for name in _SCHEMA.names], schema=_SCHEMA)
        )

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def to_bytes(self) -> bytes:
        """For the checkpoint; `Refresh(form, raw)` gives it back."""
        rows = self._rows.combine_chunks()
        columns = {name: _whole(rows[name]) for name in _SCHEMA.names}
        return encode(Body(columns=columns, notes={}))

    def note(self, decided: Decided, now: int) -> None:
        """Take newly written decisions; a subject's last one counts, and what has ended already goes."""
        newest: dict[str, tuple[bytes, Decision]] = {}
        # In the order in which they were made, since some speak of the same counters, and the last one holds.
        for value in _latest(decided, self._form).column("value"):
            decision = orjson.loads(bytes(value.as_py()))
            if "ttl_ms" in decision:
                key = _key([decision[name] for name in self._form.standing])
                newest.pop(key, None)
                newest[key] = value.as_py(), decision
        if not newest:
            return
        gone = pc.is_in(self._rows["key"], value_set=pa.array(list(newest), type=pa.string()))
        kept = self._rows.filter(pc.invert(gone))
        # What will have ended before its first repeat need not be kept for it, nor what no record holds.
        holding = [
            (key, value, decision["ttl_ms"], now, until)
            for key, (value, decision) in newest.items()
            if (until := self._form.until(decision)) > now + self._form.repeat_ms
            and len(value) + len(self._form.subject_of(decision).encode()) <= REPEATED_MAX
        ]
        columns = zip(*holding, strict=True) if holding else [()] * len(_SCHEMA.names)
        added = pa.table([pa.array(column) for column in columns], names=_SCHEMA.names).cast(_SCHEMA)
        self._rows = pa.concat_tables([kept, added])
        if len(self) > MAX_STANDING or self._rows["value"].nbytes > STANDING_BYTES:
            self._rows = _newest(self._rows)

    def repeats(
        self, now: int, stand: Callable[[pa.Array, Flags], Flags] = lambda _, over: ~over
    ) -> DecisionTexts | None:
        """What must be said again at `now` (event time, ms), and counts as of it; what has ended leaves.

        Args:
            now: see there.
            stand: tells whose decisions still do, of those that are due or whose `until`, as it is told, has
                come; those of the latter that do are asked for again a repeat later.
        """
        if not len(self):
            return None
        over = self._rows["until"].to_numpy() <= now
        asked = self._due(now) | over
        if asked.any():
            stands = np.ones(len(self), dtype=np.bool_)
            keys = self._rows["key"].filter(pa.array(asked)).combine_chunks()
            stands[asked] = stand(keys, over[asked])
            self._put("until", over & stands, now + self._form.repeat_ms)
            self._rows = self._rows.filter(pa.array(stands))
        due = self._due(now)
        if not due.any():
            return None
        self._put("written", due, now)
        again = [
            (0, {**orjson.loads(value), "repeat": True})
            for value in self._rows["value"].filter(pa.array(due)).to_pylist()
        ]
        return self._form.columns(again, now)

    def _put(self, name: str, which: Flags, value: int) -> None:
        """Write a number into a column of some rows."""
        column = pa.array(np.where(which, value, self._rows[name].to_numpy()))
        self._rows = self._rows.set_column(self._rows.schema.get_field_index(name), name, column)

    def _due(self, now: int) -> Flags:
        every = self._form.repeat_ms or self._rows["ttl"].to_numpy() // REPEAT_PARTS
        due: Flags = self._rows["written"].to_numpy() + every <= now
        return due


def _key(names: Sequence[str]) -> str:
    """Whom a decision is about: one name, or several that spaces part, and those within one do not."""
    if len(names) == 1:
        return names[0]
    return " ".join(name.replace("%", "%25").replace(" ", "%20") for name in names)


def _latest(decided: Decided, form: DecisionForm) -> Decided:
    """The decisions that can still stand: of columns each subject's last one, in their order."""
    if not isinstance(decided, DecisionRows):
        return decided
    number = np.zeros(len(decided), dtype=np.int64)
    for name in form.standing:
        words = words_of(decided.rows[name])
        number = number * len(words.dictionary) + words.indices.to_numpy()
    known, subject = np.unique(number, return_inverse=True)
    last = np.empty(len(known), dtype=np.int64)
    # Of what is assigned to one place the last remains.
    last[subject] = np.arange(len(subject))
    return decided.take(np.sort(last))


def _newest(rows: pa.Table) -> pa.Table:
    """Those written last, as many as are kept, in the order of their writing."""
    order = pc.sort_indices(rows["written"])
    sizes = pc.binary_length(rows["value"]).take(order).to_numpy()
    fit = int(np.searchsorted(np.cumsum(sizes[::-1]), STANDING_BYTES, side="right"))
    return rows.take(order[max(0, len(rows) - min(fit, MAX_STANDING)) :])


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], type=column.type)
