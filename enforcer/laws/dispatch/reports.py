"""What is said of deliveries on `weir.usage`: one `dispatch_usage` each (docs/contract.md 3.3).

They wait for a moment, since many together are one packed record. What waits goes out in the order in which
it was delivered, so no single event overtakes a packed one of its broker: a broker's events are one routing
key, and their record's key, single or packed, is the broker, which gives all of them one partition.
"""

from typing import Any, Final, NamedTuple

import pyarrow as pa

from enforcer.core import bounds
from enforcer.core.law import Context
from enforcer.laws.dispatch.counter_table import DeliveryAnomalies
from streaming.columns.packed import pack

PACK_LINGER_MS: Final = 20
"""How long the report of a delivery waits for others: less than a batch of the job takes."""
WAITING_MAX: Final = 4_096
"""Deliveries of one broker that wait; then they go out at once."""
_NAMES: Final = ("broker", "topic", "subscription", "proxy")


class Report(NamedTuple):
    """One delivery, by the fields of its event."""

    id: str
    ts: int
    broker: str
    topic: str
    subscription: str
    msgs: int
    bytes: int
    entries: int
    backlog: bool
    proxy: str


class DeliveryReports:
    """Writes the events of one proxy.

    Args:
        counts: deliveries of dropped records are counted there.
    """

    def __init__(self, context: Context, counts: DeliveryAnomalies) -> None:
        self._context, self._counts = context, counts
        self._pack_min = bounds.PACK_MIN
        self._waiting: dict[str, list[Report]] = {}

    def put(self, report: Report) -> None:
        """Report a delivery, in a moment."""
        first = not self._waiting
        waiting = self._waiting.setdefault(report.broker, [])
        waiting.append(report)
        if len(waiting) >= WAITING_MAX:
            del self._waiting[report.broker]
            self._write(report.broker, waiting)
        if first:
            self._context.call_later(PACK_LINGER_MS, self.flush)

    def flush(self) -> None:
        """Hand over all that waits."""
        waiting, self._waiting = self._waiting, {}
        for broker, reports in waiting.items():
            self._write(broker, reports)

    def _write(self, broker: str, reports: list[Report]) -> None:
        if len(reports) < self._pack_min:
            for report in reports:
                if not self._context.send_usage({"type": "dispatch_usage", **report._asdict()}, broker):
                    self._counts.unsent += 1
            return
        for first, value in _packed(reports):
            if not self._context.send_usage_pack(value, broker):
                self._counts.unsent += first


def _packed(reports: list[Report]) -> list[tuple[int, bytes]]:
    """Reports as packed records, with how many each holds; in one unless they are too large for it."""
    values = list(pack("dispatch_usage", rows_of(reports)))
    if len(values) == 1 or len(reports) == 1:
        return [(len(reports), values[0])]
    # How many each piece holds is only known if they are cut here.
    half = len(reports) // 2
    return _packed(reports[:half]) + _packed(reports[half:])


def rows_of(reports: list[Report]) -> pa.RecordBatch:
    """Reports as columns; names, of which there are few, as dictionaries."""
    columns: dict[str, Any] = {}
    for name, values in zip(Report._fields, zip(*reports, strict=True), strict=True):
        column = pa.array(values)
        columns[name] = column.dictionary_encode() if name in _NAMES else column
    return pa.RecordBatch.from_pydict(columns)
