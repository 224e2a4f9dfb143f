"""The ledgers of a partition: stretches of its log between two checks (docs/contract.md 3.5, "On Kafka").

Kafka has no ledgers and tells neither when a stretch was written nor how large it is, only where the log
begins and ends and how many bytes it takes now. So each check closes what was written since the one before:

>>> own = Stretches.begun(0, 100, 5_000, [], now=1_000)
>>> own.grow(0, 110, 5_600, now=61_000)
>>> [(one.id, one.entries, one.size, one.close_time) for one in own.ledgers()]
[(0, 100, 5000, 1000), (100, 10, 600, 61000), (110, 0, 0, None)]

A committed offset is the mark-delete position of the entry before it:

>>> own.position(0), own.position(100), own.position(104), own.position(110)
((0, -1), (0, 99), (100, 3), (100, 9))

Sizes are exact while the log only grows. When records go at its beginning, or are compacted, what is written
meanwhile counts by the mean of what is there, and all stretches together never more than the log takes.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Self

from streaming.contract.backlog.actions import Position
from streaming.contract.broker_events import Ledger

_ACKNOWLEDGED: Final = 0.125
"""How much less the resolution matters where nobody has to read any more."""


@dataclass(slots=True)
class _Stretch:
    """Closed: its first offset, the one after its last, bytes, and when it was closed."""

    start: int
    end: int
    size: float
    closed: int


class Stretches:
    """What is known of one partition's log.

    Attributes:
        start: where the log begins.
        end: where it ends: the next offset.
        stretches: closed ones without gaps from `start` to `end`, none empty.
    """

    __slots__ = ("_accounted", "_mean", "end", "start", "stretches")

    def __init__(self, start: int, end: int, accounted: int) -> None:
        self.start = start
        self.end = end
        self.stretches: list[_Stretch] = []
        self._accounted = accounted
        self._mean = 0.0

    @classmethod
    def begun(cls, start: int, end: int, size: int, marks: Sequence[tuple[int, int]], *, now: int) -> Self:
        """A log that is seen first.

        Args:
            start, end: where it begins and ends.
            size: bytes that it takes; divided in proportion to offsets.
            marks: (first offset that was written at a time or later, that time in ms), in any order. What is
                before it was written earlier, so it is closed at that time.
            now: ms since the epoch.
        """
        own = cls(start, end, size)
        first, entries = start, max(1, end - start)
        for offset, at in [*sorted(marks, key=lambda mark: mark[1]), (end, now)]:
            upto = min(offset, end)
            if upto > first:
                own.stretches.append(_Stretch(first, upto, size * (upto - first) / entries, min(at, now)))
                first = upto
        own._mean = size / entries if end > start else 0.0
        return own

    @property
    def size(self) -> float:
        """Bytes of all stretches."""
        return sum(one.size for one in self.stretches)

    def grow(self, start: int, end: int, size: int, *, now: int) -> None:
        """What a check has found: where the log begins and ends, bytes that it takes, when that was read.

        An end that went back (a leader that had not heard of all) takes what was beyond it away.
        """
        whole = start <= self.start and end >= self.end and size >= self._accounted
        self._cut(max(start, self.start), end)
        written_from = max(self.end, start)
        # A leader that had not heard of much may end before what was the beginning.
        self.start, self.end = max(min(self.start, end), start), max(written_from, end)
        entries = self.end - written_from
        if entries:
            # Bytes of records beyond the end that was read stay for the next stretch.
            added = float(size - self._accounted) if whole else entries * self._mean_entry(size)
            # The clock may have been set back.
            last = self.stretches[-1].closed if self.stretches else now
            self.stretches.append(_Stretch(written_from, self.end, added, max(now, last)))
        if entries or not whole:
            self._accounted = size
        total = self.size
        if total > size:
            for one in self.stretches:
                one.size *= size / total
        if self.stretches:
            self._mean = self.size / (self.end - self.start)

    def _mean_entry(self, size: int) -> float:
        """Bytes of an entry, where they cannot be told from growth."""
        return self._mean or size / max(1, self.end - self.start)

    def _cut(self, start: int, end: int) -> None:
        """Leave only what is from `start` to before `end`."""
        kept = []
        for one in self.stretches:
            first, last = max(one.start, start), min(one.end, end)
            if first < last:
                one.size *= (last - first) / (one.end - one.start)
                one.start, one.end = first, last
                kept.append(one)
        self.stretches = kept
        self.end = min(self.end, end)

    def bound(self, most: int, slowest: int, *, now: int) -> None:
        """Merge neighbours until there are at most `most` closed stretches.

        Those go first whose merging says least that is wrong: which are small beside the log, or near each
        other in time beside their age. A merged stretch is as old as its younger part, so nothing becomes
        older than it is. That with the slowest committed offset stays as it is: its age is the topic's.

        Args:
            most: at least 2.
            slowest: the smallest committed offset.
            now: ms since the epoch.
        """
        total = max(1.0, self.size)
        while len(self.stretches) > most:
            best, least = 0, float("inf")
            for number, (one, other) in enumerate(pairwise(self.stretches)):
                if one.start <= slowest < one.end or other.start <= slowest < other.end:
                    continue
                age = max(1, now - one.closed)
                cost = max((one.size + other.size) / total, (other.closed - one.closed) / age)
                cost *= _ACKNOWLEDGED if other.end <= slowest else 1.0
                if cost < least:
                    best, least = number, cost
            one, other = self.stretches[best : best + 2]
            self.stretches[best : best + 2] = [
                _Stretch(one.start, other.end, one.size + other.size, other.closed)
            ]

    def ledgers(self, slowest: int | None = None) -> tuple[Ledger, ...]:
        """As they are reported, the last one open; those wholly before `slowest` are left out.

        Sizes are whole numbers whose sum is that of the stretches, rounded.
        """
        found, told, bytes_ = [], 0, 0.0
        for one in self.stretches:
            if slowest is not None and one.end <= slowest:
                continue
            bytes_ += one.size
            size = max(0, round(bytes_) - told)
            told += size
            found.append(Ledger(id=one.start, entries=one.end - one.start, size=size, close_time=one.closed))
        return (*found, Ledger(id=self.end, entries=0, size=0, close_time=None))

    def position(self, committed: int, slowest: int | None = None) -> Position:
        """The mark-delete position of a committed offset, in the ledgers that are reported for `slowest`.

        Nothing of what is reported acknowledged: entry -1 of the first. Offsets beyond the end stand in the
        open ledger.
        """
        first = next((one.start for one in self.stretches if slowest is None or one.end > slowest), self.end)
        if committed <= first:
            return first, -1
        if committed > self.end:
            return self.end, committed - 1 - self.end
        number = bisect_right(self.stretches, committed - 1, key=lambda one: one.start) - 1
        start = self.stretches[number].start
        return start, committed - 1 - start

    def bytes_between(self, since: int, upto: int) -> int:
        """Estimated bytes of the entries from `since` to before `upto`, each stretch's at its mean."""
        found = 0.0
        for one in self.stretches:
            entries = min(one.end, upto) - max(one.start, since)
            if entries > 0:
                found += one.size * entries / (one.end - one.start)
        return round(found)


def offset_of(position: Position) -> int:
    """The committed offset of a mark-delete position.

    >>> offset_of((100, 3)), offset_of((0, -1))
    (104, 0)
    """
    ledger, entry = position
    return ledger + entry + 1
