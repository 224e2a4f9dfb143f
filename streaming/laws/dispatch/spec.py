"""The law of dispatch throttling as the rest of the program knows it."""

from typing import Any, Final

from streaming.contract.usage_events import DispatchUsage, dispatch_usage
from streaming.laws.dispatch import show
from streaming.laws.dispatch.deliveries import DeliveryIntake
from streaming.laws.dispatch.table import DECISION, DispatchTable
from streaming.laws.law import LawSpec, WarmUp
from streaming.policy.policy_set import Section
from streaming.policy.timeline import PolicyTimeline

_DELIVERY: Final[dict[str, Any]] = {
    "type": "dispatch_usage", "broker": "b", "topic": "persistent://t/n/x", "subscription": "s",
    "msgs": 1, "bytes": 1, "entries": 1, "backlog": True,
}  # fmt: skip


def routing_key(event: DispatchUsage, timeline: PolicyTimeline | None) -> str:
    """The broker that it is about."""
    return event.broker


SPEC: Final = LawSpec(
    name="dispatch",
    number=2,
    table=DispatchTable,
    intake=DeliveryIntake,
    readers={"dispatch_usage": dispatch_usage},
    events=(DispatchUsage,),
    ticked=True,
    routing_key=routing_key,
    key_column="broker",
    sections=frozenset({Section.NAMESPACES, Section.TOPICS, Section.BROKER}),
    decision=DECISION,
    warm_up=WarmUp(
        policies={"namespaces.t/n": {"dispatchRate": {"dispatchThrottlingRateInMsg": 1}}},
        batches=[[_DELIVERY], [_DELIVERY, _DELIVERY | {"subscription": "r", "proxy": "p"}]],
    ),
    line=show.line,
    total=show.total,
)
