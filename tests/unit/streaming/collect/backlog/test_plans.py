"""Plans that the law does not make of our own reports, and plans that are overtaken, are not carried out."""

import random
from dataclasses import replace
from typing import Any

import orjson
import pytest
from collector_kit import EVICTS, TOPIC, decided, policies, report, rig
from law_kit import T0 as LAW_T0
from pack_kit import records_with

from streaming.collect.backlog.packed_reports import packed_reports
from streaming.collect.backlog.plans import plan_of
from streaming.contract.backlog.decisions import BacklogDecision, backlog_decision
from streaming.contract.broker_events import Backlog, Ledger, Subscription
from streaming.laws.law import StepContext
from streaming.laws.shard import step
from streaming.policy.policy_set import PolicySet


def forged(decision: BacklogDecision, **line: Any) -> BacklogDecision:
    """Its first line is another one."""
    return replace(decision, evict=(replace(decision.evict[0], **line), *decision.evict[1:]))


async def test_a_plan_that_the_law_does_not_make_is_refused() -> None:
    """Further, of somebody else, of fewer, by time too: whoever wrote it, and the true one is still taken."""
    cluster, desk = rig(slow=-1, fast=70)
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


async def test_policies_that_change_between_the_decision_and_its_turn_withdraw_it() -> None:
    """Even if the limit is the same: by whole ledgers it would be another plan."""
    cluster, desk = rig(a=-1, b=-1)
    reports = await desk.check()

    async def change() -> None:
        desk.entries = policies(preciseBacklogSize=False)

    cluster.before["carry_out"] = change
    await desk.decide(reports)
    assert desk.steps() == [("a", "begun"), ("a", "done")]
    assert desk.value("weir_backlog_evictions_total", quota_type="size", outcome="withdrawn") == 1


async def test_a_topic_that_was_not_read_for_once_is_not_decided_on_again() -> None:
    """The old decision is said again while the subscription went back: the next check plans anew."""
    cluster, desk = rig(slow=-1)
    (decision,) = await desk.round()
    held, cluster.read = cluster.read, {}
    await desk.check()
    cluster.read = held
    cluster.read[TOPIC]["slow"] = -1
    desk.collector.take(replace(decision, repeated=True))
    await desk.collector.actions.idle()
    assert desk.steps() == [("slow", "begun"), ("slow", "done")]
    assert cluster.read[TOPIC]["slow"] == -1


@pytest.mark.parametrize("newer", [True, False])
async def test_a_long_plan_ends_where_a_newer_check_was_decided_on(
    newer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or where its own is not kept any more."""
    monkeypatch.setattr("streaming.collect.backlog.collector.ROUNDS_KEPT", 1)
    cluster, desk = rig(a=-1, b=-1, c=-1)
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


NAMES = ["a", "B", "é", "\uffff", "\U0001f600", "a b", "ab"]
"""Among them such as are sorted otherwise by UTF-16 than by UTF-8."""


def any_report(chance: random.Random, number: int) -> Backlog:
    """One of an imagined topic, at the job's time."""
    ids = sorted(chance.sample(range(60), chance.randint(1, 5)))
    closed = [LAW_T0 - chance.randint(0, 200_000) for _ in ids[:-1]]
    return Backlog(
        id=f"c-1.{number}", ts=LAW_T0, at=LAW_T0, broker="", topic=f"persistent://acme/orders/t{number}",
        ledgers=tuple(
            Ledger(id=one, entries=chance.randint(0, 9), size=chance.randint(0, 5_000), close_time=at)
            for one, at in zip(ids, [*closed, None], strict=True)
        ),
        subscriptions=tuple(
            Subscription(
                name=name, ledger=chance.choice([*ids, chance.randint(-1, 60)]),
                entry=chance.randint(-1, 9), durable=chance.random() < 0.8,
                oldest_publish_time=chance.choice([None, LAW_T0 - chance.randint(-9_000, 200_000)]),
            )
            for name in chance.sample(NAMES, chance.randint(0, 5))
        ),
    )  # fmt: skip


@pytest.mark.parametrize("precise", [False, True])
def test_whatever_the_job_plans_is_taken(precise: bool) -> None:
    """Through packing, the job's law, and JSON: the law that checks it says the same."""
    chance = random.Random(7 + precise)
    reports = [any_report(chance, number) for number in range(400)]
    evicts = {"policy": "consumer_backlog_eviction"}
    quotas = {
        "destination_storage": {**evicts, "limitSize": 3_000},
        "message_age": {**evicts, "limitTime": 60},
    }
    flags = {"preciseBacklogSize": precise, "preciseTimeBasedBacklogQuotaCheck": precise}
    entries: dict[str, Any] = {"namespaces.acme/orders": {"backlogQuotaMap": quotas}, "broker": flags}
    pieces, _ = packed_reports(reports, 1)
    context = StepContext(initial=entries, fail_fast=True)
    values = [piece.value for piece in pieces]
    _, out = step("backlog", 0, None, records_with(values, [True] * len(values), ts=LAW_T0), context)
    decisions = [backlog_decision(orjson.loads(value)) for value in out.value]
    by_id = {one.id: one for one in reports}
    plans = [(one, plan_of(one, by_id[one.id], 1, PolicySet(entries))) for one in decisions if one.evict]
    assert len(decisions) == len(reports) and len(plans) > 100
    for decision, plan in plans:
        assert plan is not None and plan.agreed == {"size", "time"}, decision
        fewer = replace(decision, evict=decision.evict[1:])
        assert plan_of(fewer, by_id[decision.id], 1, PolicySet(entries)) is None
