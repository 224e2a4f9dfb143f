"""What people see of backlogs: a line of `weir tail`, totals of a replay, the plot of docs/laws.md."""

from collections.abc import Mapping
from typing import Any

from streaming.contract.broker_events import Backlog, Ledger, Subscription
from streaming.contract.times import clock
from streaming.laws.backlog.law import EVICTION, Quota, Rules, judge
from streaming.laws.law import Curve, Plot, Points, Said, count_up, few

_LIMIT_BYTES, _MINUTES = 50_000, 60
"""Of the plot: each minute brings 3 entries of 1 kB; a ledger closes when it holds 10 or more."""


def line(decision: Mapping[str, Any]) -> Said:
    """How far behind whom, which limits that exceeds, and what must go."""
    oldest = decision["oldestBacklogMessageSubscriptionName"]
    if oldest is None:
        return "empty", f"{decision['backlogSize']:.0f} bytes", []
    age = decision["oldestBacklogMessageAgeSeconds"]
    reasons = [f"oldest {oldest}, {'age not known' if age < 0 else f'{age} s old'}"]
    for exceeded, action in zip(decision["exceeded"], decision["actions"], strict=True):
        limit = (
            f"{decision['backlogQuotaLimitTime']} s"
            if exceeded == "message_age"
            else f"{decision['backlogQuotaLimitSize']} bytes"
        )
        reasons.append(f"over {limit}: {action['policy']}")
    reasons += few(list(map(_eviction, decision["evict"])))
    word = "exceeded" if decision["exceeded"] else "within"
    return word, f"{decision['backlogSize']:.0f} bytes behind", reasons


def _eviction(plan: Mapping[str, Any]) -> str:
    if "before_publish_time" in plan:
        return f"evict {plan['subscription']} before {clock(plan['before_publish_time'])}"
    return f"evict {plan['subscription']} up to {plan['ledger']}:{plan['entry']}, {plan['entries']} entries"


def total(totals: dict[str, Any], decision: Mapping[str, Any]) -> None:
    """How many reports exceeded a quota, planned evictions, the greatest size."""
    count_up(totals, exceeded=int(bool(decision["exceeded"])), evictions=len(decision["evict"]))
    totals["greatest_size"] = max(totals.get("greatest_size", 0), decision["backlogSize"])


def plot() -> Plot:
    """Size of a backlog under eviction, whole ledgers against single entries."""
    limit = [(0.0, _LIMIT_BYTES / 1000), (float(_MINUTES), _LIMIT_BYTES / 1000)]
    return Plot(
        title="Backlog of a stopped subscriber, limit 50 kB, checked each minute",
        x_label="minutes, 3 entries of 1 kB each",
        y_label="backlog, kB",
        curves=[
            Curve(name="preciseBacklogSize: the fewest entries", points=_sizes(precise=True)),
            Curve(name="without: ledger by ledger", points=_sizes(precise=False)),
            Curve(name="limit", points=limit, dashed=True),
        ],
    )


def _sizes(*, precise: bool) -> Points:
    """Backlog, minute by minute, of a subscriber that has stopped; each plan is carried out at once."""
    rules = Rules(
        size=Quota(limit=_LIMIT_BYTES, policy=EVICTION),
        age=Quota(limit=-1, policy=EVICTION),
        precise_size=precise,
        precise_age=False,
    )
    counts, position, curve = [0], (0, -1), list[tuple[float, float]]()
    for minute in range(_MINUTES):
        if counts[-1] >= 10:
            counts.append(0)
        counts[-1] += 3
        decision = judge(_report(minute, counts, position), rules)
        curve.append((float(minute), decision["backlogSize"] / 1000))
        for evicted in decision["evict"]:
            position = (evicted["ledger"], evicted["entry"])
            after = judge(_report(minute, counts, position), rules)
            curve.append((float(minute), after["backlogSize"] / 1000))
    return curve


def _report(minute: int, counts: list[int], position: tuple[int, int]) -> Backlog:
    """A topic of ledgers with so many entries, the last one open, and a subscription at this position."""
    ledgers = tuple(
        Ledger(id=id_, entries=count, size=count * 1000, close_time=None if id_ == len(counts) - 1 else 0)
        for id_, count in enumerate(counts)
    )
    ledger, entry = position
    slow = Subscription(name="slow", ledger=ledger, entry=entry, durable=True, oldest_publish_time=None)
    return Backlog(
        id="k", ts=minute, at=minute, broker="", topic="t", ledgers=ledgers, subscriptions=(slow,)
    )
