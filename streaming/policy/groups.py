"""Which limits a resource group has, and how long its rounds are (docs/contract.md 2 and 3.2)."""

from dataclasses import dataclass
from typing import Final

from streaming.contract.names import DISPATCH_GROUP_PREFIX, INFLIGHT_GROUP_PREFIX, QUOTA_GROUP_PREFIX
from streaming.contract.usage_events import DIMENSIONS
from streaming.policy.dispatch_limits import NOT_LIMITED, dispatch_rate, parse_dispatch_group
from streaming.policy.policy_set import (
    UNLIMITED,
    PolicySet,
    Section,
    candidates,
    candidates_of,
    partition_entry,
)

QUOTA_DIMENSIONS: Final = {"producer_byte_rate": 1, "consumer_byte_rate": 3}
"""Position in DIMENSIONS of the rates of a Kafka quota."""
DISPATCH_DIMENSIONS: Final = (2, 3)
"""Position in DIMENSIONS of messages and bytes delivered."""
INFLIGHT_PARTS: Final = 1_000_000
"""A limit on requests in flight is shared out in so many parts, a second's, whatever it is at the moment."""
MIN_LIMIT: Final = 1e-280
MAX_LIMIT: Final = 1e280
"""Limits are brought within these bounds, so that a limit times any count is a finite number above 0."""
DEFAULT_INTERVAL_S: Final = 60
DEFAULT_EXPIRY_ROUNDS: Final = 5
LIFE_ROUNDS: Final = 3
"""How many rounds a share stands when nothing is heard (docs/contract.md 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """The limits of a resource group.

    Attributes:
        rates: per second, in the order of DIMENSIONS; None: not limited.
        shadow: decided, but nobody acts on it.
    """

    rates: tuple[float | None, ...]
    shadow: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRules:
    """The rhythm of the rounds.

    Attributes:
        interval_ms: length R of a round (resourceUsagePublishIntervalInSecs).
        expiry_rounds: how many rounds old a member's report may be (resourceUsageMemberExpiryRounds).
    """

    interval_ms: int
    expiry_rounds: int


def round_rules(policies: PolicySet) -> RoundRules:
    """The rhythm in force for all groups."""
    broker = policies.entries.get(Section.BROKER, {})
    return RoundRules(
        interval_ms=int(broker.get("resourceUsagePublishIntervalInSecs", DEFAULT_INTERVAL_S)) * 1000,
        expiry_rounds=int(broker.get("resourceUsageMemberExpiryRounds", DEFAULT_EXPIRY_ROUNDS)),
    )


def group_limits(policies: PolicySet, group: str) -> GroupLimits | None:
    """The limits of a group by its name; None: the policies do not know it.

    `quota/` and a subject name the group that shares out that subject's byte rates. Each of its two rates
    comes from the first of the eight levels that charges the subject and sets that rate. Such a group is in
    shadow only if all its rates are: one share cannot be enforced by half.

    `dispatch/` and a topic, or a topic and a subscription, name the group of a dispatch rate across brokers,
    `inflight/` and a partition that of its limit on requests in flight.
    """
    if group.startswith(QUOTA_GROUP_PREFIX):
        return _quota_limits(policies, group.removeprefix(QUOTA_GROUP_PREFIX))
    if group.startswith(DISPATCH_GROUP_PREFIX):
        return _dispatch_limits(policies, group)
    if group.startswith(INFLIGHT_GROUP_PREFIX):
        return _inflight_limits(policies, group.removeprefix(INFLIGHT_GROUP_PREFIX))
    value = policies.entries.get(f"{Section.RESOURCE_GROUPS}.{group}")
    if value is None:
        return None
    return GroupLimits(
        rates=tuple(_bounded(value.get(dimension, UNLIMITED)) for dimension in DIMENSIONS),
        shadow=value.get("shadow", False),
    )


def byte_quota_subject(policies: PolicySet, user: str, client_id: str, key: str) -> str | None:
    """The subject that a client's bytes are charged to; None: not limited.

    Args:
        policies: in force.
        user: Kafka principal.
        client_id: Kafka client id.
        key: one of QUOTA_DIMENSIONS.
    """
    for candidate in candidates(user, client_id):
        if policies.entries.get(candidate.path, {}).get(key, UNLIMITED) != UNLIMITED:
            return candidate.subject
    return None


def _quota_limits(policies: PolicySet, subject: str) -> GroupLimits | None:
    values = [policies.entries.get(each.path, {}) for each in candidates_of(subject)]
    rates: list[float | None] = [None] * len(DIMENSIONS)
    shadows: list[bool] = []
    for key, dimension in QUOTA_DIMENSIONS.items():
        value = next((one for one in values if one.get(key, UNLIMITED) != UNLIMITED), None)
        if value is not None:
            rates[dimension] = _bounded(value[key])
            shadows.append(value.get("shadow", False))
    return GroupLimits(rates=tuple(rates), shadow=all(shadows)) if shadows else None


def _dispatch_limits(policies: PolicySet, group: str) -> GroupLimits | None:
    """Per second, of the rate that applies, if that is one across brokers."""
    names = parse_dispatch_group(group)
    limit = None if names is None else dispatch_rate(policies, *names)
    if limit is None or not limit.group:
        return None
    rates: list[float | None] = [None] * len(DIMENSIONS)
    for dimension, rate in zip(DISPATCH_DIMENSIONS, limit.rate, strict=True):
        if rate != NOT_LIMITED:
            rates[dimension] = _bounded(rate / (limit.period_ms / 1000))
    return GroupLimits(rates=tuple(rates), shadow=policies.tracks)


def _inflight_limits(policies: PolicySet, partition: str) -> GroupLimits | None:
    """The whole in parts, in the first dimension, whatever the limit is: it moves by the second."""
    if not partition or partition_entry(policies, partition) is None:
        return None
    return GroupLimits(rates=(float(INFLIGHT_PARTS), None, None, None), shadow=policies.tracks)


def _bounded(rate: float) -> float | None:
    return None if rate == UNLIMITED else min(max(float(rate), MIN_LIMIT), MAX_LIMIT)
