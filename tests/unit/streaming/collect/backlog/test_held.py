"""What nobody has answered may still be carried out: settled later, and what goes is counted once."""

import asyncio
from collections import deque

import pytest
from collector_kit import EXCEEDED, PLACE, TOPIC, Desk, FakeCluster, many, rig

from streaming.collect.backlog import actions
from streaming.collect.backlog.cluster import CannotEvict, NotKnown
from streaming.contract.errors import WeirError


@pytest.mark.parametrize("error", [NotKnown("no answer"), WeirError("no answer"), KeyError("defect")])
async def test_where_it_is_not_known_the_position_tells(error: Exception) -> None:
    cluster, desk = rig(slow=-1)
    cluster.after.append(error)
    await desk.round()
    assert desk.steps() == [("slow", "begun"), ("slow", "done")]
    assert desk.value(EXCEEDED, **PLACE, quota_type="size") == 1


@pytest.mark.parametrize("later", [True, False])
@pytest.mark.parametrize("error", [NotKnown("no answer"), WeirError("no answer"), KeyError("defect")])
async def test_what_a_broker_may_still_carry_out_is_settled_later(error: Exception, later: bool) -> None:
    """Its topic is left alone until then; what comes late is counted, and once."""
    cluster = FakeCluster(slow=-1)
    cluster.refused.append(error)
    desk = Desk(cluster, order_timeout_ms=100)
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
