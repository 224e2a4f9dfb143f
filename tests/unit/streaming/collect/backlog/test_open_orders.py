"""What a collector that was killed has begun: settled by where subscriptions are, never done twice."""

import asyncio
from dataclasses import replace

import pytest
from backlog_kit import now_ms
from collector_kit import (
    CLUSTER,
    EXCEEDED,
    NAME,
    PLACE,
    TOPIC,
    Desk,
    FakeCluster,
    begun,
    orders_last,
    rig,
)

from streaming.collect.backlog.open_orders import NOT_DONE, NOT_KNOWN, READ_BACK_MS
from streaming.contract.backlog.actions import BacklogAction
from streaming.contract.errors import TakenOver, WeirError

OLD = BacklogAction(
    id=f"collect-kafka-{CLUSTER}-0000000f-7.0/size/slow", ts=0, topic=TOPIC, quota_type="size",
    policy="consumer_backlog_eviction", limit=4_000, actor="", step="begun", subscription="slow",
    how="offsets", since=(1, -1), upto=(1, 59), messages=60, bytes=6_000,
)  # fmt: skip


@pytest.mark.parametrize(("entry", "step", "reason"), [(59, "done", ""), (58, "failed", NOT_DONE)])
async def test_the_position_tells_whether_it_was_done(entry: int, step: str, reason: str) -> None:
    desk = Desk(FakeCluster(slow=entry))
    action = begun(OLD, now_ms() - 20_000)
    desk.collector.take(action)
    await desk.settle()
    assert desk.actions == [], "the cluster was not looked at yet"
    await desk.check()
    await desk.settle()
    (end,) = desk.actions
    assert end == replace(action, ts=end.ts, actor=NAME, step=step, reason=reason)
    assert desk.value(EXCEEDED, **PLACE, quota_type="size") == (step == "done")
    assert desk.value("weir_backlog_evicted_messages_total", quota_type="size") == 60 * (step == "done")
    await desk.settle()
    assert len(desk.actions) == 1


async def test_until_then_nothing_is_evicted_from_its_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be under way as long as one may last."""
    cluster, desk = rig(slow=-1)
    wall_ms = 115_000
    monkeypatch.setattr("streaming.collect.backlog.open_orders.now_ms", lambda: wall_ms)
    desk.collector.take(begun(OLD, 100_001))
    await desk.round()
    await desk.settle()
    assert desk.actions == [] and cluster.read[TOPIC]["slow"] == -1
    assert desk.value("weir_backlog_evictions_total", quota_type="size", outcome="put_off") == 1
    assert desk.value("weir_backlog_unsettled_evictions") == 1
    wall_ms += 1
    await desk.settle()
    await desk.round()
    assert desk.steps() == [("slow", "failed"), ("slow", "begun"), ("slow", "done")]
    assert desk.value("weir_backlog_unsettled_evictions") == 0


@pytest.mark.parametrize("step", ["done", "failed"])
async def test_an_end_that_was_said_settles_it(step: str) -> None:
    desk = Desk(FakeCluster(slow=59))
    await desk.check()
    action = begun(OLD, 0)
    desk.collector.take(action)
    desk.collector.take(action)
    desk.collector.take(replace(action, step=step))
    await desk.settle()
    assert desk.actions == []
    assert desk.value(EXCEEDED, **PLACE, quota_type="size") == 0


async def test_an_end_that_is_said_while_the_cluster_is_asked_is_the_only_one() -> None:
    """The run before may still be there for a while."""
    cluster, desk = rig(slow=59)
    await desk.check()

    async def ended() -> None:
        desk.collector.take(replace(begun(OLD, 0), step="done"))

    cluster.before["passed"] = ended
    desk.collector.take(begun(OLD, 0))
    await desk.settle()
    assert desk.actions == []
    assert desk.value(EXCEEDED, **PLACE, quota_type="size") == 0


async def test_other_clusters_and_blocks_of_producers_are_others_affairs() -> None:
    desk = Desk(FakeCluster(slow=59))
    await desk.check()
    action = begun(OLD, 0)
    desk.collector.take(replace(action, actor="collect-kafka-c2-0000000f"))
    desk.collector.take(replace(action, actor="p1", subscription="", how="hold"))
    desk.collector.take(replace(action, actor=NAME))
    await desk.settle()
    assert desk.actions == []


async def test_before_the_log_was_read_back_nothing_is_evicted() -> None:
    cluster, desk = rig(slow=-1)
    desk.known = False
    await desk.round()
    assert cluster.calls == ["look"] and desk.actions == []
    desk.known = True
    await desk.round()
    assert desk.steps() == [("slow", "begun"), ("slow", "done")]


async def test_what_is_not_there_any_more_is_not_known() -> None:
    desk = Desk(FakeCluster(other=3))
    await desk.check()
    desk.collector.take(begun(OLD, 0))
    desk.collector.take(replace(begun(OLD, 0), id="x/size/slow", upto=None))
    await desk.settle()
    assert [(one.step, one.reason) for one in desk.actions] == [("failed", NOT_KNOWN)] * 2


async def test_while_nobody_answers_it_stays_and_is_asked_for_again() -> None:
    cluster, desk = rig(slow=59)
    await desk.check()
    cluster.before["passed"] = WeirError("no answer")
    desk.collector.take(begun(OLD, 0))
    await desk.settle()
    assert desk.actions == [] and desk.value("weir_backlog_unsettled_evictions") == 1
    cluster.before.clear()
    desk.log_fails = 1
    await desk.settle()
    assert desk.actions == [] and desk.value("weir_backlog_unsettled_evictions") == 1
    assert desk.value("weir_backlog_evicted_messages_total", quota_type="size") == 0
    await desk.settle()
    assert desk.steps() == [("slow", "done")]


async def test_a_clock_that_was_ahead_holds_no_longer_than_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or somebody's word for it: the topic would be held until then."""
    orders_last(monkeypatch, 100)
    desk = Desk(FakeCluster(slow=-1))
    await desk.check()
    desk.collector.take(begun(OLD, now_ms() + 10**10))
    await desk.settle()
    assert desk.actions == []
    await asyncio.sleep(0.11)
    await desk.settle()
    assert desk.steps() == [("slow", "failed")]


