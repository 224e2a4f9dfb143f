"""The law of backlogs as the rest of the program knows it."""

from typing import Final

from streaming.contract.broker_events import Backlog, backlog
from streaming.laws.backlog import show
from streaming.laws.backlog.table import DECISION, BacklogTable
from streaming.laws.law import LawSpec, WarmUp
from streaming.policy.policy_set import Section
from streaming.policy.timeline import PolicyTimeline


def routing_key(event: Backlog, timeline: PolicyTimeline | None) -> str:
    """The topic that it is about."""
    return event.topic


SPEC: Final = LawSpec(
    name="backlog",
    number=4,
    table=BacklogTable,
    readers={"backlog": backlog},
    events=(Backlog,),
    ticked=True,
    routing_key=routing_key,
    key_column="topic",
    sections=frozenset({Section.NAMESPACES, Section.TOPICS, Section.BROKER}),
    decision=DECISION,
    times=(("ledgers", "closeTime"), ("subscriptions", "oldestPublishTime")),
    warm_up=WarmUp(
        policies={},
        batches=[[{"type": "backlog", "topic": "persistent://t/n/x", "ledgers": [], "subscriptions": []}]],
    ),
    line=show.line,
    total=show.total,
)
