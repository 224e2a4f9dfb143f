"""Which policies apply to a topic: resource group, dispatch rates, backlog quotas (docs/contract.md 2).

Precedence per kind of limit: a subscription's own rate, then the topic, the namespace, the broker's defaults.
A dispatch rate wins as a whole if it sets at least one rate; a backlog quota if its limit is not -1.
A partition, `TOPIC-partition-N`, without an entry of its own has that of its topic, as in Pulsar.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from streaming.contract.names import namespace_of, partitioned_topic_of
from streaming.policy.policy_set import UNLIMITED, PolicySet, Section

DEFAULT_RETENTION = "producer_request_hold"


class RateKind(StrEnum):
    """The two dispatch limiters of a topic, by their key in topics and namespaces."""

    TOPIC = "dispatchRate"
    SUBSCRIPTION = "subscriptionDispatchRate"


class BacklogKind(StrEnum):
    """The two backlog quotas, by their key in backlogQuotaMap."""

    SIZE = "destination_storage"
    AGE = "message_age"

    @property
    def quota_type(self) -> str:
        """What decisions, actions and PIP-323's counters call it."""
        return "size" if self is BacklogKind.SIZE else "time"


KIND_OF: Final = {kind.quota_type: kind for kind in BacklogKind}
"""The quota by that word."""


# In order of precedence; the first is number 1.
LEVELS = ("subscription", "topic", "namespace", "broker")
BROKER_RATES = {
    RateKind.TOPIC: ("dispatchThrottlingRatePerTopicInMsg", "dispatchThrottlingRatePerTopicInByte"),
    RateKind.SUBSCRIPTION: (
        "dispatchThrottlingRatePerSubscriptionInMsg",
        "dispatchThrottlingRatePerSubscriptionInByte",
    ),
}
"""Where `broker` says the two of each."""
_BROKER_BACKLOGS = {
    BacklogKind.SIZE: "backlogQuotaDefaultLimitBytes",
    BacklogKind.AGE: "backlogQuotaDefaultLimitSecond",
}
RATE_KEYS = ("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte")
"""Where a dispatch rate says its two."""
LIMIT_KEYS = {BacklogKind.SIZE: "limitSize", BacklogKind.AGE: "limitTime"}
"""Where a quota says its limit."""


DEFAULT_CHECK_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogQuota:
    """The backlog quota of one type that applies to a topic.

    Attributes:
        path: where it stands in the policies.
        limit: bytes, or seconds; UNLIMITED: none.
        policy: what is to be done beyond it.
        actions: whether that is carried out, and not only decided and reported; never in mode `track`.
        allow_delete_records: whether records may be deleted where a group's offsets cannot be moved (Kafka).
    """

    path: str = ""
    limit: int = UNLIMITED
    policy: str = DEFAULT_RETENTION
    actions: bool = False
    allow_delete_records: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Somewhere a limit is looked for.

    Attributes:
        level: one of LEVELS.
        path: the entry and the key in it.
        value: what stands there, None if nothing does.
        wins: it sets a limit, so nothing further is looked for.
    """

    level: str
    path: str
    value: Mapping[str, Any] | None
    wins: bool


def resource_group(policies: PolicySet, topic: str) -> tuple[str, str] | None:
    """The group that a topic's traffic counts in, and the path of the entry that says so; None: no group."""
    return namespace_group(policies, namespace_of(topic))


def namespace_group(policies: PolicySet, namespace: str) -> tuple[str, str] | None:
    """The group of `TENANT/NAMESPACE`, and the path of the entry that says so; None: no group."""
    for path in (f"{Section.NAMESPACES}.{namespace}", f"{Section.TENANTS}.{namespace.partition('/')[0]}"):
        group = policies.entries.get(path, {}).get("resourcegroup")
        if group is not None:
            return group, path
    return None


