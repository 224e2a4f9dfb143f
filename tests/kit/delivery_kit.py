"""Deliveries and decisions on them, as the admin API reads them."""

from typing import Any, Final

from enforcer.control.dispatch.table import DeliveryTable, dispatch_of
from streaming.contract.usage_events import DispatchUsage

T: Final = "persistent://a/b/t"
DECISION: Final[dict[str, Any]] = {
    "type": "dispatch", "id": "d1", "ts": 1_000, "broker": "b1", "topic": T, "subscription": "s",
    "available": {"msgs": 0, "bytes": None}, "throttle_time_ms": 1_000,
    "limited_by": {"level": "subscription", "dimension": "msgs"}, "entries_to_read": 0, "shadow": False,
    "ttl_ms": 1_000,
}  # fmt: skip


def deliver(table: DeliveryTable, ts: int, *, proxy: str = "p1", msgs: int = 10, **names: str) -> None:
    """Let the table read a delivery, of 100 bytes a message in one entry."""
    who = {"broker": "b1", "topic": T, "subscription": "s", "proxy": proxy, **names}
    event = DispatchUsage(
        id="x", ts=ts, at=ts, msgs=msgs, bytes=100 * msgs, entries=1, backlog=True,
        avg_publish_entry_bytes=None, **who,
    )  # fmt: skip
    table.take_usage(event, ts)


def decide(table: DeliveryTable, **fields: Any) -> None:
    """Let it read a decision."""
    table.take_decision(dispatch_of(DECISION | {"proxy": "p1"} | fields))
