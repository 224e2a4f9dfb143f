"""Reports of backlogs as columns: what speed needs, the law is in law.py."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming.columns.byte_strings import Integers
from streaming.contract.broker_events import NOTHING_ACKNOWLEDGED, Backlog, Ledger, Subscription
from streaming.contract.names import namespace_of
from streaming.laws.gathering import Gathering
from streaming.laws.law import Intake
from streaming.laws.row_fields import WORDS, listed
from streaming.laws.sheet import MISSING, Sheet
from streaming.policy.timeline import PolicyTimeline

UNKNOWN: Final = -1
"""A time that is not known, or of a ledger that is open."""
_LEDGER: Final = pa.struct({name: pa.int64() for name in ("id", "entries", "size", "closed")})
_POSITION: Final = pa.struct(
    {"name": WORDS, "ledger": pa.int64(), "entry": pa.int64(), "durable": pa.bool_(), "published": pa.int64()}
)


class Ledgers(NamedTuple):
    """The ledgers of all reports, one after the other.

    Attributes:
        ends: where those of each report begin, and where the last ones end.
        id, entries, size, closed: see contract.broker_events.Ledger; closed UNKNOWN: open.
    """

    ends: Integers
    id: Integers
    entries: Integers
    size: Integers
    closed: Integers


class Positions(NamedTuple):
    """The subscriptions of all reports, one after the other.

    Attributes:
        ends: where those of each report begin, and where the last ones end.
        by_name: numbers of the subscriptions, those of one report by their names.
        name: number of the name of each.
        ledger, entry, durable, published: see contract.broker_events.Subscription; published may be UNKNOWN.
    """

    ends: Integers
    by_name: Integers
    name: Integers
    ledger: Integers
    entry: Integers
    durable: NDArray[np.bool_]
    published: Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """A batch of reports in order, a row each.

    Attributes:
        rows: columns source, id, ts, at (see sheet.HEAD), topic.
        ts, at: see there, ms.
        topic: number of each one's topic,
        topics: among these, Arrow text.
        names: of subscriptions, Arrow text.
        ledgers, positions: what they report.
    """

    rows: pa.RecordBatch
    ts: Integers
    at: Integers
    topic: Integers
    topics: pa.Array
    names: pa.Array
    ledgers: Ledgers
    positions: Positions

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> Self:
        """What the columns of `BacklogIntake` say."""
        topic, subscribed = rows["topic"], rows["subscriptions"]
        name, ledger, entry, durable, published = subscribed.flatten().flatten()
        ends, number = _ends(subscribed), name.indices.to_numpy().astype(np.int64)
        rank = np.empty(len(name.dictionary), dtype=np.int64)
        rank[pc.sort_indices(name.dictionary).to_numpy()] = np.arange(len(rank))
        report = np.repeat(np.arange(len(rows)), np.diff(ends))
        # Numba compiles anew for arrays that cannot be written, so all are copies.
        return cls(
            rows=rows,
            ts=rows["ts"].to_numpy().copy(),
            at=rows["at"].to_numpy(),
            topic=topic.indices.to_numpy().astype(np.int64),
            topics=topic.dictionary,
            names=name.dictionary,
            ledgers=Ledgers(
                _ends(rows["ledgers"]),
                *(column.to_numpy().copy() for column in rows["ledgers"].flatten().flatten()),
            ),
            positions=Positions(
                ends,
                np.argsort(report * len(rank) + rank[number], kind="stable"),
                number,
                ledger.to_numpy().copy(),
                entry.to_numpy().copy(),
                durable.to_numpy(zero_copy_only=False).copy(),
                published.to_numpy().copy(),
            ),
        )

    def event(self, i: int) -> Backlog:
        """One of them as the law itself takes it."""
        ledgers, positions = self.ledgers, self.positions
        first, end = ledgers.ends[i : i + 2].tolist()
        told = zip(*(column[first:end].tolist() for column in ledgers[1:]), strict=True)
        begin, stop = positions.ends[i : i + 2].tolist()
        subscribed = zip(*(column[begin:stop].tolist() for column in positions[3:]), strict=True)
        names = self.names.take(pa.array(positions.name[begin:stop])).to_pylist()
        return Backlog(
            id="",
            ts=int(self.ts[i]),
            at=int(self.at[i]),
            broker="",
            topic="",
            ledgers=tuple(
                Ledger(id=id_, entries=entries, size=size, close_time=_known(closed))
                for id_, entries, size, closed in told
            ),
            subscriptions=tuple(
                Subscription(
                    name=name, ledger=ledger, entry=entry, durable=durable, oldest_publish_time=_known(time)
                )
                for name, (ledger, entry, durable, time) in zip(names, subscribed, strict=True)
            ),
        )


def _ends(lists: pa.Array) -> Integers:
    return np.cumsum([0, *pc.list_value_length(lists).to_numpy()], dtype=np.int64)


def _known(time: int) -> int | None:
    return None if time == UNKNOWN else time


class BacklogIntake(Gathering, Intake):
    """Reports of one batch."""

    type = "backlog"
    fields = (
        pa.field("topic", WORDS),
        pa.field("ledgers", pa.list_(_LEDGER)),
        pa.field("subscriptions", pa.list_(_POSITION)),
    )

    def read(self, sheet: Sheet, ts: Integers) -> list[pa.Array]:
        """As `contract.broker_events.backlog`."""
        sheet.require("topic")
        topic = sheet.encoded("topic")
        sheet.refuse(topic, namespace_of)
        sheet.texts("broker")
        return [
            topic,
            _column(sheet, "ledgers", _LEDGER, _ledgers_of),
            _column(sheet, "subscriptions", _POSITION, _positions_of),
        ]

    def listed(self, events: Sequence[Backlog]) -> list[pa.Array]:
        """Those that the parser has read."""
        ledgers = [
            [(one.id, one.entries, one.size, _time(one.close_time)) for one in event.ledgers]
            for event in events
        ]
        positions = [
            [
                (one.name, one.ledger, one.entry, one.durable, _time(one.oldest_publish_time))
                for one in event.subscriptions
            ]
            for event in events
        ]
        return [
            pa.array([event.topic for event in events], pa.string()).dictionary_encode(),
            _lists(ledgers, _LEDGER),
            _lists(positions, _POSITION),
        ]

    def events(self, timeline: PolicyTimeline, *, replay: bool) -> Reports | None:
        """All of them in order."""
        rows = self.gathered()
        return None if rows is None else Reports.of(rows)


def _time(time: int | None) -> int:
    return UNKNOWN if time is None else time


def _lists(lists: Sequence[Sequence[tuple[Any, ...]]], kind: pa.StructType) -> pa.Array:
    ends = np.cumsum([0, *map(len, lists)])
    flat = [one for each in lists for one in each]
    columns = zip(*flat, strict=True) if flat else [()] * kind.num_fields
    parts = [_part(list(values), kind.field(number).type) for number, values in enumerate(columns)]
    return listed(ends, parts, kind)


def _part(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.string()).dictionary_encode() if kind == WORDS else pa.array(values, kind)


def _column(
    sheet: Sheet, name: str, kind: pa.StructType, read: Callable[[Sheet], list[pa.Array]]
) -> pa.Array:
    """A column of lists of objects; rows with an object that is not plain are not either."""
    items, ends = sheet.objects(name)
    parts = read(items)
    sheet.plain[items.i[~items.plain]] = False
    return listed(ends, parts, kind)


def _ledgers_of(items: Sheet) -> list[pa.Array]:
    id_, entries, size = (items.integers(name, MISSING) for name in ("id", "entries", "size"))
    # Ascending, where the one before is of the same report.
    items.plain[1:] &= (np.diff(id_) > 0) | (np.diff(items.i) > 0)
    return [pa.array(values) for values in (id_, entries, size, _times(items, "closeTime"))]


def _positions_of(items: Sheet) -> list[pa.Array]:
    items.require("name")
    name = items.encoded("name")
    if len(items):
        # Each name once in a report.
        place = items.i * (len(name.dictionary)) + name.indices.to_numpy()
        order = np.argsort(place, kind="stable")
        items.plain[order[1:][np.diff(place[order]) == 0]] = False
    return [
        name,
        pa.array(items.integers("ledger", MISSING, minimum=-1)),
        pa.array(items.integers("entry", MISSING, minimum=NOTHING_ACKNOWLEDGED)),
        pa.array(items.flags("durable", True)),
        pa.array(_times(items, "oldestPublishTime")),
    ]


def _times(items: Sheet, name: str) -> Integers:
    return np.where(items.said(name), items.integers(name, 0), UNKNOWN)
