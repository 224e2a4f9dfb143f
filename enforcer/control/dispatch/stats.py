"""`GET .../{topic}/stats`: deliveries under Pulsar's names, and what nobody else shows: what is left, what is
owed, when it goes on and what holds it back.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import groupby
from typing import Any, Final

import numpy as np
from pydantic import BaseModel, Field

from enforcer.control.dispatch.table import CUTS, DeliveryTable, DispatchDecision, Key, Row
from enforcer.control.usage import folded
from enforcer.control.usage import newest as newest_of
from streaming.laws.dispatch.law import (
    DIMENSIONS,
    LEVELS,
    NONE,
    last_to_free,
    least_available,
    rolled,
)
from streaming.policy.dispatch_limits import NOT_LIMITED, limit_of
from streaming.policy.policy_set import PolicySet


class Amounts(BaseModel):
    """Messages and bytes; null: not limited."""

    msgs: int | None
    bytes: int | None


class LimitedBy(BaseModel):
    """The counter that frees last."""

    level: str
    dimension: str


class Deliveries(BaseModel):
    """What was delivered, and how often limits held it back: each of CUTS by PIP-406's name."""

    msgRateOut: float = Field(description="messages per second over the last minute")
    msgThroughputOut: float = Field(description="bytes per second over the last minute")
    msgOutCounter: int
    bytesOutCounter: int
    dispatchThrottledMsgEventsByBrokerLimit: int
    dispatchThrottledBytesEventsByBrokerLimit: int
    dispatchThrottledMsgEventsByTopicLimit: int
    dispatchThrottledBytesEventsByTopicLimit: int
    dispatchThrottledMsgEventsBySubscriptionLimit: int
    dispatchThrottledBytesEventsBySubscriptionLimit: int


class Availability(BaseModel):
    """What may be delivered now."""

    available: Amounts | None = Field(description="in this period; null: not known")
    acquired: dict[str, Amounts] = Field(description="by level: delivered and not paid off by periods yet")
    debt: Amounts | None = Field(description="the most that any level has above its rate")
    limitedBy: LimitedBy | None = Field(description="null: not throttled")
    resumeTime: int | None = Field(description="ms since the epoch; null: not throttled")
    decidedTime: int | None = Field(description="of the newest decision, ms since the epoch")


class ProxyStats(Deliveries):
    """What one proxy reported."""

    proxy: str
    reportedTime: int | None


class BrokerStats(Deliveries, Availability):
    """One broker's part."""

    broker: str


class SubscriptionBrokerStats(BrokerStats):
    """One broker's part of a subscription."""

    proxies: list[ProxyStats]


class SubscriptionStats(Deliveries, Availability):
    """A subscription: sums over its brokers; limited by and until when by the one that goes on last."""

    brokers: list[SubscriptionBrokerStats]


class TopicStats(Deliveries, Availability):
    """A topic: sums over its brokers, of what the levels topic and broker leave."""

    subscriptions: dict[str, SubscriptionStats]
    brokers: list[BrokerStats]


def topic_stats(table: DeliveryTable, topic: str, policies: PolicySet, now_ms: int) -> dict[str, Any] | None:
    """The stats of a topic as TopicStats has them, None if nothing was read of it."""
    rows = table.of_topic(topic, now_ms)
    if not rows:
        return None
    own_rows = np.array([row for _, row in table.rows.of_group(topic)], dtype=np.int64)

    # That of a broker is that of all its subscriptions.
    @cache
    def newest(*names: str) -> DispatchDecision | None:
        return table.newest(*names, among=own_rows if len(names) > 1 else None)

    def standing(broker: str, *subscription: str) -> dict[str, Any]:
        names = (broker, topic, *subscription)
        decided = [newest(*names[:depth]) for depth in range(1, len(names) + 1)]
        return _standing(decided, names, policies, now_ms)

    subscriptions = {
        name: _subscription(name, list(own), standing)
        for name, own in groupby(rows, key=lambda row: row[0].subscription)
    }
    brokers = [
        {
            "broker": broker,
            **_sums(
                part for one in subscriptions.values() for part in one["brokers"] if part["broker"] == broker
            ),
            **standing(broker),
        }
        for broker in sorted({key.broker for key, _ in rows})
    ]
    return {**_together(brokers), "subscriptions": subscriptions, "brokers": brokers}


def _subscription(
    name: str,
    rows: Sequence[tuple[Key, Row]],
    standing: Callable[..., dict[str, Any]],
) -> dict[str, Any]:
    brokers = []
    for broker, own in groupby(rows, key=lambda row: row[0].broker):
        proxies = [_proxy(key, row) for key, row in own]
        brokers.append({"broker": broker, **_sums(proxies), **standing(broker, name), "proxies": proxies})
    return {**_together(brokers), "brokers": brokers}


