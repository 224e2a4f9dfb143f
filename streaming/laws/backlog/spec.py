"""The law of backlogs as the rest of the program, and people, know it."""

from collections.abc import Mapping
from typing import Any, Final

from streaming.contract.broker_events import Backlog, backlog
from streaming.contract.times import clock
from streaming.laws.backlog.table import DECISION, BacklogTable
from streaming.laws.law import LawSpec, Said, WarmUp, count_up, few
from streaming.policy.policy_set import Section


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


SPEC: Final = LawSpec(
    name="backlog",
    number=4,
    table=BacklogTable,
    readers={"backlog": backlog},
    events=(Backlog,),
    routing_key=lambda event, timeline: str(event.topic),
    key_column="topic",
    sections=frozenset({Section.NAMESPACES, Section.TOPICS, Section.BROKER, Section.MODE}),
    decision=DECISION,
    times=(("ledgers", "closeTime"), ("subscriptions", "oldestPublishTime")),
    warm_up=WarmUp(
        policies={},
        batches=[[{"type": "backlog", "topic": "persistent://t/n/x", "ledgers": [], "subscriptions": []}]],
    ),
    line=line,
    total=total,
)
