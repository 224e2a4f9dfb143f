"""The law of shares as the rest of the program knows it."""

from typing import Any, Final

from streaming.contract.events import Tick
from streaming.contract.names import INFLIGHT_GROUP_PREFIX, QUOTA_GROUP_PREFIX, subject_of
from streaming.contract.usage_events import GroupUsage, group_usage, split_group_usage
from streaming.laws.law import DecisionForm, LawSpec, WarmUp
from streaming.laws.shares import show
from streaming.laws.shares.intake import ReportIntake
from streaming.laws.shares.report_rows import plain_rows
from streaming.laws.shares.share_rows import TYPE
from streaming.laws.shares.table import SharesTable
from streaming.policy.policy_set import ALL_OTHERS, EntryPath, Section
from streaming.policy.timeline import PolicyTimeline

_USAGE: Final[dict[str, Any]] = {
    "type": "group_usage", "broker": "b", "period_ms": 1, "usage": {"g": {"publishedMsg": 1}},
}  # fmt: skip


def routing_key(event: GroupUsage, timeline: PolicyTimeline | None) -> str:
    """The group, of a report that was cut up by group already."""
    return event.usage[0][0] if event.usage else ""


def routing_key_of_policy(entry: EntryPath) -> str | None:
    """The group that an entry limits; one for several names may limit any of many groups, a topic too."""
    if entry.section is Section.RESOURCE_GROUPS:
        return entry.name
    if entry.section is Section.PARTITIONS and entry.name != ALL_OTHERS:
        return INFLIGHT_GROUP_PREFIX + entry.name
    entity = entry.entity
    if entity is None or entity.default_user or entity.default_client_id:
        return None
    return QUOTA_GROUP_PREFIX + subject_of(entity.user, entity.client_id)


SPEC: Final = LawSpec(
    name="shares",
    number=1,
    table=SharesTable,
    intake=ReportIntake,
    readers={"group_usage": group_usage},
    events=(GroupUsage, Tick),
    ticked=True,
    routing_key=routing_key,
    key_column="usage",
    record_key=lambda event: str(event.broker),
    split=split_group_usage,
    plain=plain_rows,
    # Namespaces and topics for their dispatch rates, partitions for the groups of their limits.
    sections=frozenset(set(Section) - {Section.TENANTS}),
    routing_key_of_policy=routing_key_of_policy,
    decision=DecisionForm(type=TYPE, subject=("group", "broker"), receiver="broker", timely=True),
    # The second closes the round of the first.
    warm_up=WarmUp(
        policies={"resourcegroups.g": {"publishRateInMsgs": 1}},
        batches=[[_USAGE | {"ts": 0}, _USAGE | {"ts": 1_000_000}]],
    ),
    line=show.line,
    total=show.total,
)
