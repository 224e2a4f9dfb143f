"""Dispatch decisions as the proxy reads them (docs/contract.md 3.3): the counters behind them."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from enforcer.core.law import DecisionReader
from streaming.columns.packed import columns_in
from streaming.contract.errors import BadEvent
from streaming.contract.fields import TS_MAX_MS, Fields, integer, shown, text
from streaming.contract.names import namespace_of
from streaming.laws.dispatch.law import DIMENSIONS, LEVELS

_TEXTS: Final = ("id", "broker", "topic", "subscription")
_NOTHING: Final = (None,) * len(LEVELS)


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
    """The decisions of a packed record, from its columns: as `dispatch_of` reads each, for a tenth of its time.

    Returns:
        None: it is not as the job writes it, so what is wrong with it is to be found row by row.
    """
    try:
        columns = columns_in(value, READER.type, (*_TEXTS, "ts", "acquired"), ("proxy", "applied_ts"))
        counters, times = columns["acquired"], columns["ts"]
        texts = [columns[name] for name in _TEXTS]
        proxy = columns.get("proxy", pa.nulls(len(times), pa.string()))
        applied = columns.get("applied_ts", times)
        is_usual = (
            not any(column.null_count for column in (*texts, times))
            and {column.type for column in (*texts, proxy)} == {pa.string()}
            and all(map(_are_times, (times, applied)))
        )
        acquired = _all_counters(counters) if is_usual else None
        if acquired is None:
            return None
        for topic in columns["topic"].unique().to_pylist():
            namespace_of(topic)
    except BadEvent:
        return None
    said = _values(counters.is_valid())
    at = _values(pc.coalesce(applied, times))
    ids, *names = _values(texts[0]), *map(_words, (proxy.fill_null(""), *texts[1:]))
    rows = zip(said, ids, at, *names, acquired, strict=True)
    return [CounterStatement(*row) for is_said, *row in rows if is_said]


def _all_counters(column: pa.Array) -> list[tuple[tuple[int, int] | None, ...]] | None:
    """The counters of each row, by level; None: some of them are none."""
    kind = column.type
    if not pa.types.is_map(kind) or not pa.types.is_struct(kind.item_type) or column.items.null_count:
        return None
    if {field.name: field.type for field in kind.item_type} != dict.fromkeys(DIMENSIONS, pa.int64()):
        return None
    counts = [column.items.field(name).fill_null(0) for name in DIMENSIONS]
    row = np.repeat(np.arange(len(column)), np.diff(column.offsets.to_numpy()))
    # What is no level says nothing, and stands behind those that are.
    level = pc.index_in(column.keys, pa.array(LEVELS)).fill_null(len(LEVELS)).to_numpy()
    if len(np.unique(row * (len(LEVELS) + 1) + level)) < len(row) or any((pc.min(c).as_py() or 0) < 0 for c in counts):
        return None
    found = [[*_NOTHING, None] for _ in range(len(column))]
    for place, its_level, *pair in zip(row.tolist(), level.tolist(), *map(_values, counts), strict=True):
        found[place][its_level] = tuple(pair)
    return [tuple(each[: len(LEVELS)]) for each in found]


def _are_times(column: pa.Array) -> bool:
    if column.type != pa.int64():
        return False
    least, most = pc.min_max(column).as_py().values()
    return least is None or 0 <= least <= most <= TS_MAX_MS


def _values(column: pa.Array) -> list[Any]:
    # Twenty times as fast as to_pylist.
    return column.to_numpy(zero_copy_only=False).tolist()


def _words(column: pa.Array) -> list[str]:
    """Texts of which there are few: one object for all that are alike."""
    encoded = column.dictionary_encode()
    return np.array(_values(encoded.dictionary), dtype=object)[encoded.indices.to_numpy()].tolist()


READER: Final = DecisionReader(
    type="dispatch", parse=dispatch_of, at=lambda said: said.at, all_of=all_dispatches_of
)
