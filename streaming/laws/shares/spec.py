"""The law of shares as the rest of the program, and people, know it."""

from collections.abc import Mapping
from typing import Any, Final

from streaming.contract.events import Tick
from streaming.contract.names import INFLIGHT_GROUP_PREFIX, QUOTA_GROUP_PREFIX, subject_of
from streaming.contract.usage_events import GroupUsage, group_usage, split_group_usage
from streaming.laws.law import DecisionForm, LawSpec, Said, WarmUp, count_up
from streaming.laws.shares.intake import ReportIntake, plain_rows
from streaming.laws.shares.share_rows import TYPE
from streaming.laws.shares.table import SharesTable
from streaming.policy.policy_set import ALL_OTHERS, EntryPath, Section
from streaming.policy.timeline import PolicyTimeline

_SHORT: Final = {
    "publishRateInMsgs": "publish msgs/s",
    "publishRateInBytes": "publish bytes/s",
    "dispatchRateInMsgs": "dispatch msgs/s",
    "dispatchRateInBytes": "dispatch bytes/s",
}
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
    if entity is None or None in entity.values():
        return None
    return QUOTA_GROUP_PREFIX + subject_of(entity.get("user"), entity.get("client-id"))


def line(decision: Mapping[str, Any]) -> Said:
    """Each dimension's share beside its use, or why there is none any more."""
    if decision["limits"] is None:
        return "removed", "", [f"{decision['removed']}, round {decision['round']}"]
    # By `limits`, not `usage`: a dimension that a broker does not use has no share.
    shares = [(f"{share:.2f} {_SHORT[name]}", name) for name, share in decision["limits"].items()]
    used = [f"used {decision['usage'][name]:.2f}" for _, name in shares]
    others = [f"{shares[place][0]}, {used[place]}" for place in range(1, len(shares))]
    return "share", shares[0][0], [used[0], *others, f"round {decision['round']}"]


def total(totals: dict[str, Any], decision: Mapping[str, Any]) -> None:
    """The last share, and how often it ended."""
    count_up(totals, removed=int("removed" in decision))
    totals["last_limits"] = decision["limits"]


SPEC: Final = LawSpec(
    name="shares",
    number=1,
    table=SharesTable,
    intake=ReportIntake,
    readers={"group_usage": group_usage},
    events=(GroupUsage, Tick),
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
    line=line,
    total=total,
)
