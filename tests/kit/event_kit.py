"""Events on `weir.usage`, and quotas of backlogs, with defaults for what a test does not say."""

from collections.abc import Sequence
from typing import Any

T0 = 1_795_166_700_000
TOPIC = "persistent://acme/orders/t1"
EVICT = "consumer_backlog_eviction"
Event = dict[str, Any]


def tick(at_ms: int) -> Event:
    """A tick `at_ms` after T0."""
    return {"type": "tick", "id": f"t{at_ms}", "ts": T0 + at_ms}


def sample(name: str, at_ms: int, rtt_ms: float, inflight: int = 1000, **fields: Any) -> Event:
    """A latency event `at_ms` after T0 of a request that ended then."""
    told = {"partition": "orders-3", "rtt_ns": int(rtt_ms * 1_000_000), "inflight": inflight}
    return {"type": "latency", "id": name, "ts": T0 + at_ms, **told, **fields}


def delivery(at_ms: int, msgs: int = 0, size: int = 0, entries: int | None = None, **fields: Any) -> Event:
    """A delivery `at_ms` after T0, in entries of one message unless said otherwise."""
    place = {"broker": "b1", "topic": TOPIC, "subscription": "sub1"}
    told = {"msgs": msgs, "bytes": size, "entries": msgs if entries is None else entries, "backlog": True}
    return {"type": "dispatch_usage", "id": f"d{at_ms}", "ts": T0 + at_ms, **place, **told, **fields}


def report(at_ms: int, broker: str, usage: dict[str, Any], period_ms: int = 1000, **fields: Any) -> Event:
    """What a broker's groups have used in the period before `at_ms` after T0."""
    told = {"broker": broker, "period_ms": period_ms, "usage": usage}
    return {"type": "group_usage", "id": f"{broker}-{at_ms}", "ts": T0 + at_ms, **told, **fields}


def ledger(id_: int, entries: int, size: int, closed_ago_ms: int | None = None) -> Event:
    """A ledger, closed so long before T0; None: it is open."""
    closed = None if closed_ago_ms is None else T0 - closed_ago_ms
    return {"id": id_, "entries": entries, "size": size, "closeTime": closed}


def subscription(name: str, ledger: int, entry: int, ago_ms: int | None = None, **more: Any) -> Event:
    """A durable subscription whose oldest message was published so long before T0."""
    published = None if ago_ms is None else T0 - ago_ms
    place = {"name": name, "ledger": ledger, "entry": entry}
    return {**place, "durable": True, "oldestPublishTime": published, **more}


def backlog(ledgers: Sequence[Event], *subscriptions: Event, at_ms: int = 0, topic: str = TOPIC) -> Event:
    """A topic's log and who has read how much of it, `at_ms` after T0."""
    told = {"topic": topic, "ledgers": list(ledgers), "subscriptions": list(subscriptions)}
    return {"type": "backlog", "id": f"k{at_ms}", "ts": T0 + at_ms, **told}


def quotas(size: int | None = None, seconds: int | None = None, policy: str = EVICT, **more: Any) -> Event:
    """An entry's backlogQuotaMap, of the types that are given."""
    limits = {"destination_storage": ("limitSize", size), "message_age": ("limitTime", seconds)}
    given = {
        kind: {key: limit, "policy": policy, **more}
        for kind, (key, limit) in limits.items()
        if limit is not None
    }
    return {"backlogQuotaMap": given}
