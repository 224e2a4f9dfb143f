"""Decisions that stand: throttles, limits, backlogs; repeated while they hold (contract section 1). Of
shares the law's own table says what stands, so that their bytes need not be kept.

An enforcer that starts reads the decisions topic back by one longest life time and knows all, so what holds
on must be said again before half of its life time has passed. Time moves by events and ticks, never by a
clock, so a log is repeated alike however it is cut into batches, except for the repeats themselves.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from streaming.contract.decisions import decided_subject
from streaming.state.body import Body, decode, encode

MAX_STANDING: Final = 131_072
"""Rows of one shard; beyond it those written longest ago leave first: their life time simply ends."""
REPEAT_PARTS: Final = 4
"""Repeated at a quarter of the life time: the next tick then comes before half of it has passed."""
QUIET_MS: Final = 3_600_000
"""A backlog that nobody has reported for an hour is not known any more."""
_FOR_EVER: Final = 2**62
_SCHEMA: Final = pa.schema(
    {
        "key": pa.string(),
        "value": pa.binary(),
        "ttl": pa.int64(),
        "written": pa.int64(),
        "until": pa.int64(),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """A decision to say again: its subject, and its bytes with `"repeat":true`."""

    subject: str
    type: str
    id: str
    value: bytes


class Refresh:
    """What one shard has decided that still holds.

    Columns, a row per subject: `key` (whom it is about), `value` (the decision as first written), `ttl` ms,
    `written` (event time of the last writing, ms), `until` (event time after which it says nothing, ms).
    """

    def __init__(self, raw: bytes | None) -> None:
        columns = None if raw is None else decode(raw).columns
        self._rows = (
            _SCHEMA.empty_table()
            if columns is None
            else pa.table([columns[name] for name in _SCHEMA.names], schema=_SCHEMA)
        )

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def to_bytes(self) -> bytes:
        """For the checkpoint; `Standing(raw)` gives it back."""
        rows = self._rows.combine_chunks()
        columns = {name: _whole(rows[name]) for name in _SCHEMA.names}
        return encode(Body(columns=columns, notes={}))

    def note(self, decisions: list[dict[str, Any]], now: int) -> None:
        """Take newly written decisions; a subject's last one counts, and what has ended already goes."""
        newest = {_key(decision): decision for decision in decisions if "ttl_ms" in decision}
        if not newest:
            return
        gone = pc.is_in(self._rows["key"], value_set=pa.array(list(newest), type=pa.string()))
        kept = self._rows.filter(pc.invert(gone))
        holding = [(key, d, until) for key, d in newest.items() if (until := _until(d)) > now]
        added = pa.table(
            {
                "key": [key for key, _, _ in holding],
                "value": [orjson.dumps(decision) for _, decision, _ in holding],
                "ttl": [decision["ttl_ms"] for _, decision, _ in holding],
                "written": [now] * len(holding),
                "until": [until for _, _, until in holding],
            },
            schema=_SCHEMA,
        )
        self._rows = pa.concat_tables([kept, added])
        if len(self) > MAX_STANDING:
            self._rows = self._rows.take(pc.sort_indices(self._rows["written"])[len(self) - MAX_STANDING :])

    def repeats(self, now: int) -> list[Repeat]:
        """What must be said again at `now`; what has ended leaves."""
        if not len(self):
            return []
        self._rows = self._rows.filter(pc.greater(self._rows["until"], now))
        written = self._rows["written"].to_numpy()
        due = written + self._rows["ttl"].to_numpy() // REPEAT_PARTS <= now
        if not due.any():
            return []
        place = self._rows.schema.get_field_index("written")
        self._rows = self._rows.set_column(place, "written", pa.array(np.where(due, now, written)))
        return [_repeat(value) for value in self._rows["value"].filter(pa.array(due)).to_pylist()]


def _until(decision: dict[str, Any]) -> int:
    """Event time (ms) up to which a decision says something."""
    if decision["type"] == "dispatch":
        return int(decision["ts"] + decision["throttle_time_ms"])
    if decision["type"] == "backlog":
        return int(decision["ts"] + QUIET_MS)
    return _FOR_EVER


def _key(decision: dict[str, Any]) -> str:
    # Dispatch counts per broker, and its subject does not name the broker.
    return f"{decision.get('broker', '')} {decided_subject(decision)}"


def _repeat(value: bytes) -> Repeat:
    decision = orjson.loads(value)
    repeated = orjson.dumps({**decision, "repeat": True})
    subject = decided_subject(decision)
    return Repeat(subject=subject, type=decision["type"], id=decision["id"], value=repeated)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], type=column.type)
