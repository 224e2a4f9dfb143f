"""What is shared out beside resource groups and byte rates: dispatch rates, limits on what is in flight."""

from typing import Any

import pytest

from streaming.policy.groups import INFLIGHT_PARTS, GroupLimits, group_limits
from streaming.policy.policy_set import PolicySet

T = "persistent://acme/orders/t1"
SHARED: dict[str, Any] = {"dispatchThrottlingRateInMsg": 50, "ratePeriodInSecond": 4, "across_brokers": True}
POLICIES = PolicySet(
    {
        "namespaces.acme/orders": {"dispatchRate": SHARED, "subscriptionDispatchRate": SHARED},
        f"topics.{T}": {
            "subscriptions": {
                "a/b": {"dispatchRate": {"dispatchThrottlingRateInByte": 9, "across_brokers": True}},
                "here": {"dispatchRate": {"dispatchThrottlingRateInMsg": 5}},
            }
        },
        "backpressure.partitions.broker-1": {"algorithm": "vegas"},
    }
)


def test_a_rate_across_brokers_is_shared_out_per_second() -> None:
    """In the dimensions of what is dispatched."""
    expected = GroupLimits(rates=(None, None, 12.5, None), shadow=False)
    assert group_limits(POLICIES, f"dispatch/{T}") == expected
    assert group_limits(POLICIES, f"dispatch/{T}/any") == expected
    own = GroupLimits(rates=(None, None, None, 9.0), shadow=False)
    assert group_limits(POLICIES, f"dispatch/{T}/a/b") == own


@pytest.mark.parametrize(
    "group",
    [
        f"dispatch/{T}/here",  # its own rate is each broker's
        "dispatch/persistent://acme/other/t1",
        "dispatch/t1",
        "inflight/",
        "inflight/broker-2",
    ],
)
def test_what_no_policy_shares_out_is_no_group(group: str) -> None:
    """Reports of it are passed over."""
    assert group_limits(POLICIES, group) is None


def test_a_partitions_limit_is_shared_out_in_parts_of_the_whole() -> None:
    """Whatever it is at the moment; every partition has such a group that a policy matches."""
    expected = GroupLimits(rates=(float(INFLIGHT_PARTS), None, None, None), shadow=False)
    assert group_limits(POLICIES, "inflight/broker-1") == expected
    for_all = PolicySet({"backpressure.partitions.*": {}})
    assert group_limits(for_all, "inflight/broker-2") == expected
