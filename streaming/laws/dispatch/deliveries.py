"""Deliveries as columns, and whose counters each goes through: what speed needs, the law is in law.py."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns.json_rows import quoted
from streaming.contract.names import namespace_of
from streaming.laws.column_intake import ColumnIntake
from streaming.laws.dispatch.law import LEVELS, Doubles, Flags, Integers
from streaming.laws.law import Intake
from streaming.laws.row_fields import WORDS
from streaming.laws.sheet import MISSING, Sheet

_COUNTS = ("msgs", "bytes", "entries")
_FIELDS = (
    *(pa.field(level, WORDS) for level in LEVELS),
    *(pa.field(count, pa.int64()) for count in _COUNTS),
    pa.field("backlog", pa.bool_()),
    pa.field("avg_publish_entry_bytes", pa.float64()),
    pa.field("proxy", pa.string()),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliveries:
    """A batch of deliveries in order.

    Attributes:
        rows: columns source, id, ts, at (see sheet.HEAD), broker, topic, subscription, proxy.
        at: when each is applied, ms.
        delivered: messages, bytes and entries of each.
        published: mean size of a published entry, 0: not known.
        backlog: whether a consumer has a backlog.
        places: number of each one's broker, topic and subscription, a column a level of LEVELS.
        names: by level, those numbered so: lists as JSON, Arrow text.
        keys: topic and subscription of those of the last level, as the keys of their decisions.
        first: by level, number of the first delivery of each of them.
    """

    rows: pa.RecordBatch
    at: Integers
    delivered: Integers
    published: Doubles
    backlog: Flags
    places: Integers
    names: tuple[pa.Array, ...]
    keys: pa.Array
    first: tuple[Integers, ...]

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> Self:
        """What the columns of `DeliveryIntake` say."""
        places, names, firsts = list[Integers](), list[pa.Array](), list[Integers]()
        place, joined = np.zeros(len(rows), dtype=np.int64), pa.array([""])
        for level in LEVELS:
            words = rows[level]
            above = place
            # Numbers of the names down to here, in the order of their first deliveries.
            place, first = _numbered(above * len(words.dictionary) + words.indices.to_numpy())
            own = quoted(words.dictionary).cast(pa.string()).take(words.indices.take(pa.array(first)))
            joined = own if not names else _together(joined.take(pa.array(above[first])), own, ",")
            places.append(place)
            names.append(_together("[", joined, "]", ""))
            firsts.append(first)
        one = pa.array(firsts[-1])
        topic, subscription = (
            rows[level].dictionary.take(rows[level].indices.take(one)) for level in LEVELS[1:]
        )
        return cls(
            rows=rows,
            # Copies, since Numba compiles anew for arrays that cannot be written.
            at=rows["at"].to_numpy().copy(),
            delivered=np.stack([rows[count].to_numpy() for count in _COUNTS], axis=1),
            published=rows["avg_publish_entry_bytes"].fill_null(0.0).to_numpy().copy(),
            backlog=rows["backlog"].to_numpy(zero_copy_only=False),
            places=np.stack(places, axis=1),
            names=tuple(names),
            keys=_together(topic, subscription, "/"),
            first=tuple(firsts),
        )


def _together(*parts: Any) -> pa.Array:
    """Texts joined by the last of them."""
    return pc.binary_join_element_wise(*parts)


def _numbered(values: Integers) -> tuple[Integers, Integers]:
    """The number of each value in the order in which they appear, and where each appears first."""
    encoded = pa.array(values).dictionary_encode()
    number = encoded.indices.to_numpy().astype(np.int64)
    first = np.empty(len(encoded.dictionary), dtype=np.int64)
    first[number[::-1]] = np.arange(len(number))[::-1]
    return number, first


class DeliveryIntake(ColumnIntake, Intake):
    """Deliveries of one batch."""

    type = "dispatch_usage"
    fields = _FIELDS
    batch = Deliveries

    def read(self, sheet: Sheet, ts: Integers) -> list[pa.Array]:
        """As `contract.usage_events.dispatch_usage`."""
        sheet.require(*LEVELS, "backlog")
        broker, topic, subscription = (sheet.encoded(level) for level in LEVELS)
        sheet.refuse(topic, namespace_of)
        return [
            broker,
            topic,
            subscription,
            *(pa.array(sheet.integers(count, MISSING)) for count in _COUNTS),
            pa.array(sheet.flags("backlog", False)),
            pa.array(sheet.sizes("avg_publish_entry_bytes")),
            sheet.texts("proxy"),
        ]
