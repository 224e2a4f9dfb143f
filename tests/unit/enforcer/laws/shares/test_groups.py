"""Policies, shares and reports meet in one loop; what is said of other members reaches the metrics."""

import asyncio
import contextlib
from dataclasses import replace
from typing import Any

import pytest
from meter_kit import EPOCH_MS, POLICIES, Desk, many_groups, publish

from benchmarks.kit.lone_proxy import enforce
from enforcer.core import bounds
from enforcer.core.account import State
from enforcer.core.law import Clock
from enforcer.core.metrics import Metrics
from enforcer.laws.shares.decisions import MEMBERS_MAX, Members, OthersShares, share_of, slots_of
from enforcer.laws.shares.groups import GroupMetrics, Groups
from enforcer.laws.shares.meter import Meter
from enforcer.laws.shares.topic_accounts import TopicAccounts


class Rig(Desk):
    """Groups with clocks that a test sets; `leap_ms` is how far each look at the clock moves it."""

    def __init__(self) -> None:
        super().__init__({}, subjects_max=100)
        self.leap_ms = 0.0
        # Our own clock is off; what has a time of its own goes by the brokers'.
        self.clock = Clock(steady_ms=self.steady_ms, wall_ms=lambda: EPOCH_MS + int(self.now_ms) - 10_000)
        self.meter = Meter(self.settings, self.clock)
        self.topics = TopicAccounts(self.meter, str, bounds.TOPICS_MAX, 249)
        self.context = replace(self.context, clock=self.clock)
        self.groups = Groups(self.context, self.meter)

    def steady_ms(self) -> float:
        """The steady clock."""
        self.now_ms += self.leap_ms
        return self.now_ms

    def put(self, path: str, value: Any, at_ms: int = 0) -> None:
        """A policy is read that is in force from then on."""
        enforce(self.context.policies, EPOCH_MS + at_ms, {path: value})

    def decided(self, broker: str, used: float, may: float | None, group: str = "rg1") -> None:
        """A share is decided."""
        limits = None if may is None else {"publishRateInMsgs": may}
        fields = {"group": group, "broker": broker, "ts": EPOCH_MS, "ttl_ms": 3_000, "limits": limits}
        self.groups.take([share_of({**fields, "usage": {"publishRateInMsgs": used}})])

    def value(self, name: str, **labels: str) -> float | None:
        """A metric."""
        return self.metrics.registry.get_sample_value(name, labels)


def test_policies_come_into_force_at_their_time() -> None:
    """Not when they are read, and by the brokers' clock."""
    rig = Rig()
    for path, value in POLICIES.items():
        rig.put(path, value, at_ms=2_000)
    rig.groups.look()
    assert not rig.groups.meter.active
    rig.now_ms = 2_000.0
    rig.groups.look()
    assert rig.groups.meter.active and rig.groups.meter.interval_ms == 1_000


@pytest.fixture
def rig() -> Rig:
    """One group, some traffic."""
    rig = Rig()
    for path, value in POLICIES.items():
        rig.put(path, value)
    rig.groups.look()
    publish(rig, 10)
    return rig


def test_own_shares_are_obeyed_those_of_others_are_shown(rig: Rig) -> None:
    """Unfair use, an overshoot, and what the others use."""
    rig.decided("p1", 60.0, 60.0)
    rig.decided("p2", 270.0, 240.0)
    rig.decided("p3", 1.0, 1.0, group="unknown here")
    labels = {"group": "rg1", "dimension": "publishRateInMsgs"}
    assert rig.value("weir_group_share", **labels) == 60.0
    assert rig.value("weir_group_members", group="rg1") == 2
    assert rig.value("weir_group_fairness_ratio", **labels) == 60 / 270
    overshoot = rig.value("weir_group_overshoot_ratio", **labels)
    assert overshoot is not None and round(overshoot, 6) == 0.1
    remote = {"ResourceGroup": "rg1", "RemoteBroker": "p2", "MonitoringClass": "Publish"}
    assert rig.value("pulsar_resource_group_remote_usage_messages_used", **remote) == 270.0
    rig.decided("p2", 0.0, None)
    assert rig.value("weir_group_members", group="rg1") == 1
    assert rig.value("weir_group_state", group="rg1", state="active") == 1