def dispatch_candidates(
    policies: PolicySet, topic: str, subscription: str | None, kind: RateKind
) -> Iterator[Candidate]:
    """Where a dispatch rate is looked for, in order of precedence.

    Every value has the keys dispatchThrottlingRateInMsg, dispatchThrottlingRateInByte and
    ratePeriodInSecond as far as they are set. Without a subscription its own rate is left out.
    """
    own_path, namespace_path = _own_path(policies, topic), f"{Section.NAMESPACES}.{namespace_of(topic)}"
    own, shared = policies.entries.get(own_path, {}), policies.entries.get(namespace_path, {})
    # Only the limiter of a subscription has a level more than that of a topic.
    if kind is RateKind.SUBSCRIPTION and subscription is not None:
        rate = own.get("subscriptions", {}).get(subscription, {}).get("dispatchRate")
        yield _candidate("subscription", f"{own_path}.subscriptions.{subscription}.dispatchRate", rate)
    yield _candidate("topic", f"{own_path}.{kind}", own.get(kind))
    yield _candidate("namespace", f"{namespace_path}.{kind}", shared.get(kind))
    broker = policies.entries.get(Section.BROKER, {})
    msgs, size = BROKER_RATES[kind]
    default = dict(zip(RATE_KEYS, (broker.get(msgs, UNLIMITED), broker.get(size, UNLIMITED)), strict=True))
    # The broker's defaults know no period: they are per second.
    yield _candidate("broker", f"{Section.BROKER}.{msgs.removesuffix('InMsg')}*", default)


def sets_rate(value: Mapping[str, Any] | None, keys: Sequence[str] = RATE_KEYS) -> bool:
    """Whether a dispatch rate, or what has other keys, says one of its limits."""
    return value is not None and any(value.get(key, UNLIMITED) != UNLIMITED for key in keys)


def limits_some(policies: PolicySet, topic: str) -> bool:
    """Whether a dispatch rate applies to any subscription of a topic."""
    own = policies.entries.get(_own_path(policies, topic), {}).get("subscriptions", {}).values()
    if any(sets_rate(each.get("dispatchRate")) for each in own):
        return True
    return any(place.wins for place in dispatch_candidates(policies, topic, None, RateKind.SUBSCRIPTION))


def backlog_candidates(policies: PolicySet, topic: str, kind: BacklogKind) -> Iterator[Candidate]:
    """Where a backlog quota is looked for, in order of precedence; values hold the limit and `policy`."""
    limit_key, namespace_path = LIMIT_KEYS[kind], f"{Section.NAMESPACES}.{namespace_of(topic)}"
    for level, path in (("topic", _own_path(policies, topic)), ("namespace", namespace_path)):
        quota = policies.entries.get(path, {}).get("backlogQuotaMap", {}).get(kind)
        yield _candidate(level, f"{path}.backlogQuotaMap.{kind}", quota, (limit_key,))
    broker = policies.entries.get(Section.BROKER, {})
    default_key = _BROKER_BACKLOGS[kind]
    default = {
        limit_key: broker.get(default_key, UNLIMITED),
        "policy": broker.get("backlogQuotaDefaultRetentionPolicy", DEFAULT_RETENTION),
    }
    yield _candidate("broker", f"{Section.BROKER}.{default_key}", default, (limit_key,))


def backlog_quota(policies: PolicySet, topic: str, kind: BacklogKind) -> BacklogQuota:
    """The backlog quota of a topic: its own, else the namespace's, else the broker's (never acted on)."""
    for place in backlog_candidates(policies, topic, kind):
        if place.wins and place.value is not None:
            return BacklogQuota(
                path=place.path,
                limit=int(place.value[LIMIT_KEYS[kind]]),
                policy=place.value["policy"],
                actions=place.value.get("actions", False) and not policies.tracks,
                allow_delete_records=place.value.get("allow_delete_records", False),
            )
    return BacklogQuota()


def check_interval_s(policies: PolicySet) -> int:
    """How often backlogs are looked at, s."""
    broker = policies.entries.get(Section.BROKER, {})
    return int(broker.get("backlogQuotaCheckIntervalInSeconds", DEFAULT_CHECK_S))


def _own_path(policies: PolicySet, topic: str) -> str:
    """Where a topic's own entry stands; a partition without one is limited as its topic says, by itself."""
    path = f"{Section.TOPICS}.{topic}"
    whole = None if path in policies.entries else partitioned_topic_of(topic)
    return path if whole is None else f"{Section.TOPICS}.{whole}"


def _candidate(
    level: str, path: str, value: Mapping[str, Any] | None, keys: Sequence[str] = RATE_KEYS
) -> Candidate:
    return Candidate(level=level, path=path, value=value, wins=sets_rate(value, keys))
