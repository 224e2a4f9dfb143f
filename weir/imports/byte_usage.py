"""Bytes of groups by broker and period, as a broker would report them (docs/contract.md 3.2)."""

from collections.abc import Iterator
from typing import Any, Final

from streaming.contract.fields import INT64_MAX
from streaming.contract.usage_events import COUNTS

PUBLISHED, DISPATCHED = COUNTS.index("publishedBytes"), COUNTS.index("dispatchedBytes")
_OPEN: Final = 2
"""Periods of a broker that still take lines: threads write them a moment later than their times."""
_GROUPS_MAX: Final = 1_000_000
"""Groups of a broker and period; further ones are not counted."""
Counts = dict[str, list[int]]


class ByteUsage:
    """Adds up; a broker's period is reported once the one after the next begins.

    Attributes:
        late: lines older than their broker's reports, reported once more by themselves.
        uncounted: groups for which there was no room.

    Args:
        period_ms: length of a period; periods begin at multiples of it.
    """

    def __init__(self, period_ms: int) -> None:
        self.late = self.uncounted = 0
        self._period_ms = period_ms
        self._open: dict[str, dict[int, Counts]] = {}
        self._last: dict[str, tuple[int, Counts]] = {}

    def add(self, broker: str, ts: int, group: str, position: int, count: int) -> Iterator[dict[str, Any]]:
        """Count bytes; yields the reports of what is over.

        Args:
            broker: who served them.
            ts: when, ms.
            group: whose they are.
            position: PUBLISHED or DISPATCHED.
            count: how many.
        """
        periods = self._open.setdefault(broker, {})
        period = ts // self._period_ms
        if period not in periods:
            if period <= self._last.get(broker, (-1, {}))[0]:
                self.late += 1
            periods[period] = {}
        counts = periods[period]
        if group in counts or len(counts) < _GROUPS_MAX:
            own = counts.setdefault(group, [0] * len(COUNTS))
            # Sums stop there, as all do: JSON has no larger ones.
            own[position] = min(INT64_MAX, own[position] + count)
        else:
            self.uncounted += 1
        while len(periods) > _OPEN:
            yield from self._close(broker, min(periods))

    def rest(self) -> Iterator[dict[str, Any]]:
        """The reports of all that is open: the log is over."""
        for broker, periods in self._open.items():
            for period in sorted(periods):
                yield from self._close(broker, period)

    def _close(self, broker: str, period: int) -> Iterator[dict[str, Any]]:
        counts = self._open[broker].pop(period)
        before, used = self._last.get(broker, (period - 1, {}))
        if period <= before:
            yield from self._report(broker, period, counts, f"+{self.late}")
            return
        self._last[broker] = period, counts
        # Silence is told once: who does not use its share any more leaves it to the others.
        silent = {group: [0] * len(COUNTS) for group in used}
        if before + 1 < period:
            yield from self._report(broker, before + 1, silent)
        yield from self._report(broker, period, silent | counts if before + 1 == period else counts)

    def _report(self, broker: str, period: int, counts: Counts, again: str = "") -> Iterator[dict[str, Any]]:
        if counts:
            usage = {group: dict(zip(COUNTS, each, strict=True)) for group, each in counts.items()}
            yield {
                "type": "group_usage", "id": f"{broker}@{period}{again}",
                "ts": (period + 1) * self._period_ms, "broker": broker,
                "period_ms": self._period_ms, "usage": usage,
            }  # fmt: skip
