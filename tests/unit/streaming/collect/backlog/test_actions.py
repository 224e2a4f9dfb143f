"""What follows from decisions on backlogs, logged before and after; what nobody has answered is held."""

import asyncio
from collections import deque
from dataclasses import replace
from typing import Any

import pytest
from collector_kit import (
    EVICTS,
    EXCEEDED,
    NAME,
    PLACE,
    SIZE,
    TOPIC,
    Desk,
    FakeCluster,
    decided,
    many,
    orders_last,
    policies,
    report,
    rig,
)

from streaming.collect.backlog import actions
from streaming.collect.backlog.cluster import CannotEvict, NotKnown
from streaming.contract.backlog.actions import backlog_action
from streaming.contract.errors import WeirError


async def test_an_eviction_is_logged_carried_out_and_logged() -> None:
    """60 of 100 entries of 100 bytes go for 4,000 bytes; the counters say so, once it was done."""
    cluster, desk = rig(slow=-1, fast=98)

    async def nothing_yet() -> None:
        assert desk.steps() == [("slow", "begun")]
        assert desk.value(EXCEEDED, **PLACE, quota_type="size") == 0

    cluster.before["carry_out"] = nothing_yet
    (decision,) = await desk.round()
    assert cluster.read[TOPIC] == {"slow": 59, "fast": 98}
    first, last = desk.actions
    assert last == replace(first, step="done", ts=last.ts)
    assert first.id == f"{NAME}-1.0/size/slow" == f"{decision.id}/size/slow"
    assert (first.policy, first.limit, first.actor) == ("consumer_backlog_eviction", 4_000, NAME)
    assert (first.how, first.since, first.upto) == ("offsets", (1, -1), (1, 59))
    assert (first.messages, first.bytes) == (60, 6_000)
    assert backlog_action(first.fields()) == first
    assert desk.value(EXCEEDED, **PLACE, quota_type="size") == 1
    assert desk.value("weir_backlog_evicted_messages_total", quota_type="size") == 60
    assert desk.value("weir_backlog_evicted_bytes_total", quota_type="size") == 6_000
    assert desk.value("weir_backlog_evictions_total", quota_type="size", outcome="done") == 1


async def test_a_repeated_decision_does_nothing() -> None:
    """Not even if the subscription went back meanwhile: the next check plans anew."""
    cluster, desk = rig(slow=-1)
    (decision,) = await desk.round()
    cluster.read[TOPIC]["slow"] = -1
    desk.collector.take(replace(decision, repeated=True))
    desk.collector.take(decision)
    await desk.collector.actions.idle()
    assert desk.steps() == [("slow", "begun"), ("slow", "done")]
    await desk.round()
    assert len(desk.steps()) == 4 and cluster.read[TOPIC]["slow"] == 59
    assert desk.value(EXCEEDED, **PLACE, quota_type="size") == 2


async def test_decisions_of_others_and_old_ones_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run's, one on an older check than the newest decided, one whose report is not kept any more."""
    monkeypatch.setattr("streaming.collect.backlog.collector.ROUNDS_KEPT", 2)
    desk = Desk(FakeCluster(slow=-1))
    first, second = await desk.check(), await desk.check()
    other = replace(first[0], id="collect-kafka-c1-99999999-1.0")
    await desk.decide([other])
    await desk.decide([replace(first[0], id=f"{NAME}-x.0"), replace(first[0], id=f"{NAME}-{'9' * 30}.0")])
    assert desk.value("weir_backlog_dropped_decisions_total", reason="late") == 0
    await desk.check()
    await desk.decide(first)
    assert desk.value("weir_backlog_dropped_decisions_total", reason="late") == 1
    assert desk.actions == []
    await desk.decide(desk.written[-1])
    await desk.decide(second)
    assert desk.steps() == [("slow", "begun"), ("slow", "done")]
    wrong = replace(desk.written[-1][0], topic="persistent://acme/orders/other")
    await desk.check()
    await desk.decide([replace(wrong, id=f"{NAME}-4.0")])
    assert desk.value("weir_backlog_dropped_decisions_total", reason="late") == 2
    assert len(desk.steps()) == 2


