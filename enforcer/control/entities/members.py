"""What each proxy uses of each group, and its share: resource groups and all else that is shared out."""

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

from streaming.contract.decisions import Share
from streaming.contract.usage_events import DIMENSIONS, GroupUsage
from streaming.kafka_io.newest import Newest

_RATE, _SHARE = 0, len(DIMENSIONS)
_THROTTLED, _KNOWN_UNTIL, _STANDS_UNTIL = range(2 * len(DIMENSIONS), 2 * len(DIMENSIONS) + 3)
_NONE: Final = -1.0
_EMPTY: Final = array("d", [0.0] * len(DIMENSIONS) + [_NONE] * len(DIMENSIONS) + [0.0] * 3)
_LEAST_PERIOD_MS: Final = 5_000


class Use(NamedTuple):
    """Of a group, all members together, by its newest reports.

    Attributes:
        rates: per second, in the order of DIMENSIONS.
        throttled_ms: how long the member that was held back most was, in its last period.
        until: for how long that is known, ms since the epoch.
    """

    rates: tuple[float, ...]
    throttled_ms: float
    until: float


class Members:
    """The members of all groups, so many pairs of both at most; groups silent longest go first."""

    def __init__(self, rows_max: int) -> None:
        self._groups: Newest[str, dict[str, array[float]]] = Newest(rows_max, weight=len)

    def take_report(self, event: GroupUsage, ts: int) -> None:
        """Take a member's report in, written at `ts`."""
        for group, report in event.usage:
            row = self._row(group, event.broker)
            for place, count in enumerate(report.counts):
                row[_RATE + place] = count * 1000.0 / event.period_ms
            row[_THROTTLED] = max(time or 0 for time in report.throttled_ms)
            row[_KNOWN_UNTIL] = ts + 2 * max(event.period_ms, _LEAST_PERIOD_MS)

    def take_share(self, share: Share, ts: int) -> None:
        """Take a share in, written or repeated at `ts`; without limits the member has left."""
        if share.limits is None:
            # Kept, those that come back under other names would take the room of the living.
            members = self._groups.get(share.group)
            if members is not None and members.pop(share.broker, None) is not None:
                self._groups.resize(-1)
                if not members:
                    self._groups.remove(share.group)
            return
        row = self._row(share.group, share.broker)
        for place, dimension in enumerate(DIMENSIONS):
            row[_SHARE + place] = share.limits.get(dimension, _NONE)
        row[_STANDS_UNTIL] = ts + share.ttl_ms

    def use(self, group: str, now_ms: int) -> Use:
        """What a group uses at a time."""
        held = self._groups.get(group) or {}
        known = [row for row in held.values() if row[_KNOWN_UNTIL] > now_ms]
        rates = tuple(sum(row[_RATE + place] for row in known) for place in range(len(DIMENSIONS)))
        throttled = max((row[_THROTTLED] for row in known), default=0.0)
        return Use(rates, throttled, max((row[_KNOWN_UNTIL] for row in known), default=0.0))

    def of(self, group: str, dimension: int, now_ms: int) -> Iterator[tuple[str, float | None, float]]:
        """Each member by name, with its share in a dimension (None: it has none) and what it uses of it."""
        for broker, row in sorted((self._groups.get(group) or {}).items()):
            stands, known = row[_STANDS_UNTIL] > now_ms, row[_KNOWN_UNTIL] > now_ms
            share = row[_SHARE + dimension] if stands and row[_SHARE + dimension] >= 0 else None
            if share is not None or known:
                yield broker, share, row[_RATE + dimension] if known else 0.0

    def _row(self, group: str, broker: str) -> "array[float]":
        members = self._groups.heard(group, dict)
        row = members.get(broker)
        if row is None:
            row = members[broker] = array("d", _EMPTY)
            self._groups.resize(1)
        return row