async def test_one_that_cannot_be_settled_keeps_no_other_back(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is wrong with it; it is said once a minute."""
    cluster, desk = rig(slow=59)
    await desk.check()

    async def defect() -> None:
        if cluster.calls[-1].endswith("/odd"):
            raise KeyError("odd")

    cluster.before["passed"] = defect
    odd = "persistent://acme/orders/odd"
    desk.collector.take(replace(begun(OLD, 0), id="odd/size/slow", topic=odd))
    desk.collector.take(begun(OLD, 0))
    for _ in range(3):
        await desk.settle()
    assert desk.steps() == [("slow", "done")]
    assert desk.value("weir_backlog_unsettled_evictions") == 1
    assert caplog.text.count("cannot be settled yet") == 1
    desk.collector._unsettled._stuck["odd/size/slow"] -= READ_BACK_MS / 1000
    await desk.settle()
    assert [(one.topic, one.reason) for one in desk.actions[1:]] == [(odd, NOT_KNOWN)]
    assert desk.value("weir_backlog_unsettled_evictions") == 0


async def test_one_that_could_not_be_settled_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight of a broker that was silent held what came later for two minutes, fifteen seconds each."""
    monkeypatch.setattr("streaming.collect.backlog.collector._LOOK_S", 0.01)
    cluster, odd = FakeCluster(slow=59), "persistent://acme/orders/odd"
    desk = Desk(cluster)
    again, other = asyncio.Event(), asyncio.Event()

    async def silent() -> None:
        if not cluster.calls[-1].endswith("/odd"):
            other.set()
        elif cluster.calls.count(cluster.calls[-1]) == 1:
            raise WeirError("no answer")
        else:
            again.set()
            await other.wait()

    cluster.before["passed"] = silent
    desk.collector.take(replace(begun(OLD, 0), id="odd/size/slow", topic=odd))
    running = asyncio.create_task(desk.collector.run())
    async with asyncio.timeout(5):
        await again.wait()
        desk.collector.take(begun(OLD, 0))
        await other.wait()
    await asyncio.sleep(0.1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert {(one.topic, one.step) for one in desk.actions} == {(odd, "failed"), (TOPIC, "done")}


async def test_no_more_are_kept_than_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.collect.backlog.open_orders.UNSETTLED_MAX", 1)
    desk = Desk(FakeCluster(slow=59))
    for number in range(3):
        desk.collector.take(replace(begun(OLD, 0), id=f"d{number}/size/slow"))
    assert desk.value("weir_backlog_unsettled_evictions") == 1
    assert desk.value("weir_backlog_unsettled_dropped_total") == 2


async def test_who_is_taken_over_leaves_them_to_the_other() -> None:
    """Standing by it would tell of them for as long as that one lives."""
    desk = Desk(FakeCluster(slow=59))
    desk.collector.take(begun(OLD, now_ms()))
    assert desk.value("weir_backlog_unsettled_evictions") == 1
    desk.write_fails = [TakenOver("another")]
    with pytest.raises(TakenOver):
        await desk.collector.run()
    assert desk.value("weir_backlog_unsettled_evictions") == 0
