"""A cluster in memory and a collector of its backlogs, with the law itself in between."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from sample_kit import sample_of

from streaming.collect.backlog import actions, open_orders
from streaming.collect.backlog.cluster import (
    BacklogCluster,
    CannotEvict,
    CollectorRun,
    Eviction,
    RoundQuestion,
    RoundResult,
    unnamed_report,
)
from streaming.collect.backlog.collector import BacklogCollector
from streaming.collect.backlog.metrics import BacklogMetrics
from streaming.contract.backlog.actions import BacklogAction, Position
from streaming.contract.backlog.decisions import TTL_MS, BacklogDecision, EvictionPlan, backlog_decision
from streaming.contract.broker_events import Backlog, Ledger, Subscription
from streaming.contract.errors import WeirError
from streaming.laws.backlog.law import judge, rules_for
from streaming.policy.policy_set import PolicySet

T0 = 1_795_166_700_000
TOPIC = "persistent://acme/orders/t1"
CLUSTER = "c1"
ENTRIES, SIZE = 100, 10_000
"""Of the open ledger 1 of each topic."""
EVICTS = {"limitSize": 4_000, "policy": "consumer_backlog_eviction", "actions": True}
NAME = f"collect-kafka-{CLUSTER}-00000001"
EXCEEDED = "pulsar_storage_backlog_quota_exceeded_evictions_total"
PLACE = {"cluster": CLUSTER, "namespace": "acme/orders", "topic": TOPIC}
PRECISE = {"preciseBacklogSize": True, "preciseTimeBasedBacklogQuotaCheck": True}


def policies(
    size: Mapping[str, Any] | None = EVICTS, time: Mapping[str, Any] | None = None, topic: str = TOPIC,
    **broker: Any,
) -> dict[str, Any]:  # fmt: skip
    """Entries with the quotas of one topic."""
    quotas = {"destination_storage": size, "message_age": time}
    given = {kind: dict(quota) for kind, quota in quotas.items() if quota is not None}
    return {f"topics.{topic}": {"backlogQuotaMap": given}, "broker": {**PRECISE, **broker}}


class FakeCluster:
    """Topics of one ledger; a subscription's position is the last entry that it has read.

    Attributes:
        read: topic -> subscription -> that entry.
        calls: what was asked, in order.
        before: by name of a call, what is done before it, or raised.
        refused: raised by the next calls of `carry_out`.
        after: raised by those that are not refused, once they have moved it.
        together: whether others that are behind the same place lose what is before it, too.
    """

    def __init__(self, **read: int) -> None:
        self.read: dict[str, dict[str, int]] = {TOPIC: dict(read)}
        self.calls: list[str] = []
        self.before: dict[str, Callable[[], Awaitable[None]] | Exception] = {}
        self.refused: list[Exception] = []
        self.after: list[Exception] = []
        self.together = False
        self.under_way = self.most_under_way = 0

    async def look(self, wants: RoundQuestion) -> RoundResult:
        await self._call("look")
        return RoundResult(reports=[report(topic, **subs) for topic, subs in self.read.items()])

    async def prepare(self, report: Backlog, planned: EvictionPlan, *, may_delete: bool) -> Eviction | None:
        topic = report.topic
        await self._call(f"prepare {planned.subscription}")
        if planned.subscription not in self.read[topic]:
            raise CannotEvict("the subscription has gone")
        now = self.read[topic][planned.subscription]
        upto = ENTRIES - 1 if planned.entry is None else planned.entry
        if now >= upto:
            return None
        others = [name for name, at in self.read[topic].items() if at < upto and name != planned.subscription]
        return replace(
            self._eviction(topic, planned.subscription, upto),
            also=tuple(self._eviction(topic, name, upto) for name in others if self.together),
        )

    def _eviction(self, topic: str, name: str, upto: int) -> Eviction:
        now = self.read[topic][name]
        return Eviction(
            topic=topic, subscription=name, how="offsets", since=(1, now), upto=(1, upto),
            messages=upto - now, bytes=(upto - now) * SIZE // ENTRIES,
        )  # fmt: skip

    async def carry_out(self, eviction: Eviction) -> None:
        self.under_way += 1
        self.most_under_way = max(self.under_way, self.most_under_way)
        try:
            await self._call(f"carry_out {eviction.subscription}")
            if self.refused:
                raise self.refused.pop(0)
            for one in (eviction, *eviction.also):
                self.read[one.topic][one.subscription] = one.upto[1]
            if self.after:
                raise self.after.pop(0)
        finally:
            self.under_way -= 1

    async def passed(self, topic: str, subscriptions: Sequence[tuple[str, Position]]) -> list[bool | None]:
        await self._call(f"passed {topic}")
        held = self.read.get(topic, {})
        return [None if name not in held else (1, held[name]) >= place for name, place in subscriptions]

    async def _call(self, what: str) -> None:
        self.calls.append(what)
        before = self.before.get(what.split()[0])
        if isinstance(before, Exception):
            raise before
        if before is not None:
            await before()


def report(topic: str = TOPIC, **read: int) -> Backlog:
    """What a look at one topic of `FakeCluster` gives."""
    ledgers = [Ledger(id=1, entries=ENTRIES, size=SIZE, close_time=None)]
    subscriptions = (
        Subscription(name=name, ledger=1, entry=entry, durable=True, oldest_publish_time=T0 - 100_000)
        for name, entry in read.items()
    )
    return unnamed_report(topic, T0, ledgers, subscriptions)


def many(count: int) -> tuple[FakeCluster, dict[str, Any]]:
    """A cluster and policies: topics that are all to be evicted from."""
    cluster = FakeCluster(slow=-1)
    names = [f"persistent://acme/orders/t{number}" for number in range(count)]
    cluster.read = {name: {"slow": -1} for name in names}
    entries: dict[str, Any] = {}
    for name in names:
        entries |= policies(topic=name)
    return cluster, entries


def decided(event: Backlog, entries: Mapping[str, Any], **more: Any) -> BacklogDecision:
    """What the law says of a report."""
    said = judge(event, rules_for(PolicySet(entries), event.topic))
    head = {"type": "backlog", "id": event.id, "ts": event.ts, "topic": event.topic}
    return backlog_decision({**head, **said, "ttl_ms": TTL_MS, **more})


def orders_last(monkeypatch: pytest.MonkeyPatch, limit_ms: int) -> None:
    """Change the limit of each step of an eviction."""
    for module in (actions, open_orders):
        monkeypatch.setattr(module, "ORDER_MS", limit_ms)


class Desk:
    """One run of a collector.

    Attributes:
        entries: the policies in force.
        actions: that were logged.
        log_fails: so many of the next writes fail.
        write_fails: raised by the next writes of reports.
    """

    def __init__(
        self,
        cluster: BacklogCluster,
        entries: Mapping[str, Any] | None = None,
        name: str = NAME,
    ) -> None:
        self.cluster, self.entries = cluster, dict(policies() if entries is None else entries)
        self.actions: list[BacklogAction] = []
        self.written: list[list[Backlog]] = []
        self.log_fails = 0
        self.write_fails: list[Exception] = []
        self.known = True
        self.registry = CollectorRegistry()
        self.metrics = BacklogMetrics(self.registry, CLUSTER, topic_metrics=True)
        run = CollectorRun(
            cluster=cluster, name=name, policies=lambda: PolicySet(self.entries), log=self._log,
            metrics=self.metrics,
        )  # fmt: skip
        self.collector = BacklogCollector(run, self._write, lambda: self.known)

    async def check(self) -> list[Backlog]:
        """One check; the reports that it has written."""
        await self.collector.check()
        return self.written[-1] if self.written else []

    async def decide(self, reports: Sequence[Backlog]) -> list[BacklogDecision]:
        """Decide on reports, and wait until all that follows was done."""
        decisions = [decided(one, self.entries) for one in reports]
        for decision in decisions:
            self.collector.take(decision)
        await self.collector.actions.idle()
        return decisions

    async def round(self) -> list[BacklogDecision]:
        """A check, the decisions on it, and what follows."""
        return await self.decide(await self.check())

    async def settle(self) -> None:
        """One look at what is unsettled."""
        for stuck in (False, True):
            await self.collector._unsettled.settle(stuck=stuck)

    def steps(self) -> list[tuple[str, str]]:
        """(subscription, step) of all actions so far."""
        return [(one.subscription, one.step) for one in self.actions]

    def value(self, name: str, **labels: str) -> float:
        """A metric."""
        return sample_of(self.registry, name, labels)

    async def _write(self, reports: Sequence[Backlog]) -> Sequence[str]:
        await asyncio.sleep(0)
        if self.write_fails:
            raise self.write_fails.pop(0)
        self.written.append(list(reports))
        return []

    async def _log(self, action: BacklogAction) -> None:
        await asyncio.sleep(0)
        if self.log_fails:
            self.log_fails -= 1
            raise WeirError("Kafka is away")
        self.actions.append(action)


def rig(**read: int) -> tuple[FakeCluster, Desk]:
    """A cluster with these positions, and a run on it."""
    cluster = FakeCluster(**read)
    return cluster, Desk(cluster)


def begun(action: BacklogAction, ts: int) -> BacklogAction:
    """An action as an earlier run has begun it."""
    return replace(action, step="begun", ts=ts, actor=f"collect-kafka-{CLUSTER}-0000000f")
