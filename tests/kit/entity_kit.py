"""The view over all laws without Kafka: decisions and events as they stand in the log."""

from typing import Any

from enforcer.control.entities.feed import DECISIONS, REPORTS, REQUESTS, Told
from enforcer.control.entities.view import EntityView
from streaming.policy.policy_set import PolicySet

TOPIC = "persistent://acme/orders/t1"
POLICIES: dict[str, Any] = {
    "quotas[user=alice]": {"controller_mutation_rate": 5, "controller_mutation_burst": 500},
    "quotas[user=<default>]": {"controller_mutation_rate": 2},
    "resourcegroups.rg1": {"publishRateInMsgs": 100, "publishRateInBytes": 1000},
    "namespaces.acme/orders": {
        "subscriptionDispatchRate": {"dispatchThrottlingRateInMsg": 10},
        "backlogQuotaMap": {"destination_storage": {"limitSize": 1000, "policy": "producer_request_hold"}},
    },
    "tenants.acme": {"resourcegroup": "rg1"},
    "backpressure.partitions.*": {"algorithm": "aimd"},
}


def view(rows_max: int = 100, policies: dict[str, Any] = POLICIES) -> EntityView:
    """A view under some policies."""
    held = PolicySet(policies)
    return EntityView(lambda: held, rows_max)


def decided(made: EntityView, *decisions: dict[str, Any], at: int | None = None) -> None:
    """Decisions, each written at its `ts`, or all at a time."""
    made.take_decisions([_decision(fields, fields["ts"] if at is None else at) for fields in decisions])


def reported(made: EntityView, *events: dict[str, Any]) -> None:
    """Events, each written at its `ts`."""
    told: list[Told] = []
    for number, fields in enumerate(events):
        reader = {**REPORTS, **REQUESTS}[fields["type"]]
        read = reader(fields, str(fields.get("id", number)), fields["ts"])
        told.append((read, fields, fields["ts"]))
    made.take_reports(told)


def admission(ts: int, **fields: Any) -> dict[str, Any]:
    """An admission of alice's; `rejected` says which items were not let through."""
    rejected = fields.get("rejected", [])
    return {
        "type": "admission", "id": f"p1-{ts}", "ts": ts, "proxy": "p1", "subject": "user=alice",
        "algorithm": "token_bucket", "outcome": "reject" if rejected else "allow", "throttle_time_ms": 0,
        "rejected": rejected, "tokens": 500.0, "rate": 0.0, "limit": 5.0, "mutations": 0,
        "policy_version": 1, "shadow": False, **fields,
    }  # fmt: skip


def request(ts: int, mutations: int, **fields: Any) -> dict[str, Any]:
    """A request of alice's."""
    return {
        "type": "request", "id": f"p1-{ts}", "ts": ts, "proxy": "p1", "user": "alice",
        "subject": "user=alice", "items": [{"name": "t", "mutations": mutations}], **fields,
    }  # fmt: skip


def usage(ts: int, broker: str = "p1", msgs: int = 0, throttled_ms: int = 0, **fields: Any) -> dict[str, Any]:
    """A report of what rg1 published in 10 s."""
    used = {"publishedMsg": msgs, "throttledMs": {"publishRateInMsgs": throttled_ms}}
    return {
        "type": "group_usage", "ts": ts, "broker": broker, "period_ms": 10_000, "usage": {"rg1": used},
        **fields,
    }  # fmt: skip


def share(ts: int, broker: str, msgs: float) -> dict[str, Any]:
    """A share of rg1's."""
    return {
        "type": "share", "id": f"rg1/{broker}@{ts}", "ts": ts, "ttl_ms": 30_000, "group": "rg1",
        "broker": broker, "round": 1, "usage": {}, "limits": {"publishRateInMsgs": msgs}, "shadow": False,
    }  # fmt: skip


def dispatch(ts: int, acquired: int, throttle_ms: int, **fields: Any) -> dict[str, Any]:
    """A decision on deliveries to sub1."""
    limited = {"level": "subscription", "dimension": "msgs"} if throttle_ms else None
    return {
        "type": "dispatch", "id": f"d{ts}", "ts": ts, "broker": "broker-1", "topic": TOPIC,
        "subscription": "sub1", "available": {"msgs": max(0, 10 - acquired), "bytes": None},
        "throttle_time_ms": throttle_ms, "limited_by": limited, "entries_to_read": 0,
        "acquired": {"subscription": {"msgs": acquired, "bytes": None}}, "proxy": "p1", "ttl_ms": 1_000,
        "shadow": False, **fields,
    }  # fmt: skip


def slots(ts: int, limit: int) -> dict[str, Any]:
    """A limit of broker-1's."""
    return {
        "type": "limit", "id": f"l{ts}", "ts": ts, "partition": "broker-1", "algorithm": "aimd",
        "limit": limit, "estimated_limit": float(limit), "ttl_ms": 60_000,
    }  # fmt: skip


def latency(ts: int, inflight: int, *, dropped: bool = False) -> dict[str, Any]:
    """What was measured of requests to broker-1."""
    return {
        "type": "latency", "ts": ts, "partition": "broker-1",
        "samples": [[0, 7_000_000, inflight, dropped], [0, 9_000_000, 1, False]],
    }  # fmt: skip


def backlog(ts: int, size: int, **fields: Any) -> dict[str, Any]:
    """A decision on t1's backlog."""
    over = size > 1000
    return {
        "type": "backlog", "id": f"k{ts}", "ts": ts, "topic": TOPIC, "backlogSize": size,
        "backlogQuotaLimitSize": 1000, "backlogQuotaLimitTime": -1, "oldestBacklogMessageAgeSeconds": 9,
        "oldestBacklogMessageSubscriptionName": "sub1",
        "exceeded": ["destination_storage"] if over else [],
        "actions": [{"quota_type": "size", "policy": "producer_request_hold"}] if over else [],
        "evict": [], "ttl_ms": 60_000, **fields,
    }  # fmt: skip


def _decision(fields: dict[str, Any], written_ms: int) -> Told:
    decision, held = DECISIONS[fields["type"]].parse(fields) or (None, fields)
    return decision, held, written_ms
