"""What was delivered to each subscription and what the job decided on it, as read from Weir's topics.

A row is one subscription at one broker behind one proxy, with the newest decision on it. The newest of all
on a broker, a topic at a broker or a subscription at a broker holds the law's counter of these.
"""

from dataclasses import dataclass
from operator import attrgetter, itemgetter
from sys import intern
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from enforcer.control.entities.columns import Columns, Kind
from streaming.contract.errors import BadEvent
from streaming.contract.fields import TS_MAX_MS, Fields, applied_ts, choice, flag, integer, shown, text
from streaming.contract.names import namespace_of
from streaming.contract.usage_events import DispatchUsage
from streaming.laws.dispatch.law import DIMENSIONS, LEVELS, NONE, added

CUTS: Final = tuple((level, dimension) for level in LEVELS for dimension in DIMENSIONS)
"""What may hold a subscription back."""
Counts = tuple[int, int]
"""Messages and bytes; NONE: not limited."""
_SLOT_MS: Final = 10_000
_SLOTS: Final = 6
"""Rates are means over a minute, as in Pulsar's stats."""
_SAID: Final = ("at", "throttle_ms", "limited_by", "available", "acquired")
_UNSAID: Final = -2
_COLUMNS: Final[dict[str, Kind]] = {
    **dict.fromkeys(("all_msgs", "all_bytes", "since", "reported_ts", "throttle_ms", "order"), (np.int64, 0)),
    "cuts": (np.uint32, 0, len(CUTS)),
    "counters": (np.int64, 0, len(LEVELS)),
    "at": (np.int64, NONE),
    "limited_by": (np.int8, NONE),
    "available": (np.int64, NONE, len(DIMENSIONS)),
    "acquired": (np.int64, _UNSAID, len(LEVELS), len(DIMENSIONS)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchDecision:
    """What may still be delivered to a subscription at a broker.

    Attributes:
        broker: who delivers.
        topic: full name.
        subscription: its name.
        proxy: who reported the delivery, empty if it does not say.
        at: when this was so, ms since the epoch.
        available: what may still be delivered in that period, the least of all levels.
        throttle_ms: from `at` on, until something may be delivered in every limited dimension.
        limited_by: place in CUTS of what frees last; NONE: it is not throttled.
        acquired: by level what was delivered and is not paid off by periods; None: it does not say.
        repeated: said before.
    """

    broker: str
    topic: str
    subscription: str
    proxy: str
    at: int
    available: Counts
    throttle_ms: int
    limited_by: int
    acquired: tuple[Counts, ...] | None
    repeated: bool


def dispatch_of(fields: Fields) -> DispatchDecision:
    """A decision from its JSON object; raises BadEvent: it is none, or a number in it is out of range."""
    limited_by = _object(fields, "limited_by")
    acquired = _object(fields, "acquired")
    topic = text(fields, "topic", None)
    # Else no policy could be looked for, and whoever does would lose all that was read with it.
    namespace_of(topic)
    return DispatchDecision(
        broker=text(fields, "broker", None),
        topic=topic,
        subscription=text(fields, "subscription", None),
        proxy=text(fields, "proxy", ""),
        at=applied_ts(fields, integer(fields, "ts", None, maximum=TS_MAX_MS)),
        available=_counts(_object(fields, "available")),
        throttle_ms=integer(fields, "throttle_time_ms", None),
        limited_by=NONE if limited_by is None else CUTS.index(_counter(limited_by)),
        acquired=None if acquired is None else tuple(_counts(_object(acquired, name)) for name in LEVELS),
        repeated=flag(fields, "repeat", False),
    )


def _object(fields: Fields, key: str) -> Fields | None:
    value = fields.get(key)
    if value is not None and type(value) is not dict:
        raise BadEvent(f"{key}: {shown(value)}; an object was expected")
    return value


def _counter(fields: Fields) -> tuple[str, str]:
    return choice(fields, "level", "", LEVELS), choice(fields, "dimension", "", DIMENSIONS)


def _counts(fields: Fields | None) -> Counts:
    said = {name: count for name, count in (fields or {}).items() if count is not None}
    msgs, size = (integer(said, name, NONE) for name in DIMENSIONS)
    return msgs, size


class Key(NamedTuple):
    """Whose row it is."""

    topic: str
    subscription: str
    broker: str
    proxy: str


class Row(NamedTuple):
    """Deliveries to one subscription at one broker behind one proxy, since the first that was read.

    Attributes:
        msgs, bytes: totals.
        cuts: how often each of CUTS held it back, in their order.
        reported_ts: the last report, ms since the epoch; 0: none.
        rates: messages and bytes per second in the last minute.
    """

    msgs: int
    bytes: int
    cuts: list[int]
    reported_ts: int
    rates: tuple[float, float]


class DeliveryTable(Columns[Key]):
    """The rows of all topics.

    Columns: as of Row, deliveries counted `since`; of the newest decision, the `order`-th that was read, all
    that it says (DispatchDecision, NONE: null), and by hash the names of the `counters` that it holds.

    Args:
        rows_max: rows kept; beyond it the one silent longest goes first, and is counted.
    """

    def __init__(self, rows_max: int) -> None:
        super().__init__(
            rows_max, _COLUMNS, dict.fromkeys(DIMENSIONS, (np.int64, 0)),
            slot_ms=_SLOT_MS, slots_kept=_SLOTS, group=attrgetter("topic"),
        )  # fmt: skip
        self._read = 0

    def take_usage(self, event: DispatchUsage, ts: int) -> None:
        """Count a delivery, reported at `ts` (ms since the epoch)."""
        row = self._heard(event.topic, event.subscription, event.broker, event.proxy or "", ts)
        columns, place = self.columns, self.place(ts)
        for name, amount in zip(DIMENSIONS, (event.msgs, event.bytes), strict=True):
            total = columns[f"all_{name}"]
            total[row] = added(total[row], amount)
            if place is not None:
                self.slots[name][place, row] = added(self.slots[name][place, row], amount)
        columns["reported_ts"][row] = max(columns["reported_ts"][row], ts)

    def take_decision(self, decision: DispatchDecision) -> None:
        """Take a decision in; one that is older than what is known counts as held back, and no more."""
        row = self._heard(decision.topic, decision.subscription, decision.broker, decision.proxy, decision.at)
        columns = self.columns
        if decision.limited_by != NONE and not decision.repeated:
            columns["cuts"][decision.limited_by, row] += 1
        if decision.at < columns["at"][row]:
            return
        self._read += 1
        columns["order"][row], columns["at"][row] = self._read, decision.at
        for name in ("throttle_ms", "limited_by", "available"):
            columns[name][..., row] = getattr(decision, name)
        columns["acquired"][..., row] = _UNSAID if decision.acquired is None else decision.acquired

    def of_topic(self, topic: str, now_ms: int) -> list[tuple[Key, Row]]:
        """A topic's rows at a time, in order of subscription, broker and proxy."""
        found = sorted(self.rows.of_group(topic), key=itemgetter(0))
        return [(key, self._view(row, now_ms)) for key, row in found]

    def newest(self, *names: str, among: NDArray[np.int64] | None = None) -> DispatchDecision | None:
        """The newest decision on a broker, a topic there or a subscription of it, in one of these rows."""
        columns = self.columns
        rows = np.arange(len(self)) if among is None else among
        rows = rows[columns["counters"][len(names) - 1, rows] == hash(names)]
        rows = rows[columns["at"][rows] != NONE]
        if not len(rows):
            return None
        row = int(rows[np.lexsort((columns["order"][rows], columns["at"][rows]))[-1]])
        said: dict[str, Any] = {name: columns[name][..., row].tolist() for name in _SAID}
        acquired = said["acquired"]
        said["acquired"] = None if acquired[0][0] == _UNSAID else tuple(map(tuple, acquired))
        said["available"] = tuple(said["available"])
        return DispatchDecision(**self.names[row]._asdict(), **said, repeated=False)

    def _heard(self, topic: str, subscription: str, broker: str, proxy: str, ts: int) -> int:
        # The same few names stand in very many rows.
        row = self.row(Key(topic, intern(subscription), intern(broker), intern(proxy)))
        if not self.columns["since"][row]:
            self.columns["since"][row] = ts
            names = (broker, topic, subscription)
            self.columns["counters"][:, row] = [hash(names[:depth]) for depth in range(1, len(names) + 1)]
        return row

    def _view(self, row: int, now_ms: int) -> Row:
        columns = self.columns
        since = int(columns["since"][row])
        msgs, size = (self.rate(name, row, since, now_ms) for name in DIMENSIONS)
        return Row(
            msgs=int(columns["all_msgs"][row]),
            bytes=int(columns["all_bytes"][row]),
            cuts=columns["cuts"][:, row].tolist(),
            reported_ts=int(columns["reported_ts"][row]),
            rates=(msgs, size),
        )
