"""Backlogs in `GET .../{topic}/stats` and `.../partitioned-stats`: PIP-323's fields, Pulsar's, and ours.

What the last check saw and decided is shown as it was, the age too, as PIP-323 says. The limits are those of
the policies as they are, as in Pulsar: one that was just set is shown at once, judged by at the next check.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from itertools import chain
from operator import itemgetter
from typing import Any, Final

from pydantic import BaseModel, Field

from enforcer.control.backlog.table import BacklogTable, Done, Evictions, Judged, Row, SubscriptionLag
from enforcer.control.usage import folded, newest
from streaming.contract.backlog.actions import QUOTA_TYPES
from streaming.policy.policy_set import PolicySet, Section
from streaming.policy.topics import KIND_OF, BacklogKind, backlog_quota, check_interval_s

CHECKS_KEPT: Final = 3
"""A topic that was not looked at for so many checks is not there any more."""
LEAST_KEPT_MS: Final = 60_000
"""But no sooner: so long a decision stands."""
EVICTIONS: Final = {"size": "evictionsBySizeQuota", "time": "evictionsByTimeQuota"}
OLDEST: Final = ("oldestBacklogMessageAgeSeconds", "oldestBacklogMessageSubscriptionName")
LIMITS: Final = {BacklogKind.SIZE: "backlogQuotaLimitSize", BacklogKind.AGE: "backlogQuotaLimitTime"}


class Block(BaseModel):
    """Producers that are held or refused."""

    actor: str = Field(description="the proxy that does it")
    quotaType: str
    policy: str
    since: int = Field(description="ms since the epoch")


class SubscriptionBacklog(BaseModel):
    """How far behind a subscription is."""

    msgBacklog: int
    backlogSize: int
    earliestMsgPublishTimeInBacklog: int = Field(description="ms since the epoch; 0: not known")
    isDurable: bool


class BacklogStats(BaseModel):
    """What a topic holds back; fields are absent until they are known."""

    storageSize: int = 0
    backlogSize: int = 0
    backlogQuotaLimitSize: int = Field(-1, description="bytes; -1: none")
    backlogQuotaLimitTime: int = Field(-1, description="s; -1: none")
    oldestBacklogMessageAgeSeconds: int = Field(-1, description="at the last check; -1: not known, or none")
    oldestBacklogMessageSubscriptionName: str | None = None
    earliestMsgPublishTimeInBacklogs: int = 0
    backlogQuotaExceeded: list[str] = Field([], description="quotas, at the last check")
    backlogCheckTime: int = Field(description="of the last check, ms since the epoch")
    evictionsBySizeQuota: Evictions
    evictionsByTimeQuota: Evictions
    producerBlocks: int = Field(description="how many have begun since this process began to read")
    producersBlockedBy: list[Block]
    subscriptions: dict[str, SubscriptionBacklog]


class PartitionedBacklog(BacklogStats):
    """Of all partitions together."""

    metadata: dict[str, Any]
    partitions: dict[str, BacklogStats]


def kept_since(policies: PolicySet, now_ms: int) -> int:
    """What was not looked at since then (ms since the epoch) is not there any more."""
    return now_ms - max(LEAST_KEPT_MS, CHECKS_KEPT * check_interval_s(policies) * 1000)


def topic_backlog(table: BacklogTable, topic: str, policies: PolicySet, now_ms: int) -> dict[str, Any] | None:
    """A topic's backlog as BacklogStats has it, None if it was not looked at."""
    row = table.row(topic, kept_since(policies, now_ms))
    return None if row is None else _view(row, topic, policies)


def partitioned_backlog(
    table: BacklogTable, topic: str, policies: PolicySet, now_ms: int
) -> dict[str, Any] | None:
    """All partitions together as PartitionedBacklog has it, None if the topic is not known to have any."""
    since_ms = kept_since(policies, now_ms)
    if table.row(topic, since_ms) is not None:
        return None
    views = {name: _view(row, name, policies) for name, row in table.partitions(topic, since_ms)}
    if not views:
        return None
    metadata = {"partitions": len(views), "deleted": False}
    return {**_together(list(views.values())), "metadata": metadata, "partitions": views}