def test_a_group_may_go_while_it_is_told_of(rig: Rig) -> None:
    """A scrape has a thread of its own; as often as it looks, the group is gone before it looks again."""

    class Going(dict[str, Members]):
        def __contains__(self, name: object) -> bool:
            found = super().__contains__(name)
            self.clear()
            return found

    rig.decided("p1", 60.0, 60.0)
    groups, metrics = rig.groups, Metrics(10)
    GroupMetrics(replace(rig.context, metrics=metrics), groups.meter, groups.reports, Going(groups._members))
    labels = {"group": "rg1", "dimension": "publishRateInMsgs"}
    assert metrics.registry.get_sample_value("weir_group_share", labels) == 60.0


def test_a_share_is_one_of_the_limit_at_its_time(rig: Rig) -> None:
    """It was decided before the limit was lowered, and is read after that."""
    rig.put("resourcegroups.rg1", {"publishRateInMsgs": 30}, at_ms=1_000)
    rig.now_ms = 1_000.0
    rig.groups.look()
    rig.decided("p1", 60.0, 60.0)
    assert rig.groups.meter.accounts["rg1"].rate(0) == 6.0


def test_packed_shares_of_others_are_not_read(rig: Rig) -> None:
    """Only which groups they are of: no metric says what is not known, and nobody takes what is theirs."""
    rig.context.membership.metering = 3
    for rig.now_ms in (0.0, 1_000.0):
        rig.groups.look()
    account = rig.groups.meter.accounts["rg1"]
    limit = account.limits.rates[0]
    assert limit is not None and account.rate(0) == limit / 3
    rig.groups.take([OthersShares(slots=slots_of(["rg1", "rg9"]), ttl_ms=3_000)])
    rig.groups.look()
    assert account.rate(0) == limit * 0.05 / 2
    rig.decided("p1", 60.0, 60.0)
    labels = {"group": "rg1", "dimension": "publishRateInMsgs"}
    assert rig.value("weir_group_share", **labels) == account.rate(0) == 60.0
    assert rig.value("weir_group_fairness_ratio", **labels) is None
    assert rig.value("weir_group_members", group="rg1") is None


def test_a_share_ends_when_its_time_is_over(rig: Rig) -> None:
    """And the log and a metric say by which rule traffic goes on."""
    rig.decided("p1", 60.0, 60.0)
    rig.now_ms = 3_000.0
    rig.groups.look()
    assert rig.groups.meter.accounts["rg1"].state is State.EXPIRED
    assert rig.value("weir_group_state", group="rg1", state="expired") == 1


def test_members_are_bounded() -> None:
    """Metrics miss the others; shares are not touched by that."""
    members = Members()
    for number in range(MEMBERS_MAX + 5):
        fields = {"group": "g", "broker": f"b{number}", "ts": 0, "ttl_ms": 1, "limits": {}}
        members.take(share_of(fields))
    assert len(members) == MEMBERS_MAX


def test_series_are_bounded() -> None:
    """The first groups in use, and so many of their members, have series of their own."""
    rig = Rig()
    for path, value in many_groups(15, rate=1).items():
        rig.put(path, value)
    rig.groups.look()
    for number in range(15):
        publish(rig, 1, topic=f"t.n{number}.x")
    for number in range(150):
        rig.decided(f"p{number}", 1.0, 1.0, group="g0")
    series = [sample for family in rig.metrics.registry.collect() for sample in family.samples]
    assert len({s.labels["group"] for s in series if s.name == "weir_group_limit"}) == 10
    assert len({s.labels["RemoteBroker"] for s in series if "RemoteBroker" in s.labels}) == 100
    assert rig.value("weir_proxy_groups") == 15


async def test_a_report_each_round(rig: Rig) -> None:
    """Each with the time that it covers, also after the loop stood still for long."""
    rig.leap_ms, rig.groups.look_s = 50.0, 0.001
    running = asyncio.ensure_future(rig.groups.run())
    async with asyncio.timeout(20):
        while len(rig.events) < 3:
            await asyncio.sleep(0)
            publish(rig, 1)
            if len(rig.events) == 2 and rig.leap_ms == 50.0:
                rig.now_ms += 10_000
                rig.leap_ms = 40.0
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    periods = [event["period_ms"] for event in rig.events]
    assert all(period >= 1_000 for period in periods) and periods[2] >= 10_000
    rig.leap_ms = 0.0
    rig.groups.stop()
    assert rig.events[-1]["usage"]["rg1"] is not None