@pytest.mark.parametrize(
    ("quota", "outcome"),
    [
        ({**EVICTS, "actions": False}, "decided_only"),
        ({**EVICTS, "limitSize": 5_000}, "withdrawn"),
        ({**EVICTS, "policy": "producer_exception"}, "withdrawn"),
        (None, "withdrawn"),
    ],
)
async def test_the_policy_in_force_now_counts(quota: dict[str, Any] | None, outcome: str) -> None:
    cluster, desk = rig(slow=-1)
    reports = await desk.check()
    decision = decided(reports[0], desk.entries)
    desk.entries = policies(quota)
    desk.collector.take(decision)
    await desk.collector.actions.idle()
    assert cluster.calls == ["look"] and desk.actions == []
    assert desk.value("weir_backlog_evictions_total", quota_type="size", outcome=outcome) == 1
    assert desk.value(EXCEEDED, **PLACE, quota_type="size") == 0
    assert desk.value("weir_backlog_quota_used_ratio", **PLACE, quota_type="size") == SIZE / 4_000


async def test_nothing_is_done_that_cannot_be_logged() -> None:
    """It may stand in the log all the same, so its end is said as soon as it can be."""
    cluster, desk = rig(slow=-1)
    desk.log_fails = 2
    await desk.round()
    assert "carry_out slow" not in cluster.calls and desk.actions == []
    assert desk.value("weir_backlog_evictions_total", quota_type="size", outcome="failed") == 1
    await desk.check()
    assert desk.steps() == [("slow", "failed")]
    assert desk.actions[0].reason == "Kafka is away"


async def test_an_end_that_cannot_be_logged_is_logged_after_the_next_check() -> None:
    cluster, desk = rig(slow=-1)

    async def away() -> None:
        desk.log_fails = 1

    cluster.before["carry_out"] = away
    await desk.round()
    assert desk.steps() == [("slow", "begun")]
    assert desk.value("weir_backlog_evictions_total", quota_type="size", outcome="done") == 1
    await desk.check()
    assert desk.steps() == [("slow", "begun"), ("slow", "done")]
    assert desk.value(EXCEEDED, **PLACE, quota_type="size") == 1


async def test_what_is_refused_fails_and_counts_as_nothing_evicted() -> None:
    cluster, desk = rig(slow=-1)
    cluster.refused = [CannotEvict("the group is active"), CannotEvict("it moves")]
    await desk.round()
    await desk.round()
    assert desk.steps() == [("slow", "begun"), ("slow", "failed")] * 2
    assert [one.reason for one in desk.actions] == ["", "the group is active", "", "it moves"]
    assert desk.value("weir_backlog_evictions_total", quota_type="size", outcome="failed") == 2
    assert desk.value(EXCEEDED, **PLACE, quota_type="size") == 0
    await desk.round()
    assert desk.steps()[-1] == ("slow", "done")


async def test_a_cluster_that_does_not_answer_and_a_defect_end_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    orders_last(monkeypatch, 100)
    cluster = FakeCluster(slow=-1)
    desk = Desk(cluster)
    cluster.before["carry_out"] = lambda: asyncio.sleep(60)
    await desk.round()
    await asyncio.sleep(0.11)
    await desk.settle()
    assert desk.steps() == [("slow", "begun"), ("slow", "failed")]
    assert desk.actions[-1].reason == "no answer within 100 ms, and it was not carried out"
    cluster.before = {"prepare": KeyError("defect")}
    await desk.round()
    assert desk.value("weir_backlog_evictions_total", quota_type="size", outcome="failed") == 2
    del cluster.before["prepare"]
    await desk.round()
    assert desk.steps()[-1] == ("slow", "done")


async def test_a_subscription_that_has_read_on_meanwhile_is_left_alone() -> None:
    cluster, desk = rig(slow=-1)
    reports = await desk.check()
    cluster.read[TOPIC]["slow"] = 80
    await desk.decide(reports)
    assert desk.actions == []
    assert desk.value("weir_backlog_evictions_total", quota_type="size", outcome="nothing") == 1
    assert desk.value(EXCEEDED, **PLACE, quota_type="size") == 0


async def test_what_cannot_be_prepared_is_said_in_the_log() -> None:
    cluster, desk = rig(slow=-1)
    reports = await desk.check()
    del cluster.read[TOPIC]["slow"]
    await desk.decide(reports)
    assert desk.steps() == [("slow", "failed")]
    assert desk.actions[0].reason == "the subscription has gone"
    cluster.read[TOPIC]["slow"] = 0
    cluster.before["prepare"] = WeirError("no answer")
    await desk.round()
    assert desk.steps() == [("slow", "failed")] * 2 and desk.actions[-1].reason == "no answer"


