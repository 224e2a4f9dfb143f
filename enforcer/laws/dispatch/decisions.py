"""Dispatch decisions as the proxy reads them (docs/contract.md 3.3): the counters behind them."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from enforcer.core.law import DecisionReader
from streaming.columns.packed import columns_in
from streaming.contract.errors import BadEvent
from streaming.contract.fields import INT64_MAX, TS_MAX_MS, Fields, integer, shown, text
from streaming.contract.names import namespace_of
from streaming.laws.dispatch.law import DIMENSIONS, LEVELS

_TEXTS: Final = ("id", "broker", "topic", "subscription")
_TYPES: Final = {
    **dict.fromkeys((*_TEXTS, "proxy"), pa.string()), **dict.fromkeys(("ts", "applied_ts"), pa.int64()),
    "acquired": pa.map_(pa.string(), pa.struct([(name, pa.int64()) for name in DIMENSIONS])),
}  # fmt: skip
"""Of the columns that the job writes."""


class CounterStatement(NamedTuple):
    """What a decision says of a broker's counters.

    Attributes:
        id: of the delivery that it is for.
        at: its applied time, ms since the epoch: `applied_ts`, else `ts`.
        proxy: who delivered; empty if it is not said.
        broker: upstream broker.
        topic: full name.
        subscription: its name, empty for consumers without a group.
        acquired: messages and bytes of the broker, the topic and the subscription; None: does not limit.
    """

    id: str
    at: int
    proxy: str
    broker: str
    topic: str
    subscription: str
    acquired: tuple[tuple[int, int] | None, ...]


def dispatch_of(fields: Fields) -> CounterStatement | None:
    """A dispatch decision from its JSON object; None: it does not tell its counters.

    Raises:
        BadEvent: it is none, or a field in it is out of range.
    """
    counters = fields.get("acquired")
    if counters is None:
        return None
    if not isinstance(counters, Mapping):
        raise BadEvent(f"acquired: {shown(counters)}; an object of counters by level was expected")
    ts = integer(fields, "ts", None, maximum=TS_MAX_MS)
    topic = text(fields, "topic", None)
    namespace_of(topic)
    return CounterStatement(
        id=text(fields, "id", None),
        at=integer(fields, "applied_ts", ts, maximum=TS_MAX_MS),
        proxy=text(fields, "proxy", ""),
        broker=text(fields, "broker", None),
        topic=topic,
        subscription=text(fields, "subscription", None),
        acquired=tuple(_counters(level, counters.get(level)) for level in LEVELS),
    )


def _counters(level: str, said: object) -> tuple[int, int] | None:
    if said is None:
        return None
    if not isinstance(said, Mapping):
        raise BadEvent(f"acquired.{level}: {shown(said)}; an object of counts was expected")
    try:
        # In a packed record a dimension that does not limit is a null.
        counts = {name: count for name, count in said.items() if count is not None}
        return integer(counts, "msgs", 0), integer(counts, "bytes", 0)
    except BadEvent as error:
        raise BadEvent(f"acquired.{level}.{error.reason}") from error


def all_dispatches_of(value: bytes) -> list[CounterStatement] | None:
    """The decisions of a packed record from its columns, as `dispatch_of` reads each: 1.5 us, by rows 31.

    Returns:
        None: it is not as the job writes it, so what is wrong with it is to be found row by row.
    """
    try:
        columns = columns_in(value, READER.type, (*_TEXTS, "ts", "acquired"), ("proxy", "applied_ts"))
    except BadEvent:
        return None
    times, counters = columns["ts"], columns["acquired"]
    columns = {"proxy": pa.nulls(len(times), pa.string()), "applied_ts": times} | columns
    acquired = _all_counters(counters) if _is_usual(columns) else None
    if acquired is None:
        return None
    names = (_words(columns[name].fill_null("")) for name in ("proxy", *_TEXTS[1:]))
    at = pc.coalesce(columns["applied_ts"], times)
    rows = zip(_values(columns["id"]), _values(at), *names, acquired, strict=True)
    told = _values(counters.is_valid())
    return [CounterStatement(*row) for is_told, row in zip(told, rows, strict=True) if is_told]


def _is_usual(columns: Mapping[str, pa.Array]) -> bool:
    """Whether all but the counters is what `dispatch_of` takes."""
    if any(columns[name].type != kind for name, kind in _TYPES.items()):
        return False
    if any(columns[name].null_count for name in (*_TEXTS, "ts")):
        return False
    if not all(_within(columns[name], TS_MAX_MS) for name in ("ts", "applied_ts")):
        return False
    try:
        for topic in columns["topic"].unique().to_pylist():
            namespace_of(topic)
    except BadEvent:
        return False
    return True


def _all_counters(column: pa.Array) -> list[tuple[tuple[int, int] | None, ...]] | None:
    """The counters of each row, by level; None: some of them are none."""
    if column.items.null_count:
        return None
    counts = [column.items.field(name).fill_null(0) for name in DIMENSIONS]
    row = np.repeat(np.arange(len(column)), np.diff(column.offsets.to_numpy()))
    # What is no level says nothing, and stands behind those that are.
    level = pc.index_in(column.keys, pa.array(LEVELS)).fill_null(len(LEVELS)).to_numpy()
    told_once = len(np.unique(row * (len(LEVELS) + 1) + level)) == len(row)
    if not told_once or not all(_within(count, INT64_MAX) for count in counts):
        return None
    found: list[list[Any]] = [[None] * (len(LEVELS) + 1) for _ in range(len(column))]
    for place, its_level, *pair in zip(row.tolist(), level.tolist(), *map(_values, counts), strict=True):
        found[place][its_level] = tuple(pair)
    return [tuple(each[: len(LEVELS)]) for each in found]


def _within(column: pa.Array, most: int) -> bool:
    found = pc.min_max(column).as_py()
    return found["min"] is None or 0 <= found["min"] <= found["max"] <= most


def _values(column: pa.Array) -> list[Any]:
    # Twenty times as fast as to_pylist.
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values


def _words(column: pa.Array) -> list[str]:
    """Texts of which there are few: one object for all that are alike."""
    encoded = column.dictionary_encode()
    words = _values(encoded.dictionary)
    return [words[index] for index in _values(encoded.indices)]


READER: Final = DecisionReader(
    type="dispatch", parse=dispatch_of, at=lambda said: said.at, all_of=all_dispatches_of
)
