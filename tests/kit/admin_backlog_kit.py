"""Backlogs as the admin API reads them: reports, decisions, actions."""

from collections.abc import Sequence
from typing import Any, Final

from enforcer.control.backlog.table import BacklogTable, report_of
from streaming.contract.backlog.actions import backlog_action
from streaming.contract.backlog.decisions import backlog_decision

T: Final = "persistent://acme/orders/t1"


def report(topic: str = T, *subscriptions: tuple[str, int], ts: int = 1_000) -> dict[str, Any]:
    """10 entries of 100 bytes, closed, 2 in the open ledger; subscriptions by their acknowledged entry."""
    return {
        "type": "backlog", "id": "k1", "ts": ts, "topic": topic,
        "ledgers": [
            {"id": 1, "entries": 10, "size": 1_000, "closeTime": 900},
            {"id": 2, "entries": 2, "size": 50, "closeTime": None},
        ],
        "subscriptions": [
            {"name": name, "ledger": 1, "entry": entry, "durable": True, "oldestPublishTime": 500 + entry}
            for name, entry in subscriptions
        ],
    }  # fmt: skip


def decision(topic: str = T, *exceeded: tuple[str, str], ts: int = 1_000, **fields: Any) -> dict[str, Any]:
    """On such a report, where one has acknowledged nothing."""
    return {
        "type": "backlog", "id": "k1", "ts": ts, "topic": topic, "backlogSize": 1050.0,
        "backlogQuotaLimitSize": -1, "backlogQuotaLimitTime": -1, "oldestBacklogMessageAgeSeconds": 7,
        "oldestBacklogMessageSubscriptionName": "slow", "exceeded": [],
        "actions": [{"quota_type": kind, "policy": policy} for kind, policy in exceeded],
        "evict": [], "ttl_ms": 60_000, **fields,
    }  # fmt: skip


def eviction(subscription: str, step: str = "done", *, check: str = "k1", **fields: Any) -> dict[str, Any]:
    """A step of an eviction by size, of 4 messages and 400 bytes."""
    kind = fields.get("quota_type", "size")
    return {
        "type": "backlog_action", "id": f"{check}/{kind}/{subscription}", "ts": 1_100, "topic": T,
        "quota_type": kind, "policy": "consumer_backlog_eviction", "limit": 700, "actor": "collector",
        "step": step, "how": "offsets", "subscription": subscription, "messages": 4, "bytes": 400, **fields,
    }  # fmt: skip


def block(actor: str, step: str = "begun", **fields: Any) -> dict[str, Any]:
    """A step of a block of producers by size."""
    return {
        "type": "backlog_action", "id": f"k1/size/{actor}", "ts": 1_100, "topic": T,
        "quota_type": "size", "policy": "producer_request_hold", "limit": 700, "actor": actor, "step": step,
        "how": "hold", **fields,
    }  # fmt: skip


def take(table: BacklogTable, records: Sequence[dict[str, Any]]) -> None:
    """Let the table read these."""
    for fields in records:
        if fields["type"] == "backlog_action":
            table.take_action(backlog_action(fields))
        elif "ledgers" in fields:
            table.take_report(report_of(fields, fields["id"], fields["ts"]))
        else:
            table.take_decision(backlog_decision(fields))