async def test_both_quotas_and_several_subscriptions_are_one_eviction_each() -> None:
    """The counter counts a topic's eviction by a quota, messages each subscription's."""
    cluster = FakeCluster(a=-1, b=9)
    time = {"limitTime": 10, "policy": "consumer_backlog_eviction", "actions": True}
    desk = Desk(cluster, policies(EVICTS, time))
    await desk.round()
    names = [one.id.partition("/")[2] for one in desk.actions[::2]]
    assert names == ["size/a", "size/b", "time/a", "time/b"]
    assert [one.limit for one in desk.actions[::2]] == [4_000, 4_000, 10, 10]
    for quota_type, messages in (("size", 110), ("time", 80)):
        assert desk.value(EXCEEDED, **PLACE, quota_type=quota_type) == 1
        assert desk.value("weir_backlog_evicted_messages_total", quota_type=quota_type) == messages
    total = "pulsar_broker_storage_backlog_quota_exceeded_evictions_total"
    assert desk.value(total, cluster="c1", quota_type="time") == 1


async def test_no_more_is_begun_after_a_check_than_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, entries = many(5)
    monkeypatch.setattr("streaming.collect.backlog.actions.ORDERS_MAX", 3)
    desk = Desk(cluster, entries)
    await desk.round()
    assert desk.value("weir_backlog_evictions_total", quota_type="size", outcome="done") == 3
    assert desk.value("weir_backlog_evictions_total", quota_type="size", outcome="put_off") == 2
    await desk.round()
    assert desk.value("weir_backlog_evictions_total", quota_type="size", outcome="done") == 5


async def test_so_many_topics_at_a_time_and_of_one_topic_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.collect.backlog.actions.TOPICS_AT_ONCE", 2)
    cluster, entries = many(6)
    desk = Desk(cluster, entries)
    cluster.before["carry_out"] = lambda: asyncio.sleep(0.01)
    await desk.round()
    assert cluster.most_under_way == 2
    cluster.read = {TOPIC: {"a": -1, "b": -1, "c": -1}}
    cluster.most_under_way, desk.entries = 0, policies()
    await desk.round()
    assert cluster.most_under_way == 1
    assert cluster.read[TOPIC] == {"a": 59, "b": 59, "c": 59}


async def test_a_newer_decision_takes_back_what_still_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic is busy with the first plan; the second waits, and the third says that nothing must go."""
    monkeypatch.setattr("streaming.collect.backlog.collector.ROUNDS_KEPT", 5)
    cluster, desk = rig(a=-1)
    going, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        going.set()
        await go_on.wait()

    cluster.before["carry_out"] = hold
    for reports in (await desk.check(), await desk.check()):
        desk.collector.take(decided(reports[0], desk.entries))
    await going.wait()
    third = await desk.check()
    calm = decided(replace(third[0], subscriptions=report(a=90).subscriptions), desk.entries)
    desk.collector.take(calm)
    go_on.set()
    await desk.collector.actions.idle()
    assert cluster.calls.count("carry_out a") == 1


@pytest.mark.parametrize("stop_ms", [0, 5_000])
async def test_at_the_end_what_goes_on_has_a_while(stop_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut off, it stays begun, for the next run to settle."""
    monkeypatch.setattr("streaming.collect.backlog.actions.STOP_MS", stop_ms)
    cluster, desk = rig(a=-1, b=-1)
    reports = await desk.check()
    going = asyncio.Event()

    async def hold() -> None:
        going.set()
        await asyncio.sleep(0.05)

    cluster.before["carry_out"] = hold
    desk.collector.take(decided(reports[0], desk.entries))
    await going.wait()
    await desk.collector.actions.close()
    assert desk.steps() == [("a", "begun"), ("a", "done")][: 1 + (stop_ms > 0)]


async def test_no_more_ends_are_tried_than_can_be_said() -> None:
    """While Kafka is away a check must not wait for each of them."""
    cluster, entries = many(5)
    desk = Desk(cluster, entries)
    desk.log_fails = 10
    await desk.round()
    desk.log_fails = 1
    await desk.check()
    assert desk.actions == [] and desk.log_fails == 0
    await desk.check()
    assert [one.step for one in desk.actions] == ["failed"] * 5


