"""What was delivered to each subscription and what the job decided on it, as read from Weir's topics.

A row is one subscription at one broker behind one proxy. Counters of the law are kept beside them, once for
each broker, topic at a broker and subscription at a broker, whichever decision said them last.
"""

from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple

from enforcer.control.dispatch.records import DispatchDecision
from streaming.contract.usage_events import DispatchUsage
from streaming.kafka_io.newest import Newest
from streaming.laws.dispatch.law import DIMENSIONS, LEVELS

RECENT_MS: Final = 60_000
"""Rates are means over so long, as in Pulsar's stats."""
_SLOT_MS: Final = 10_000
_SLOTS: Final = RECENT_MS // _SLOT_MS
_SHORTEST_MS: Final = 1_000
CUTS: Final = tuple((level, dimension) for level in LEVELS for dimension in DIMENSIONS)
"""What may hold a subscription back."""


class Key(NamedTuple):
    """Whose row it is."""

    topic: str
    subscription: str
    broker: str
    proxy: str


class RecentDeliveries:
    """Deliveries of the last minute, by slots of ten seconds.

    Args:
        since: when counting began, ms since the epoch.
    """

    __slots__ = ("_since", "_slots")

    def __init__(self, since: int) -> None:
        self._since = since
        # A list: an empty deque takes ten times as much, and most have few slots.
        self._slots: list[tuple[int, int, int]] = []

    def add(self, ts: int, msgs: int, size: int) -> None:
        """Count a delivery; one of an earlier slot than the newest counts in that."""
        slot = ts // _SLOT_MS
        if self._slots and self._slots[-1][0] >= slot:
            slot, held_msgs, held_size = self._slots.pop()
            msgs, size = held_msgs + msgs, held_size + size
        self._slots.append((slot, msgs, size))
        del self._slots[:-_SLOTS]

    def rates(self, now_ms: int) -> tuple[float, float]:
        """Messages and bytes per second."""
        first = now_ms // _SLOT_MS - _SLOTS + 1
        counted = [slot for slot in self._slots if slot[0] >= first]
        span_s = max(_SHORTEST_MS, now_ms - max(self._since, first * _SLOT_MS)) / 1000
        return sum(slot[1] for slot in counted) / span_s, sum(slot[2] for slot in counted) / span_s


@dataclass(slots=True)
class Row:
    """Deliveries to one subscription at one broker behind one proxy, since the first that was read.

    Attributes:
        recent: those of the last minute.
        msgs, bytes, entries: totals.
        cuts: how often each of CUTS held it back, in their order.
        reported_ts: the last report, ms since the epoch; 0: none.
    """

    recent: RecentDeliveries
    msgs: int = 0
    bytes: int = 0
    entries: int = 0
    cuts: list[int] = field(default_factory=lambda: [0] * len(CUTS))
    reported_ts: int = 0


@dataclass(slots=True)
class Counter:
    """The newest decision that holds the counter of a broker, a topic or a subscription at a broker.

    Attributes:
        rows: rows that it stands beside; with the last of them it goes.
        decided: that decision, None before the first.
    """

    rows: int = 0
    decided: DispatchDecision | None = None


class DeliveryTable:
    """The rows and counters of all topics.

    Args:
        rows_max: rows kept; beyond it the one silent longest goes first, and is counted.
    """

    def __init__(self, rows_max: int) -> None:
        self.rows: Newest[Key, Row] = Newest(rows_max, group=attrgetter("topic"), gone=self._forget)
        self._counters: dict[tuple[str, ...], Counter] = {}

    def take_usage(self, event: DispatchUsage, proxy: str, ts: int) -> None:
        """Count a delivery, reported by a proxy at `ts` (ms since the epoch)."""
        row = self._row(Key(event.topic, event.subscription, event.broker, proxy), ts)
        row.recent.add(ts, event.msgs, event.bytes)
        row.msgs += event.msgs
        row.bytes += event.bytes
        row.entries += event.entries
        row.reported_ts = max(row.reported_ts, ts)

    def take_decision(self, decision: DispatchDecision) -> None:
        """Take a decision in; one that is older than what is known counts as held back, and no more."""
        key = Key(decision.topic, decision.subscription, decision.broker, decision.proxy)
        row = self._row(key, decision.at)
        if decision.limited_by is not None and not decision.repeated:
            row.cuts[CUTS.index(decision.limited_by)] += 1
        for names in _names(key):
            counter = self._counters[names]
            if counter.decided is None or decision.at >= counter.decided.at:
                counter.decided = decision

    def of_topic(self, topic: str) -> list[tuple[Key, Row]]:
        """A topic's rows, in order of subscription, broker and proxy."""
        return sorted(self.rows.of_group(topic), key=itemgetter(0))

    def counters(self, broker: str, topic: str, subscription: str | None) -> list[Counter]:
        """Those of a broker, a topic there and, if one is given, a subscription of it, in this order."""
        names = (broker, topic) if subscription is None else (broker, topic, subscription)
        return [self._counters[names[:depth]] for depth in range(1, len(names) + 1)]

    def _row(self, key: Key, ts: int) -> Row:
        def make() -> Row:
            for names in _names(key):
                self._counters.setdefault(names, Counter()).rows += 1
            return Row(RecentDeliveries(ts))

        return self.rows.heard(key, make)

    def _forget(self, key: Key) -> None:
        for names in _names(key):
            counter = self._counters[names]
            counter.rows -= 1
            if counter.rows == 0:
                del self._counters[names]


def _names(key: Key) -> tuple[tuple[str, ...], ...]:
    """Names of the counters of a broker, a topic and a subscription there: in the order of LEVELS."""
    return (key.broker,), (key.broker, key.topic), (key.broker, key.topic, key.subscription)
