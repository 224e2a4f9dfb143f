"""Plans that the law does not make of our own reports, and plans that are overtaken, are not carried out."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from collector_kit import EVICTS, TOPIC, Desk, FakeCluster, decided, policies, report

from streaming.contract.backlog.decisions import BacklogDecision


def forged(decision: BacklogDecision, **line: Any) -> BacklogDecision:
    """Its first line is another one."""
    return replace(decision, evict=(replace(decision.evict[0], **line), *decision.evict[1:]))


def test_a_plan_that_the_law_does_not_make_is_refused() -> None:
    """Further, of somebody else, of fewer, by time too: whoever wrote it, and the true one is still taken."""

    async def run() -> None:
        cluster = FakeCluster(slow=-1, fast=70)
        desk = Desk(cluster)
        reports = await desk.check()
        true = decided(reports[0], desk.entries)
        both = decided(reports[0], policies(EVICTS, {**EVICTS, "limitTime": 10}))
        wrong = [
            forged(true, entry=99),
            forged(true, subscription="fast"),
            forged(true, entries=1),
            replace(true, evict=true.evict * 2),
            # Made of another report under the same id.
            decided(replace(reports[0], subscriptions=report(slow=-1, fast=3).subscriptions), desk.entries),
        ]
        for one in wrong:
            desk.collector.take(one)
        await desk.collector.actions.idle()
        assert desk.value("weir_backlog_dropped_decisions_total", reason="unlike") == len(wrong)
        assert cluster.calls == ["look"] and desk.actions == []
        desk.collector.take(replace(both, limit_time=-1))
        await desk.collector.actions.idle()
        assert cluster.read[TOPIC] == {"slow": 59, "fast": 70}
        assert desk.value("weir_backlog_evictions_total", quota_type="time", outcome="withdrawn") == 2
        await desk.check()

    asyncio.run(run())


def test_policies_that_change_between_the_decision_and_its_turn_withdraw_it() -> None:
    """Even if the limit is the same: by whole ledgers it would be another plan."""

    async def run() -> None:
        cluster = FakeCluster(a=-1, b=-1)
        desk = Desk(cluster)
        reports = await desk.check()

        async def change() -> None:
            desk.entries = policies(preciseBacklogSize=False)

        cluster.before["carry_out"] = change
        await desk.decide(reports)
        assert desk.steps() == [("a", "begun"), ("a", "done")]
        assert desk.value("weir_backlog_evictions_total", quota_type="size", outcome="withdrawn") == 1

    asyncio.run(run())


def test_a_topic_that_was_not_read_for_once_is_not_decided_on_again() -> None:
    """The old decision is said again while the subscription went back: the next check plans anew."""

    async def run() -> None:
        cluster = FakeCluster(slow=-1)
        desk = Desk(cluster)
        (decision,) = await desk.round()
        held, cluster.read = cluster.read, {}
        await desk.check()
        cluster.read = held
        cluster.read[TOPIC]["slow"] = -1
        desk.collector.take(replace(decision, repeated=True))
        await desk.collector.actions.idle()
        assert desk.steps() == [("slow", "begun"), ("slow", "done")]
        assert cluster.read[TOPIC]["slow"] == -1

    asyncio.run(run())


@pytest.mark.parametrize("newer", [True, False])
def test_a_long_plan_ends_where_a_newer_check_was_decided_on(newer: bool) -> None:
    """Or where its own is not kept any more."""

    async def run() -> None:
        cluster = FakeCluster(a=-1, b=-1, c=-1)
        desk = Desk(cluster, rounds_kept=1)
        reports = await desk.check()

        async def check() -> None:
            del cluster.before["carry_out"]
            cluster.read[TOPIC] = dict.fromkeys("abc", 90)
            later = await desk.check()
            cluster.read[TOPIC] = dict.fromkeys("abc", -1)
            if newer:
                desk.collector.take(decided(later[0], desk.entries))

        cluster.before["carry_out"] = check
        await desk.decide(reports)
        assert desk.steps() == [("a", "begun"), ("a", "done")]
        assert desk.value("weir_backlog_evictions_total", quota_type="size", outcome="overtaken") == 2

    asyncio.run(run())
