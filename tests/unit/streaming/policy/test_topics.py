"""The backlog quota that applies to a topic, and how often backlogs are looked at (docs/contract.md 2)."""

from typing import Any

import pytest

from streaming.policy.files import check_entry
from streaming.policy.policy_set import PolicySet
from streaming.policy.topics import BacklogKind, BacklogQuota, backlog_quota, check_interval_s

T = "persistent://acme/orders/t1"
EVICT = "consumer_backlog_eviction"
SIZE, AGE = BacklogKind.SIZE, BacklogKind.AGE


def policies(**entries: dict[str, Any]) -> PolicySet:
    """Quotas of the topic, its namespace and the broker, each as it may stand in a file."""
    paths = {"topic": f"topics.{T}", "namespace": "namespaces.acme/orders", "broker": "broker"}
    found = {
        paths[name]: value if name == "broker" else {"backlogQuotaMap": value}
        for name, value in entries.items()
    }
    for path, value in found.items():
        check_entry(path, value)
    return PolicySet(found)


def test_the_nearest_quota_wins_whole_with_its_flags() -> None:
    """Of each type apart: the topic's without actions hides the namespace's with them."""
    namespace = {"limitSize": 9, "policy": EVICT, "actions": True, "allow_delete_records": True}
    found = policies(
        namespace={"destination_storage": namespace, "message_age": {"limitTime": 7, "policy": EVICT}},
        topic={"destination_storage": {"limitSize": 5, "policy": "producer_exception"}},
    )
    own = backlog_quota(found, T, SIZE)
    assert own == BacklogQuota(
        path=f"topics.{T}.backlogQuotaMap.destination_storage", limit=5, policy="producer_exception",
        actions=False, allow_delete_records=False,
    )  # fmt: skip
    other = backlog_quota(found, "persistent://acme/orders/t2", SIZE)
    assert (other.path, other.limit) == ("namespaces.acme/orders.backlogQuotaMap.destination_storage", 9)
    assert (other.actions, other.allow_delete_records) == (True, True)
    age = backlog_quota(found, T, AGE)
    assert (age.limit, age.policy, age.actions) == (7, EVICT, False)


def test_a_partition_goes_by_its_topic() -> None:
    """Each by itself, flags and all."""
    quota = {"limitSize": 5, "policy": EVICT, "actions": True}
    found = policies(topic={"destination_storage": quota})
    assert backlog_quota(found, f"{T}-partition-3", SIZE).actions


def test_one_without_a_limit_is_passed_over() -> None:
    """Flags and all: nobody acts on a quota that limits nothing."""
    found = policies(
        topic={"destination_storage": {"limitSize": -1, "policy": EVICT, "actions": True}},
        namespace={"destination_storage": {"limitSize": 9, "policy": EVICT}},
    )
    quota = backlog_quota(found, T, SIZE)
    assert (quota.limit, quota.actions) == (9, False)


def test_the_brokers_default_is_never_acted_on() -> None:
    """Whatever its policy is: it holds for topics that nobody has named."""
    found = policies(broker={"backlogQuotaDefaultLimitBytes": 3, "backlogQuotaDefaultRetentionPolicy": EVICT})
    quota = backlog_quota(found, T, SIZE)
    assert (quota.path, quota.limit) == ("broker.backlogQuotaDefaultLimitBytes", 3)
    assert (quota.policy, quota.actions, quota.allow_delete_records) == (EVICT, False, False)


@pytest.mark.parametrize("kind", list(BacklogKind))
def test_without_any_quota_there_is_no_limit(kind: BacklogKind) -> None:
    """And no action: an absent limit is not 0, which every backlog would exceed."""
    quota = backlog_quota(PolicySet({}), T, kind)
    assert (quota.path, quota.limit, quota.actions, quota.allow_delete_records) == ("", -1, False, False)


def test_how_often_backlogs_are_looked_at() -> None:
    """Each minute, as Pulsar's brokers do, unless the broker's settings say otherwise."""
    assert check_interval_s(PolicySet({})) == 60
    assert check_interval_s(policies(broker={"backlogQuotaCheckIntervalInSeconds": 5})) == 5
