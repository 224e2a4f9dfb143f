"""Backlogs in the stats of topics, whole and partitioned."""

from typing import Any

from admin_backlog_kit import T, block, decision, eviction, report, take

from enforcer.control.backlog.stats import partitioned_backlog, topic_backlog
from enforcer.control.backlog.table import BacklogTable
from streaming.policy.policy_set import PolicySet

NONE = {"times": 0, "failures": 0, "msgs": 0, "bytes": 0, "lastTime": None}
QUOTAS = {
    "namespaces.acme/orders": {
        "backlogQuotaMap": {
            "destination_storage": {"limitSize": 700, "policy": "producer_request_hold"},
            "message_age": {"limitTime": 60, "policy": "producer_exception"},
        }
    }
}


def shown(*records: dict[str, Any], policies: dict[str, Any] | None = None, now: int = 1_200) -> Any:
    """A topic's view, after these records."""
    table = BacklogTable(100)
    take(table, records)
    return topic_backlog(table, T, PolicySet(policies or {}), now)


def whole(*records: dict[str, Any], policies: dict[str, Any] | None = None) -> Any:
    """The view of its partitions."""
    table = BacklogTable(100)
    take(table, records)
    return partitioned_backlog(table, T, PolicySet(policies or {}), 1_200)


def test_a_topic_with_all_that_is_known() -> None:
    """Under PIP-323's names; limits are those of the policies, the rest is of the last check."""
    seen = shown(
        report(T, ("slow", -1), ("fast", 9)), decision(T, ("size", "producer_request_hold")),
        eviction("slow"), block("p1"), policies=QUOTAS,
    )  # fmt: skip
    assert seen == {
        "storageSize": 1_050, "backlogSize": 1_050,
        "backlogQuotaLimitSize": 700, "backlogQuotaLimitTime": 60,
        "oldestBacklogMessageAgeSeconds": 7, "oldestBacklogMessageSubscriptionName": "slow",
        "earliestMsgPublishTimeInBacklogs": 499, "backlogQuotaExceeded": ["destination_storage"],
        "backlogCheckTime": 1_000,
        "evictionsBySizeQuota": {"times": 1, "failures": 0, "msgs": 4, "bytes": 400, "lastTime": 1_100},
        "evictionsByTimeQuota": NONE, "producerBlocks": 1,
        "producersBlockedBy": [
            {"actor": "p1", "quotaType": "size", "policy": "producer_request_hold", "since": 1_100}
        ],
        "subscriptions": {
            "slow": {
                "msgBacklog": 12, "backlogSize": 1_050, "earliestMsgPublishTimeInBacklog": 499,
                "isDurable": True,
            },
            "fast": {
                "msgBacklog": 2, "backlogSize": 50, "earliestMsgPublishTimeInBacklog": 509,
                "isDurable": True,
            },
        },
    }  # fmt: skip


def test_what_is_not_known_is_not_shown() -> None:
    """Before the decision, or the report, was read."""
    seen = shown(report(T, ("slow", -1)))
    assert "backlogSize" not in seen and "oldestBacklogMessageAgeSeconds" not in seen
    assert (seen["storageSize"], seen["backlogQuotaLimitSize"]) == (1_050, -1)
    seen = shown(decision())
    assert "storageSize" not in seen and seen["subscriptions"] == {}
    assert shown(eviction("slow")) is None


def test_sizes_are_precise_where_the_policies_say_so() -> None:
    """Per subscription too."""
    precise = {"broker": {"preciseBacklogSize": True}}
    for policies, size in (({}, 1_050), (precise, 650)):
        seen = shown(report(T, ("mid", 3)), policies=policies)
        assert seen["subscriptions"]["mid"]["backlogSize"] == size


def test_a_topic_leaves_after_three_checks() -> None:
    """But not before a minute."""
    for interval, left in ((1, 61_001), (60, 181_001)):
        policies = {"broker": {"backlogQuotaCheckIntervalInSeconds": interval}}
        assert shown(decision(), policies=policies, now=left - 1) is not None
        assert shown(decision(), policies=policies, now=left) is None


def test_a_block_stands_until_a_later_check_is_inside() -> None:
    """Who blocks may have died without a word."""
    hold = ("size", "producer_request_hold")
    assert len(shown(decision(T, hold), block("p1"))["producersBlockedBy"]) == 1
    assert len(shown(decision(T), block("p1"))["producersBlockedBy"]) == 1  # of a decision not yet read
    later = decision(T, hold, ts=1_150)
    assert len(shown(block("p1"), later)["producersBlockedBy"]) == 1
    assert shown(block("p1"), decision(T, ts=1_150))["producersBlockedBy"] == []
    assert len(shown(block("p1"), report())["producersBlockedBy"]) == 1


def test_partitions_together() -> None:
    """Sums; the oldest with its subscription; of subscriptions that one partition has, too."""
    none = {"oldestBacklogMessageAgeSeconds": -1, "oldestBacklogMessageSubscriptionName": None}
    zero, one = f"{T}-partition-0", f"{T}-partition-1"
    seen = whole(
        report(zero, ("slow", -1), ("fast", 9)), report(one, ("slow", 3), ("new", 3), ts=1_100),
        decision(zero), decision(one, ("size", "x"), oldestBacklogMessageAgeSeconds=9, ts=1_100,
        oldestBacklogMessageSubscriptionName="new", backlogSize=5.0), eviction("slow", topic=zero),
        eviction("slow", topic=one, ts=1_150), block("p1", topic=one), policies=QUOTAS,
    )  # fmt: skip
    assert (seen["storageSize"], seen["backlogSize"]) == (2_100, 1_055)
    assert seen["oldestBacklogMessageAgeSeconds"] == 9
    assert seen["oldestBacklogMessageSubscriptionName"] == "new"
    assert (seen["backlogQuotaLimitSize"], seen["backlogQuotaLimitTime"]) == (700, 60)
    assert (seen["backlogCheckTime"], seen["backlogQuotaExceeded"]) == (1_000, ["destination_storage"])
    assert seen["earliestMsgPublishTimeInBacklogs"] == 499
    assert seen["evictionsBySizeQuota"] == {
        "times": 2, "failures": 0, "msgs": 8, "bytes": 800, "lastTime": 1_150,
    }  # fmt: skip
    assert (seen["producerBlocks"], len(seen["producersBlockedBy"])) == (1, 1)
    assert {name: sub["msgBacklog"] for name, sub in seen["subscriptions"].items()} == {
        "slow": 20, "fast": 2, "new": 8,
    }  # fmt: skip
    assert seen["subscriptions"]["slow"]["earliestMsgPublishTimeInBacklog"] == 499
    assert seen["metadata"] == {"partitions": 2, "deleted": False}
    assert sorted(seen["partitions"]) == [zero, one]
    assert seen["partitions"][one]["backlogSize"] == 5
    idle = whole(decision(zero, **none), decision(one, **none | {"backlogSize": 0.0}))
    assert idle["oldestBacklogMessageSubscriptionName"] is None
    assert idle["oldestBacklogMessageAgeSeconds"] == -1 and "storageSize" not in idle
    held = whole(decision(zero, **none), decision(one, oldestBacklogMessageAgeSeconds=-1))
    assert held["oldestBacklogMessageSubscriptionName"] == "slow"


def test_a_plain_topic_has_no_partitions() -> None:
    """Though another one's name may look like one of its."""
    assert whole(decision(T), decision(f"{T}-partition-0")) is None
    assert whole() is None