def _proxy(key: Key, row: Row) -> dict[str, Any]:
    counts = (*row.rates, row.msgs, row.bytes, *row.cuts)
    return {
        "proxy": key.proxy,
        **dict(zip(Deliveries.model_fields, counts, strict=True)),
        "reportedTime": row.reported_ts or None,
    }


def _standing(
    counters: Sequence[DispatchDecision | None], names: Sequence[str], policies: PolicySet, now_ms: int
) -> dict[str, Any]:
    """What the counters of a broker, a topic and maybe a subscription come to now, by the law itself.

    Of each the newest decision and the name are given.
    """
    newest = counters[-1]
    if newest is None:
        return _UNKNOWN
    if newest.acquired is None:
        return _as_decided(newest, now_ms)
    limits = [limit_of(policies, tuple(names[:depth])) for depth in range(1, len(names) + 1)]
    now = max(now_ms, *(decided.at for decided in counters if decided))
    rate = np.array([limit.rate for limit in limits], dtype=np.int64)
    period_ms = np.array([limit.period_ms for limit in limits], dtype=np.int64)
    acquired = np.zeros_like(rate)
    for place, (decided, limit) in enumerate(zip(counters, limits, strict=True)):
        if decided is not None and decided.acquired is not None:
            acquired[place] = [
                rolled(max(0, count), per_period, limit.period_ms, decided.at, now)
                for count, per_period in zip(decided.acquired[place], limit.rate, strict=True)
            ]
    wait, freed_by = last_to_free(acquired, rate, period_ms, np.arange(len(names)), now)
    limited = rate != NOT_LIMITED
    return {
        "available": _amounts(map(least_available, acquired.T, rate.T)),
        "acquired": {
            LEVELS[place]: _amounts(np.where(limited[place], acquired[place], NONE))
            for place in range(len(names))
            if limited[place].any()
        },
        "debt": _amounts(np.where(limited, np.maximum(0, acquired - rate), NONE).max(axis=0)),
        "limitedBy": _limiting(freed_by),
        "resumeTime": None if freed_by == NONE else int(now + wait),
        "decidedTime": newest.at,
    }


_UNKNOWN: Final[dict[str, Any]] = {**dict.fromkeys(Availability.model_fields), "acquired": {}}


def _as_decided(decision: DispatchDecision, now_ms: int) -> dict[str, Any]:
    """A decision that does not say its counters holds as long as it throttles."""
    resume, known = decision.at + decision.throttle_ms, {**_UNKNOWN, "decidedTime": decision.at}
    if decision.limited_by == NONE or now_ms >= resume:
        return known
    left, limiting = _amounts(decision.available), _limiting(decision.limited_by)
    return {**known, "available": left, "limitedBy": limiting, "resumeTime": resume}


def _limiting(place: int) -> dict[str, str] | None:
    """A counter by its place in CUTS, None for NONE."""
    return None if place == NONE else dict(zip(LimitedBy.model_fields, CUTS[place], strict=True))


def _together(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several brokers' parts as one: sums; held back as the one that goes on last."""
    last = max(parts, key=lambda part: part["resumeTime"] or 0)
    return {**folded(parts, _RULES), "limitedBy": last["limitedBy"], "resumeTime": last["resumeTime"]}


def _sums(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return folded(list(parts), _COUNTED)


def _added(parts: Iterable[dict[str, int | None] | None]) -> dict[str, int | None] | None:
    """Amounts added up; null where none of them has a number, and as a whole where nothing is known."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    return _amounts(
        sum(counts) if (counts := [count for part in known if (count := part[name]) is not None]) else NONE
        for name in DIMENSIONS
    )


def _amounts(counts: Iterable[Any]) -> dict[str, int | None]:
    """Messages and bytes as they are shown, None for NONE."""
    return {
        name: None if count == NONE else int(count) for name, count in zip(DIMENSIONS, counts, strict=True)
    }


_COUNTED: Final[dict[str, Callable[[list[Any]], Any]]] = dict.fromkeys(Deliveries.model_fields, sum)
_RULES: Final[dict[str, Callable[[list[Any]], Any]]] = {
    **_COUNTED,
    "available": _added,
    "acquired": lambda levels: folded(levels, dict.fromkeys(LEVELS, _added)),
    "debt": _added,
    "decidedTime": newest_of,
}
"""What brokers' parts come to together, by field."""
