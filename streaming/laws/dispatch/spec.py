"""The law of dispatch throttling as the rest of the program, and people, know it."""

from collections.abc import Mapping
from typing import Any, Final

from streaming.contract.usage_events import DispatchUsage, dispatch_usage
from streaming.laws.dispatch.deliveries import DeliveryIntake
from streaming.laws.dispatch.table import DECISION, DispatchTable
from streaming.laws.law import LawSpec, Said, WarmUp, count_up, keep_longest_throttle
from streaming.policy.policy_set import Section

_DELIVERY: Final[dict[str, Any]] = {
    "type": "dispatch_usage", "broker": "b", "topic": "persistent://t/n/x", "subscription": "s",
    "msgs": 1, "bytes": 1, "entries": 1, "backlog": True,
}  # fmt: skip


def line(decision: Mapping[str, Any]) -> Said:
    """What is left, and how much to read or how long to wait for which limit."""
    entries = decision["entries_to_read"]
    counts = [(name, decision["available"][name]) for name in ("msgs", "bytes")]
    left = [f"{count} {name}" for name, count in counts if count is not None]
    numbers = f"{', '.join(left)} left" if left else "not limited"
    limiter = decision["limited_by"]
    if limiter is None:
        return "deliver", numbers, [] if entries is None else [f"read {entries} entries"]
    why = f"limited by {limiter['level']} {limiter['dimension']}"
    return "pause", numbers, [f"wait {decision['throttle_time_ms']} ms", why, f"at {decision['broker']}"]


def total(totals: dict[str, Any], decision: Mapping[str, Any]) -> None:
    """How often it was throttled, and the longest throttle."""
    count_up(totals, throttled=int(decision["throttle_time_ms"] > 0))
    keep_longest_throttle(totals, decision)


SPEC: Final = LawSpec(
    name="dispatch",
    number=2,
    table=DispatchTable,
    intake=DeliveryIntake,
    readers={"dispatch_usage": dispatch_usage},
    events=(DispatchUsage,),
    routing_key=lambda event, timeline: str(event.broker),
    key_column="broker",
    sections=frozenset({Section.NAMESPACES, Section.TOPICS, Section.BROKER, Section.MODE}),
    decision=DECISION,
    warm_up=WarmUp(
        policies={"namespaces.t/n": {"dispatchRate": {"dispatchThrottlingRateInMsg": 1}}},
        batches=[[_DELIVERY], [_DELIVERY, _DELIVERY | {"subscription": "r", "proxy": "p"}]],
    ),
    line=line,
    total=total,
)
