"""Dispatch limits at one broker and across brokers: which rate applies, and the group that shares it out."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.contract.names import TOPIC
from streaming.policy.dispatch_limits import (
    NO_LIMIT,
    Limit,
    dispatch_group,
    dispatch_rate,
    limit_of,
    parse_dispatch_group,
)
from streaming.policy.policy_set import PolicySet

T = "persistent://acme/orders/t1"


def rate(msgs: int, **more: Any) -> dict[str, Any]:
    return {"dispatchThrottlingRateInMsg": msgs} | more


SHARED = PolicySet(
    {
        "namespaces.acme/orders": {
            "dispatchRate": rate(50, across_brokers=True, ratePeriodInSecond=5),
            "subscriptionDispatchRate": rate(10, dispatchThrottlingRateInByte=1000),
        },
        f"topics.{T}": {"subscriptions": {"own": {"dispatchRate": rate(5, across_brokers=True)}}},
        "broker": {"dispatchThrottlingRateInByte": 7, "dispatchThrottlingRatePerTopicInMsg": 1},
    }
)


def test_the_rate_that_applies_says_whether_it_is_shared_out() -> None:
    """Across brokers it has a group and no counters at a broker; else the other way round."""
    assert dispatch_rate(SHARED, T, None) == Limit((50, 0), 5000, f"dispatch/{T}")
    assert limit_of(SHARED, ("b1", T)) == NO_LIMIT
    assert dispatch_rate(SHARED, T, "own") == Limit((5, 0), 1000, f"dispatch/{T}/own")
    assert limit_of(SHARED, ("b1", T, "own")) == NO_LIMIT
    assert dispatch_rate(SHARED, T, "other") == Limit((10, 1000), 1000)
    assert limit_of(SHARED, ("b1", T, "other")) == Limit((10, 1000), 1000)


def test_the_broker_as_a_whole() -> None:
    """Its own rates, per second; topics elsewhere have its default."""
    assert limit_of(SHARED, ("b1",)) == Limit((0, 7), 1000)
    assert limit_of(SHARED, ("b1", "persistent://acme/bills/t1")) == Limit((1, 0), 1000)
    assert limit_of(PolicySet(), ("b1",)) == NO_LIMIT


def test_consumers_without_a_group_are_no_subscription() -> None:
    """They count at the topic and the broker alone."""
    assert dispatch_rate(SHARED, T, "") is None
    assert limit_of(SHARED, ("b1", T, "")) == NO_LIMIT


@given(st.from_regex(TOPIC, fullmatch=True), st.none() | st.text(min_size=1))
def test_group_names_are_read_back(topic: str, subscription: str | None) -> None:
    """Whatever stands in a name, slashes too."""
    assert parse_dispatch_group(dispatch_group(topic, subscription)) == (topic, subscription)


@pytest.mark.parametrize(
    "group", ["rg1", "dispatch/", "dispatch/t1", "dispatch/persistent://a/b", f"dispatch/{T}/", f"quota/{T}"]
)
def test_other_names_are_no_such_group(group: str) -> None:
    """So a report that names one is passed over."""
    assert parse_dispatch_group(group) is None


def test_a_partition_has_the_entry_of_its_topic_and_counters_of_its_own() -> None:
    """Unless it has one itself; what is shared out is so for each partition. Other names are other topics."""
    third = f"{T}-partition-3"
    assert dispatch_rate(SHARED, third, "own") == Limit((5, 0), 1000, f"dispatch/{third}/own")
    assert dispatch_rate(SHARED, f"{T}-partition-03", "own") == Limit((10, 1000), 1000)
    assert dispatch_rate(SHARED, f"{T}-partition-", "own") == Limit((10, 1000), 1000)
    own = PolicySet(
        {**SHARED.entries, f"topics.{third}": {"subscriptions": {"own": {"dispatchRate": rate(2)}}}}
    )
    assert limit_of(own, ("b1", third, "own")) == Limit((2, 0), 1000)
    assert dispatch_rate(own, f"{T}-partition-4", "own") == dispatch_rate(SHARED, f"{T}-partition-4", "own")
