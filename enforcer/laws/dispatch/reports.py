"""What is said of deliveries on `weir.usage`: one `dispatch_usage` each (docs/contract.md 3.3).

They wait for a moment, since many together are one packed record. What waits goes out in the order in which
it was delivered, so no single event overtakes a packed one of its broker: a broker's events are one routing
key, and their record's key, single or packed, is the broker, which gives all of them one partition.
"""

from typing import Any, Final

import pyarrow as pa

from enforcer.core import bounds
from enforcer.core.law import Context
from enforcer.laws.dispatch.counter_table import DeliveryAnomalies
from streaming.columns.packed import pack

PACK_LINGER_MS: Final = 20
"""How long the report of a delivery waits for others: less than a batch of the job takes."""
WAITING_MAX: Final = 4_096
"""Deliveries of one broker that wait; then they go out at once."""
_TYPE: Final = "dispatch_usage"
_NAMES: Final = ("broker", "topic", "subscription", "proxy")


Event = dict[str, Any]
"""One delivery, by the fields of its event."""


class DeliveryReports:
    """Writes the events of one proxy.

    Args:
        counts: deliveries of dropped records are counted there.
    """

    def __init__(self, context: Context, counts: DeliveryAnomalies) -> None:
        self._context, self._counts = context, counts
        self._pack_min = bounds.PACK_MIN
        self._waiting: dict[str, list[Event]] = {}

    def put(self, broker: str, event: Event) -> None:
        """Report a delivery through a broker, in a moment."""
        first = not self._waiting
        waiting = self._waiting.setdefault(broker, [])
        waiting.append(event)
        if len(waiting) >= WAITING_MAX:
            del self._waiting[broker]
            self._write(broker, waiting)
        if first:
            self._context.call_later(PACK_LINGER_MS, self.flush)

    def flush(self) -> None:
        """Hand over all that waits."""
        waiting, self._waiting = self._waiting, {}
        for broker, events in waiting.items():
            self._write(broker, events)

    def _write(self, broker: str, events: list[Event]) -> None:
        if len(events) >= self._pack_min:
            self._pack(broker, events)
            return
        for event in events:
            self._counts.unsent += not self._context.send_usage({"type": _TYPE, **event}, broker)

    def _pack(self, broker: str, events: list[Event]) -> None:
        """Hand over some as a packed record, or several where they are too large for one."""
        values = list(pack(_TYPE, rows_of(events)))
        if len(values) > 1 and len(events) > 1:
            # How many each piece holds is only known if they are cut here.
            half = len(events) // 2
            self._pack(broker, events[:half])
            self._pack(broker, events[half:])
        elif not self._context.send_usage_pack(values[0], broker):
            self._counts.unsent += len(events)


def rows_of(events: list[Event]) -> pa.RecordBatch:
    """Events as columns; names, of which there are few, as dictionaries."""
    values = zip(*map(dict.values, events), strict=True)
    columns = dict(zip(events[0], map(pa.array, values), strict=True))
    columns |= {name: columns[name].dictionary_encode() for name in _NAMES}
    return pa.RecordBatch.from_pydict(columns)