def limits_of(policies: PolicySet, topic: str) -> dict[str, int]:
    """The limits of a topic's backlog quotas, -1: none; raises BadEvent: no full topic name."""
    return {name: backlog_quota(policies, topic, kind).limit for kind, name in LIMITS.items()}


def _view(row: Row, topic: str, policies: PolicySet) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    done = row.done or Done()
    precise = policies.entries.get(Section.BROKER, {}).get("preciseBacklogSize", False)
    listed = () if row.report is None else row.report.subscriptions
    if row.report is not None:
        shown["storageSize"] = row.report.storage
    if row.decision is not None:
        decided = row.decision
        shown |= {
            "backlogSize": round(decided.size),
            "oldestBacklogMessageAgeSeconds": decided.age,
            "oldestBacklogMessageSubscriptionName": decided.oldest,
            "backlogQuotaExceeded": [KIND_OF[kind] for kind, _ in decided.exceeded],
        }
    if row.report is not None:
        shown["earliestMsgPublishTimeInBacklogs"] = _earliest(
            each.earliest for each in listed if each.durable
        )
    return {
        **shown,
        **limits_of(policies, topic),
        "backlogCheckTime": row.checked_ts,
        **{name: asdict(done.evicted.get(kind) or Evictions()) for kind, name in EVICTIONS.items()},
        "producerBlocks": done.times_blocked,
        "producersBlockedBy": _blocks(done, row.decision),
        "subscriptions": {each.name: _subscription(each, precise) for each in listed},
    }


def _subscription(behind: SubscriptionLag, precise: bool) -> dict[str, Any]:
    return {
        "msgBacklog": behind.msgs,
        "backlogSize": round(behind.precise_size if precise else behind.size),
        "earliestMsgPublishTimeInBacklog": behind.earliest,
        "isDurable": behind.durable,
    }


def _blocks(done: Done, decided: Judged | None) -> list[dict[str, Any]]:
    """Those that stand; not those of a quota that was inside at a check since: who blocked may be dead."""
    exceeded = {kind for kind, _ in decided.exceeded} if decided is not None else set(QUOTA_TYPES)
    return [
        {"actor": each.actor, "quotaType": each.quota_type, "policy": each.policy, "since": each.ts}
        for each in done.blocks.values()
        if each.quota_type in exceeded or (decided is not None and decided.ts < each.ts)
    ]


def _together(views: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Partitions as one; the oldest with its subscription."""
    shown = folded(views, _RULES)
    if decided := [view for view in views if "backlogSize" in view]:
        age, name = OLDEST
        # Where no age is known, who holds most back.
        held = max(decided, key=lambda view: (view[age], view[name] is not None, view["backlogSize"]))
        shown |= {key: held[key] for key in OLDEST}
    return shown


def _subscriptions(parts: list[dict[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: folded([part[name] for part in parts if name in part], _OF_SUBSCRIPTIONS) for name in names}


def _earliest(times: Iterable[int]) -> int:
    """The earliest of times, of which 0 is none."""
    return min((time for time in times if time), default=0)


_OF_SUBSCRIPTIONS: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "msgBacklog": sum, "backlogSize": sum, "earliestMsgPublishTimeInBacklog": _earliest, "isDurable": any,
}  # fmt: skip
_OF_EVICTIONS: Final[dict[str, Callable[[list[Any]], Any]]] = {
    **dict.fromkeys(("times", "failures", "msgs", "bytes"), sum),
    "lastTime": newest,
}  # fmt: skip
_RULES: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "storageSize": sum,
    "earliestMsgPublishTimeInBacklogs": _earliest,
    "backlogSize": sum,
    "backlogQuotaExceeded": lambda kinds: sorted(set(chain.from_iterable(kinds))),
    # As in Pulsar, those of the last one.
    **dict.fromkeys(LIMITS.values(), itemgetter(-1)),
    # What is older than this may be so of one partition.
    "backlogCheckTime": min,
    **dict.fromkeys(EVICTIONS.values(), lambda parts: folded(parts, _OF_EVICTIONS)),
    "producerBlocks": sum,
    "producersBlockedBy": lambda blocks: list(chain.from_iterable(blocks)),
    "subscriptions": _subscriptions,
}
"""What partitions come to together, by field."""