@pytest.mark.parametrize("error", [NotKnown("no answer"), WeirError("no answer"), KeyError("defect")])
async def test_where_it_is_not_known_the_position_tells(error: Exception) -> None:
    cluster, desk = rig(slow=-1)
    cluster.after.append(error)
    await desk.round()
    assert desk.steps() == [("slow", "begun"), ("slow", "done")]
    assert desk.value(EXCEEDED, **PLACE, quota_type="size") == 1


@pytest.mark.parametrize("later", [True, False])
@pytest.mark.parametrize("error", [NotKnown("no answer"), WeirError("no answer"), KeyError("defect")])
async def test_what_a_broker_may_still_carry_out_is_settled_later(
    error: Exception, later: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its topic is left alone until then; what comes late is counted, and once."""
    orders_last(monkeypatch, 100)
    cluster = FakeCluster(slow=-1)
    cluster.refused.append(error)
    desk = Desk(cluster)
    await desk.round()
    assert desk.steps() == [("slow", "begun")]
    assert desk.value("weir_backlog_unsettled_evictions") == 1
    await desk.round()
    assert desk.steps() == [("slow", "begun")] and cluster.calls.count("carry_out slow") == 1
    if later:
        cluster.read[TOPIC]["slow"] = 59
    await asyncio.sleep(0.11)
    await desk.settle()
    assert desk.steps() == [("slow", "begun"), ("slow", "done" if later else "failed")]
    assert desk.actions[-1].reason == ("" if later else f"{error}, and it was not carried out")
    for outcome, count in (("done", later), ("failed", not later), ("put_off", 1)):
        assert desk.value("weir_backlog_evictions_total", quota_type="size", outcome=outcome) == count
    assert desk.value("weir_backlog_evicted_messages_total", quota_type="size") == 60 * later
    await desk.round()
    assert len(desk.steps()) == (2 if later else 4)


async def test_without_room_to_settle_it_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, entries = many(2)
    cluster.refused = [NotKnown("no answer"), NotKnown("no answer")]
    monkeypatch.setattr("streaming.collect.backlog.open_orders.UNSETTLED_MAX", 1)
    monkeypatch.setattr(actions, "TOPICS_AT_ONCE", 1)
    desk = Desk(cluster, entries)
    await desk.round()
    assert desk.steps() == [("slow", "begun"), ("slow", "begun"), ("slow", "failed")]
    assert desk.value("weir_backlog_unsettled_evictions") == 1
    assert desk.value("weir_backlog_unsettled_dropped_total") == 1
    assert desk.value("weir_backlog_evictions_total", quota_type="size", outcome="failed") == 1


@pytest.mark.parametrize("refused", [False, True])
async def test_what_others_lose_by_the_same_act_is_logged_and_counted_once_each(refused: bool) -> None:
    """Before and after; their own lines are not tried again."""
    cluster, desk = rig(a=-1, b=9, c=80)
    cluster.together = True
    if refused:
        cluster.refused.append(CannotEvict("no leader"))
    await desk.round()
    end, times = ("failed", 0) if refused else ("done", 1)
    assert desk.steps() == [("a", "begun"), ("b", "begun"), ("a", end), ("b", end)]
    assert [one.id.rpartition("/")[2] for one in desk.actions] == ["a", "b", "a", "b"]
    assert [one.messages for one in desk.actions] == [60, 50, 60, 50]
    assert cluster.calls.count("carry_out a") == 1 and "prepare b" not in cluster.calls
    assert desk.value("weir_backlog_evictions_total", quota_type="size", outcome=end) == 2
    assert desk.value("weir_backlog_evicted_messages_total", quota_type="size") == 110 * times
    assert desk.value(EXCEEDED, **PLACE, quota_type="size") == times


async def test_ends_beyond_those_that_are_kept_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, entries = many(5)
    desk = Desk(cluster, entries)
    desk.collector.actions._unsaid = deque(maxlen=2)
    monkeypatch.setattr(actions, "UNSAID_MAX", 2)
    desk.log_fails = 10
    await desk.round()
    assert desk.value("weir_backlog_unsaid_dropped_total") == 3
