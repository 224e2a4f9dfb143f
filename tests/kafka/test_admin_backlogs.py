"""Backlogs over `weir admin`: what was written before it started and since, and Pulsar's own pulsar-admin."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from admin_backlog_kit import T, block, decision, eviction, report
from admin_process_kit import Admin
from cluster_kit import Cluster
from pack_kit import packed
from proxy_kit import until
from stack_kit import put, series_at

from streaming.columns.packed import CONTENT_TYPE, HEADER
from streaming.contract.topics import Cluster as Home
from streaming.contract.topics import Topics
from streaming.kafka_io.policy_topic import read_policies

P = "/admin/v2/persistent/acme/orders/t1"
PACKED = {HEADER: CONTENT_TYPE}


def sent(cluster: Cluster, topic: str, *records: dict[str, Any], pack: bool = False) -> None:
    """Records that are there when this returns."""
    values: Any = packed(records) if pack else records
    put(cluster.kafka.bootstrap, topic, *values, headers=PACKED if pack else None)


@pytest.mark.soak
def test_what_stood_at_the_start_is_known_and_what_comes_is_followed(
    cluster: Cluster, topics: Topics, tmp_path: Path
) -> None:
    """Single records and packed ones; partitions are topics of their own."""
    now = time.time_ns() // 1_000_000
    names = [f"{T}x-partition-{number}" for number in range(2)]
    hold = ("size", "producer_request_hold")
    sent(cluster, topics.usage, report(T, ("slow", -1), ("fast", 9), ts=now), {"type": "backlog", "topic": T})
    sent(cluster, topics.usage, *(report(name, ("slow", 3), ts=now) for name in names), pack=True)
    ahead = decision(T, ts=now + 10**9, backlogSize=7.0)
    sent(cluster, topics.decisions, decision(T, hold, ts=now), ahead, eviction("slow", ts=now))
    sent(cluster, topics.decisions, *(decision(name, ts=now) for name in names), pack=True)
    with Admin(cluster.kafka.bootstrap, tmp_path / "admin", topics.prefix) as admin:

        def stats() -> Any:
            status, shown = admin.ask("GET", f"{P}/stats")
            return shown if status == 200 and {"storageSize", "backlogSize"} <= set(shown) else None

        shown = until(stats, what="what stood")
        assert (shown["storageSize"], shown["backlogSize"]) == (1_050, 1_050)
        assert (shown["oldestBacklogMessageAgeSeconds"], shown["oldestBacklogMessageSubscriptionName"]) == (
            7,
            "slow",
        )
        assert {name: each["msgBacklog"] for name, each in shown["subscriptions"].items()} == {
            "slow": 12,
            "fast": 2,
        }
        assert until(lambda: (stats() or {})["evictionsBySizeQuota"]["msgs"], what="the eviction") == 4

        def partitions() -> Any:
            status, found = admin.ask("GET", f"{P}x/partitioned-stats")
            return found if status == 200 and found.get("backlogSize") == 2_100 else None

        found = until(partitions, what="the partitions")
        assert (found["storageSize"], found["subscriptions"]["slow"]["msgBacklog"]) == (2_100, 16)
        assert sorted(found["partitions"]) == names
        assert admin.ask("GET", f"{P}x/stats")[0] == admin.ask("GET", f"{P}/partitioned-stats")[0] == 404
        quota = {"limitSize": 700, "policy": "producer_request_hold", "actions": True}
        assert admin.ask("POST", f"{P}/backlogQuota", quota) == (204, "")
        sent(cluster, topics.decisions, block("p1", ts=now + 1))
        sent(cluster, topics.usage, report(T, ("slow", 9), ts=now + 2))
        sent(cluster, topics.decisions, decision(T, ts=now, repeat=True))

        def moved() -> bool:
            seen = stats()
            return bool(seen["producersBlockedBy"]) and seen["subscriptions"]["slow"]["msgBacklog"] == 2

        until(moved, what="what came since")
        assert stats()["backlogQuotaLimitSize"] == 700
        assert series_at(admin.ready["metrics"])["weir_admin_backlog_rows"] == 6.0


@pytest.mark.soak
def test_pulsar_admin_sets_backlog_quotas_as_it_is(cluster: Cluster, topics: Topics, tmp_path: Path) -> None:
    """Of namespaces and topics: set, get, what applies, remove; and it reads the stats."""
    with Admin(cluster.kafka.bootstrap, tmp_path / "admin", topics.prefix) as admin:
        run = admin.run
        hold, size, age = ("--policy", "producer_request_hold"), "destination_storage", "message_age"
        n, words = ("namespaces", "set-backlog-quota", "acme/orders"), ("-lt", "1h", "-t", age)
        assert run("namespaces", "get-backlog-quotas", "acme/orders") == ""
        assert run(*n, "--limit", "10M", *hold) == ""
        assert run(*n, *words, "--policy", "consumer_backlog_eviction") == ""
        shown = run("namespaces", "get-backlog-quotas", "acme/orders")
        assert f"limitSize={10 * 2**20}, limitTime=-1, policy=producer_request_hold" in shown
        assert "limitSize=-1, limitTime=3600, policy=consumer_backlog_eviction" in shown
        assert (
            admin.ask("POST", f"{P}/backlogQuota", {"limit": 5, "policy": hold[1], "actions": True})[0] == 204
        )
        assert run("topicPolicies", "set-backlog-quota", T, "--limit", "1G", *hold) == ""
        assert run("topics", "set-backlog-quota", T, *words, *hold) == ""
        assert run("topics", "remove-backlog-quota", T, "-t", age) == ""
        shown = run("topicPolicies", "get-backlog-quota", T)
        assert f"limitSize={2**30}" in shown and age not in shown
        shown = run("topics", "get-backlog-quotas", T, "-ap")
        assert f"limitSize={2**30}" in shown and "limitTime=3600" in shown
        assert "one cluster" in run("topicPolicies", "set-backlog-quota", T, "--limit", "1G", *hold, "-g")
        assert read_policies(Home(cluster.kafka.bootstrap, topics)).entries == {
            "namespaces.acme/orders": {
                "backlogQuotaMap": {
                    size: {"limitSize": 10 * 2**20, "policy": "producer_request_hold"},
                    age: {"limitTime": 3_600, "policy": "consumer_backlog_eviction"},
                }
            },
            f"topics.{T}": {
                "backlogQuotaMap": {size: {"limitSize": 2**30, "policy": hold[1], "actions": True}}
            },
        }
        now = time.time_ns() // 1_000_000
        names = [f"{T}x-partition-{number}" for number in range(2)]
        for name in (T, *names):
            sent(cluster, topics.usage, report(name, ("slow", -1), ts=now))
            sent(cluster, topics.decisions, decision(name, ts=now))
        until(lambda: admin.ask("GET", f"{P}x/partitioned-stats")[1].get("backlogSize") == 2_100, what="all")
        stats = json.loads(run("topics", "stats", T))
        assert (stats["backlogSize"], stats["backlogQuotaLimitSize"]) == (1_050, 2**30)
        assert (stats["backlogQuotaLimitTime"], stats["oldestBacklogMessageAgeSeconds"]) == (3_600, 7)
        assert stats["oldestBacklogMessageSubscriptionName"] == "slow"
        assert stats["subscriptions"]["slow"]["msgBacklog"] == 12
        stats = json.loads(run("topics", "partitioned-stats", f"{T}x", "--per-partition"))
        assert (stats["storageSize"], stats["metadata"]["partitions"]) == (2_100, 2)
        assert stats["partitions"][names[1]]["backlogSize"] == 1_050
        assert run("topicPolicies", "remove-backlog-quota", T) == ""
        for kind in (size, age):
            assert run("namespaces", "remove-backlog-quota", "acme/orders", "-t", kind) == ""
        assert read_policies(Home(cluster.kafka.bootstrap, topics)).entries == {}
