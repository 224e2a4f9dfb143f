"""What each section of a policy file may hold (contract section 2). One check per section, shared by files,
policy events and the admin API."""

import math
import re
from typing import Any

from streaming.contract.names import NAMESPACE, QUOTA_GROUP_PREFIX, TENANT, TOPIC, TOPIC_EXPECTED
from streaming.policy.checks import Check, Report, choice, fields, flag, number, rate, table, text
from streaming.policy.concurrency_schema import partition_limit
from streaming.policy.policy_set import DEFAULT_BURST_SECONDS, UNLIMITED, Algorithm, Section
from streaming.policy.yaml_lines import Path

# One window per second of the burst is kept for each subject of a sampled rate.
MAX_WINDOWS = 100_000
# Keeps burst / rate and 11 x rate finite.
MIN_MUTATION_RATE, MAX_MUTATION_RATE = 1e-9, 1e300
RETENTION_POLICIES = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")
MUTATION_RATE, MUTATION_BURST = "controller_mutation_rate", "controller_mutation_burst"



def sampled_windows(limit: float, burst: float) -> int:
    """Windows S of a sampled rate (contract 3.1); may be far above MAX_WINDOWS for values not checked yet."""
    ratio = burst / limit
    return max(2, math.floor(ratio + 0.5)) if math.isfinite(ratio) else 2**63


def _shaped(pattern: re.Pattern[str], expected: str) -> Check:
    def check(report: Report, path: Path, value: Any) -> None:
        if not pattern.fullmatch(value):
            report.add(path, f"is not a valid name; expected {expected}")

    return check


def _group_name(report: Report, path: Path, value: Any) -> None:
    """Byte quotas are shared out as groups of this name (contract 3.2), so no other group may have it."""
    text(report, path, value)
    if value.startswith(QUOTA_GROUP_PREFIX):
        report.add(path, f"begins with {QUOTA_GROUP_PREFIX}, which is kept for quotas; expected another name")


_QUOTA = fields(
    {
        MUTATION_RATE: rate(whole=False, minimum=MIN_MUTATION_RATE, maximum=MAX_MUTATION_RATE),
        MUTATION_BURST: number(above=0, maximum=MAX_MUTATION_RATE),
        "algorithm": choice(Algorithm),
        "producer_byte_rate": rate(whole=True),
        "consumer_byte_rate": rate(whole=True),
        "shadow": flag,
    }
)


def quota(report: Report, path: Path, value: Any) -> None:
    """A quota without its entity; a sampled rate must not need too many windows."""
    found = len(report.findings)
    _QUOTA(report, path, value)
    sound = report.spared(found, path, (MUTATION_RATE, MUTATION_BURST))
    if not sound or value.get("algorithm") != Algorithm.SAMPLED_RATE:
        return
    # Without a rate the entry is passed over, whatever else it says.
    limit = value.get(MUTATION_RATE, UNLIMITED)
    if limit == UNLIMITED:
        return
    windows = sampled_windows(limit, value.get(MUTATION_BURST, DEFAULT_BURST_SECONDS * limit))
    if windows > MAX_WINDOWS:
        report.add(
            (*path, MUTATION_BURST),
            f"makes {'too many' if windows >= 2**63 else windows} one-second windows (burst / rate); "
            f"expected at most {MAX_WINDOWS} with {Algorithm.SAMPLED_RATE}, or {Algorithm.TOKEN_BUCKET}",
        )


_PERIOD = number(minimum=1, maximum=2**31 - 1, whole=True)
_DISPATCH_RATE = fields(
    {
        "dispatchThrottlingRateInMsg": rate(whole=True),
        "dispatchThrottlingRateInByte": rate(whole=True),
        "ratePeriodInSecond": _PERIOD,
    }
)
# -1 is no limit; 0 bytes is a limit that every backlog exceeds.
_BACKLOG_LIMIT = number(minimum=-1, whole=True)
_RETENTION = choice(RETENTION_POLICIES)
_BACKLOG_QUOTAS = fields(
    {
        "destination_storage": fields(
            {"limitSize": _BACKLOG_LIMIT, "policy": _RETENTION}, required=("limitSize", "policy")
        ),
        "message_age": fields(
            {"limitTime": _BACKLOG_LIMIT, "policy": _RETENTION}, required=("limitTime", "policy")
        ),
    }
)
_SHARED: dict[str, Check] = {
    "dispatchRate": _DISPATCH_RATE,
    "subscriptionDispatchRate": _DISPATCH_RATE,
    "backlogQuotaMap": _BACKLOG_QUOTAS,
}
_SUBSCRIPTIONS = table(
    text, fields({"dispatchRate": _DISPATCH_RATE}), "subscriptions by name, NAME: {dispatchRate: {...}}"
)
# Pulsar keeps whole numbers, but a group's limit is shared out in fractions here anyway.
_GROUP_RATE = rate(whole=False)

SCHEMAS: dict[Section, Check] = {
    Section.QUOTAS: quota,
    Section.RESOURCE_GROUPS: fields(
        {
            "publishRateInMsgs": _GROUP_RATE,
            "publishRateInBytes": _GROUP_RATE,
            "dispatchRateInMsgs": _GROUP_RATE,
            "dispatchRateInBytes": _GROUP_RATE,
            "shadow": flag,
        }
    ),
    Section.TENANTS: fields({"resourcegroup": text}, required=("resourcegroup",)),
    Section.NAMESPACES: fields({"resourcegroup": text, **_SHARED}),
    Section.TOPICS: fields({**_SHARED, "subscriptions": _SUBSCRIPTIONS}),
    Section.BROKER: fields(
        {
            "dispatchThrottlingRateInMsg": rate(whole=True),
            "dispatchThrottlingRateInByte": rate(whole=True),
            "dispatchThrottlingRatePerTopicInMsg": rate(whole=True),
            "dispatchThrottlingRatePerTopicInByte": rate(whole=True),
            "dispatchThrottlingRatePerSubscriptionInMsg": rate(whole=True),
            "dispatchThrottlingRatePerSubscriptionInByte": rate(whole=True),
            "dispatchThrottlingOnNonBacklogConsumerEnabled": flag,
            "dispatchThrottlingOnBatchMessageEnabled": flag,
            "preciseDispatcherFlowControl": flag,
            "backlogQuotaDefaultLimitBytes": _BACKLOG_LIMIT,
            "backlogQuotaDefaultLimitSecond": _BACKLOG_LIMIT,
            "backlogQuotaDefaultRetentionPolicy": _RETENTION,
            "backlogQuotaCheckIntervalInSeconds": _PERIOD,
            "preciseTimeBasedBacklogQuotaCheck": flag,
            "preciseBacklogSize": flag,
            "resourceUsagePublishIntervalInSecs": _PERIOD,
            "resourceUsageMemberExpiryRounds": _PERIOD,
        },
        hint="a mapping of the broker's settings, NAME: VALUE",
    ),
    Section.PARTITIONS: partition_limit,
}
NAME_CHECKS: dict[Section, Check] = {
    Section.RESOURCE_GROUPS: _group_name,
    Section.TENANTS: _shaped(TENANT, "a tenant's name of letters, digits and - = : . _"),
    Section.NAMESPACES: _shaped(NAMESPACE, "TENANT/NAMESPACE, each of letters, digits and - = : . _"),
    Section.TOPICS: _shaped(TOPIC, TOPIC_EXPECTED),
    Section.PARTITIONS: text,
}
