"""Reports of resource groups as columns: what the law of shares folds (docs/contract.md 3.2).

A round of a hundred thousand groups is half a million reports in a few hundred records: a row here costs well
under a microsecond, an object for each of them 45.
"""

from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from streaming.columns.byte_strings import Integers
from streaming.contract.usage_events import DIMENSIONS, GroupUsage

NOT_SAID: Final = -1
"""In `throttled_ms`: the broker does not say."""


class Reports(NamedTuple):
    """What brokers used of groups, in the order of docs/contract.md 1; a row per event and group.

    Rows of one event stand together, have one `source` and no group twice. All columns of numbers are
    int64, in rows one after the other (C order), and may be written to.

    Attributes:
        at: when the event is applied, ms.
        ts: when it was reported, ms.
        period_ms: the time that the counts cover; 1 or more.
        source: index of the event's record.
        ticks: how many of the batch's ticks (`Batch.entries`) come before it.
        counts: of the period, a column for each of DIMENSIONS.
        throttled_ms: how long the broker held traffic back, a column for each of DIMENSIONS, or NOT_SAID.
        group: number of the group.
        broker: number of the broker.
        groups: their names; no two alike.
        brokers: their names; no two alike.
    """

    at: Integers
    ts: Integers
    period_ms: Integers
    source: Integers
    ticks: Integers
    counts: Integers
    throttled_ms: Integers
    group: Integers
    broker: Integers
    groups: pa.StringArray
    brokers: pa.StringArray


class Rows:
    """Puts events that were parsed one by one into columns, in the order in which they come.

    >>> from streaming.contract.usage_events import GroupReport
    >>> told = GroupReport(counts=(600, 0, 0, 0), throttled_ms=(None, 20, None, None))
    >>> event = GroupUsage(id="e", ts=7, at=7, broker="b1", period_ms=1000, usage=(("rg1", told),))
    >>> rows = Rows()
    >>> rows.put(event, source=3, ticks=0)
    >>> reports = rows.finish()
    >>> reports.counts.tolist(), reports.throttled_ms.tolist(), reports.groups.to_pylist()
    ([[600, 0, 0, 0]], [[-1, 20, -1, -1]], ['rg1'])
    """

    def __init__(self) -> None:
        self._numbers: list[tuple[int, ...]] = []
        self._groups: dict[str, int] = {}
        self._brokers: dict[str, int] = {}

    def put(self, event: GroupUsage, *, source: int, ticks: int) -> None:
        """Append a row for each group of an event; see Reports for `source` and `ticks`."""
        broker = self._brokers.setdefault(event.broker, len(self._brokers))
        for name, report in event.usage:
            group = self._groups.setdefault(name, len(self._groups))
            times = (NOT_SAID if time_ms is None else time_ms for time_ms in report.throttled_ms)
            head = (event.at, event.ts, event.period_ms, source, ticks, group, broker)
            self._numbers.append((*head, *report.counts, *times))

    def finish(self) -> Reports:
        """The columns with all that was put."""
        width = 7 + 2 * len(DIMENSIONS)
        flat = np.fromiter(chain.from_iterable(self._numbers), np.int64, width * len(self._numbers))
        table = flat.reshape(-1, width)
        at, ts, period_ms, source, ticks, group, broker = (table[:, place].copy() for place in range(7))
        counts, throttled_ms = (part.copy() for part in np.split(table[:, 7:], 2, axis=1))
        return Reports(
            at=at, ts=ts, period_ms=period_ms, source=source, ticks=ticks, counts=counts,
            throttled_ms=throttled_ms, group=group, broker=broker,
            groups=pa.array(list(self._groups), type=pa.string()),
            brokers=pa.array(list(self._brokers), type=pa.string()),
        )  # fmt: skip
