"""Dispatch rates for a protocol: what it asks, what is reported, what decisions do, what metrics say.

Of rates across brokers this proxy's share limits, whatever broker delivers, and its use is reported.
"""

from collections.abc import Callable
from math import inf
from typing import Any

import orjson
import pytest
from dispatch_kit import PER_SUBSCRIPTION, PLACE, T0, TOPIC, Job

from benchmarks.kit.lone_proxy import context, enforce
from enforcer.core import bounds
from enforcer.core.feeds.policies import Policies
from enforcer.core.law import Clock
from enforcer.core.metrics import Metrics
from enforcer.core.settings import ProxySettings
from enforcer.laws.dispatch.decisions import CounterStatement
from enforcer.laws.dispatch.dispatch import Dispatch
from enforcer.laws.dispatch.left import UNLIMITED, Left
from enforcer.laws.shares.meter import Meter
from streaming.columns.packed import unpack
from streaming.contract.decisions import Share
from streaming.contract.usage_events import DispatchUsage
from streaming.laws.registry import LAWS

HOUR_MS = 3_600_000


class Desk:
    """A proxy's dispatch rates, its clock, and what it has sent."""

    def __init__(self, policies: dict[str, Any], **settings: Any) -> None:
        self.now = T0
        self.room = True
        self.sent: list[tuple[dict[str, Any], str]] = []
        self.packs: list[tuple[bytes, str]] = []
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.metrics = Metrics(10)
        self.policies = Policies(lambda: self.now)
        clock = Clock(steady_ms=lambda: float(self.now), wall_ms=lambda: self.now)
        self.context = context(
            clock, settings=ProxySettings(**settings), metrics=self.metrics,
            policies=self.policies, send_usage=self._send, send_usage_pack=self._send_pack,
            call_later=lambda ms, function: self.later.append((ms, function)),
        )  # fmt: skip
        self.meter = Meter(self.context.settings, clock)
        self.dispatch = Dispatch(self.context, self.meter)
        self.change(policies, at=T0 - 1_000)
        self.dispatch.look()

    def change(self, policies: dict[str, Any], at: int) -> None:
        """Policies were read."""
        enforce(self.policies, at, policies)

    def deliver(
        self, count: int = 1, place: tuple[str, str] = PLACE, broker: str = "broker-0", backlog: bool = True
    ) -> None:
        """Deliver messages of a hundred bytes each."""
        moment = self.dispatch.moment(broker)
        self.dispatch.deliver_at(moment, *place, msgs=count, size=100 * count, entries=1, backlog=backlog)

    def left(self, broker: str = "broker-0") -> Left:
        """What may be delivered."""
        return self.dispatch.left_at(self.dispatch.moment(broker), *PLACE)

    def flush(self) -> None:
        """The moment has passed."""
        for _, function in self.later:
            function()
        self.later.clear()

    def value(self, name: str, **labels: str) -> float | None:
        """A metric."""
        return self.metrics.registry.get_sample_value(name, labels)

    def _send(self, event: Any, key: str) -> bool:
        if self.room:
            self.sent.append((dict(event), key))
        return self.room

    def _send_pack(self, value: bytes, key: str) -> bool:
        if self.room:
            self.packs.append((value, key))
        return self.room


TEN = {"broker": {PER_SUBSCRIPTION: 10}}
ONE = {"dispatchThrottlingRateInMsg": 1}


def test_who_waits_is_told_of_decisions_where_others_deliver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each counter that they are about; a proxy that is alone knows all before."""
    desk, told = Desk(TEN), list[tuple[str, ...]]()
    monkeypatch.setattr(desk.dispatch.lines, "wake", told.append)
    said = CounterStatement("p2-1", T0, "p2", "broker-0", *PLACE, (None, None, (4, 0)))
    desk.dispatch.take([said])
    assert told == []
    desk.dispatch.table.set_proxies(2)
    desk.dispatch.take([said])
    assert told == [("broker-0",), ("broker-0", TOPIC), ("broker-0", *PLACE)]


def test_without_a_rate_nothing_is_done() -> None:
    """One attribute says so."""
    desk = Desk({"broker": {"preciseDispatcherFlowControl": True}})
    dispatch = desk.dispatch
    assert not dispatch.active and not dispatch.by_subscription
    assert not dispatch.limits(*PLACE)
    desk.deliver()
    assert not desk.later and not dispatch.reports._waiting


@pytest.mark.parametrize(
    ("policies", "by_subscription", "limited"),
    [
        (TEN, True, [(TOPIC, "sub1")]),
        ({"broker": {"dispatchThrottlingRateInByte": 1}}, False, [(TOPIC, "sub1"), (TOPIC, "")]),
        ({"namespaces.acme/orders": {"dispatchRate": ONE}}, False,
         [(TOPIC, "sub1"), (TOPIC, "")]),
        ({f"topics.{TOPIC}": {"subscriptions": {"sub1": {"dispatchRate": ONE}}}},
         True, [(TOPIC, "sub1")]),
    ],
)  # fmt: skip
def test_who_is_limited(
    policies: dict[str, Any], by_subscription: bool, limited: list[tuple[str, str]]
) -> None:
    """Of any level; consumers without a group by broker and topic alone."""
    dispatch = Desk(policies).dispatch
    assert dispatch.active and dispatch.by_subscription == by_subscription
    asked = [(TOPIC, "sub1"), (TOPIC, "")]
    assert [place for place in asked if dispatch.limits(*place)] == limited


def test_tracked_all_is_counted_and_nothing_held_back() -> None:
    """From the very moment, and no longer."""
    desk = Desk(TEN)
    desk.deliver(11)
    assert desk.left().wait_ms > 0
    desk.change({"mode": "track"}, at=desk.now)
    desk.dispatch.look()
    assert desk.left() == UNLIMITED
    desk.deliver(4)
    desk.change({"mode": "enforce"}, at=desk.now)
    desk.dispatch.look()
    assert desk.left().wait_ms > 0
    assert desk.dispatch.table.counters["broker-0", *PLACE].acquired == [15, 0]


def test_it_tells_how_often_it_began() -> None:
    """Whoever has seen all that passed since then knows all of it."""
    desk, begun = Desk({}), []
    for rate in (10, 5, None, 5):
        desk.now += 1_000
        desk.change({"broker": {} if rate is None else {PER_SUBSCRIPTION: rate}}, desk.now)
        desk.dispatch.look()
        begun.append(desk.dispatch.begun)
    assert begun == [1, 1, 1, 2]


def test_policies_come_into_force_at_their_time() -> None:
    """What is asked goes by the time; what stands as an attribute follows with the next look."""
    desk = Desk({})
    before = desk.dispatch.generation
    by_entry = {"dispatchThrottlingOnBatchMessageEnabled": True}
    desk.change({"broker": {PER_SUBSCRIPTION: 10} | by_entry}, T0 + 2_000)
    desk.dispatch.look()
    assert not desk.dispatch.active and desk.dispatch.generation == before
    desk.now += 2_000
    desk.dispatch.look()
    assert desk.dispatch.active and desk.dispatch.by_entry and desk.dispatch.generation == before + 1
    desk.deliver(60)
    assert desk.left().msgs == 9
    # A late one is in force since its time.
    desk.change({"broker": {PER_SUBSCRIPTION: 5}}, T0 + 1_999)
    desk.change({"broker": {PER_SUBSCRIPTION: 5}}, T0 + 2_000)
    assert desk.left().msgs == 0


def test_deliveries_are_reported_one_by_one() -> None:
    """Few are JSON, keyed by their broker, and readable by the job; their times never go back."""
    desk = Desk(TEN)
    desk.deliver(3)
    desk.now -= 50
    desk.deliver(2, (TOPIC, "other"), "broker-1")
    desk.deliver(1)
    assert [ms for ms, _ in desk.later] == [20] and not desk.sent
    desk.flush()
    assert [key for _, key in desk.sent] == ["broker-0", "broker-0", "broker-1"]
    events = [event for event, _ in desk.sent]
    read = [LAWS.parse(orjson.dumps(event), default_id="x", default_ts=None) for event in events]
    assert all(isinstance(event, DispatchUsage) for event in read)
    assert [event["ts"] for event in events] == [T0, T0, T0 - 50]
    assert {event["proxy"] for event in events} == {"p1"}
    assert len({event["id"] for event in events}) == 3
    desk.deliver()
    assert len(desk.later) == 1


def test_many_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, by broker; the rows mean what the events would."""
    single = Desk(TEN)
    monkeypatch.setattr(bounds, "PACK_MIN", 3)
    desk = Desk(TEN)
    for each in (desk, single):
        for number in range(5):
            each.deliver(number)
        each.deliver(9, broker="broker-1")
        each.dispatch.stop()
    ((value, key),) = desk.packs
    assert key == "broker-0" and [event["broker"] for event, _ in desk.sent] == ["broker-1"]
    kind, rows = unpack(value)
    assert [{"type": kind, **row} for row in rows.to_pylist()] == [
        event for event, key in single.sent if key == "broker-0"
    ]


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full buffer goes out at once, packed in records of their size."""
    monkeypatch.setattr("enforcer.laws.dispatch.reports.WAITING_MAX", 40)
    desk = Desk(TEN)
    for _ in range(100):
        desk.deliver()
    assert [len(unpack(value)[1]) for value, _ in desk.packs] == [40, 40]
    desk.flush()
    assert [len(unpack(value)[1]) for value, _ in desk.packs] == [40, 40, 20]


def test_dropped_reports_are_counted_and_still_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka takes no more: what was delivered counts here until a later one of the broker is decided."""
    monkeypatch.setattr(bounds, "PACK_MIN", 3)
    desk = Desk(TEN)
    desk.room = False
    for _ in range(4):
        desk.deliver(2)
    desk.flush()
    desk.deliver(1)
    desk.flush()
    assert desk.dispatch.table.counts.unsent == 5 and desk.left().msgs == 1
    desk.room = True
    desk.deliver(3)
    desk.flush()
    job = Job(desk.policies.timeline)
    desk.dispatch.take([job.decide(desk.sent[0][0])])
    assert desk.left().msgs == 7 and desk.dispatch.table.counts.lost == 5


def test_a_proxy_that_starts_again_reads_back() -> None:
    """Its earlier life's deliveries are in the decisions; ids of both lives are told apart."""
    first = Desk(TEN)
    first.deliver(25)
    first.flush()
    job = Job(first.policies.timeline)
    said = job.decide(first.sent[0][0])
    again = Desk(TEN)
    again.now = T0 + 1_000
    again.dispatch._id_head = "p1-dispatch-later-"
    again.deliver(1)
    for theirs in (said.id, f"{said.id}x", "p1-dispatch-later-x", "p1-dispatch-later-" + "9" * 5_000):
        again.dispatch.take([said._replace(id=theirs)])
    assert again.left() == Left(0, inf, 1_000, "subscription", "msgs")
    assert again.dispatch.table.tail == 1


def test_several_proxies() -> None:
    """Who is alive is looked at."""
    desk = Desk(TEN)
    desk.context.membership.peers = 2
    assert desk.left().msgs == 10
    desk.dispatch.look()
    assert desk.left().msgs == 5


def test_means_for_planning() -> None:
    """Of what this proxy has delivered; forgotten after an hour, and beyond the bound."""
    desk = Desk(TEN, subjects_max=1)
    dispatch = desk.dispatch
    assert dispatch.mean_entry("broker-0", *PLACE) == (1.0, 0.0)
    for entries in (2, 4):
        moment = dispatch.moment("broker-0")
        dispatch.deliver_at(moment, *PLACE, msgs=18, size=900, entries=entries, backlog=True)
    assert dispatch.mean_entry("broker-0", *PLACE) == (6.0, 300.0)
    desk.now += HOUR_MS + 1
    assert dispatch.mean_entry("broker-0", *PLACE) == (1.0, 0.0)
    desk.deliver(5)
    assert dispatch.mean_entry("broker-0", *PLACE) == (5.0, 500.0)
    for number in range(desk.context.settings.dispatch_rows):
        desk.deliver(1, (TOPIC, f"s{number}"))
    assert dispatch.mean_entry("broker-0", *PLACE) == (1.0, 0.0)


def test_metrics() -> None:
    """What is left, owed and waited for, what was delivered, and how often a plan was cut."""
    desk = Desk(TEN, subjects_max=20)
    desk.deliver(25)
    place = {"broker": "broker-0", "topic": TOPIC, "subscription": "sub1"}
    assert desk.value("weir_dispatch_available", **place, dimension="msgs") == 0
    assert desk.value("weir_dispatch_available", **place, dimension="bytes") is None
    assert desk.value("weir_dispatch_debt", **place, dimension="msgs") == 15
    assert desk.value("weir_dispatch_resume_seconds", **place) == 2
    assert desk.value("weir_dispatch_limited_by", **place, level="subscription", dimension="msgs") == 1
    assert desk.value("weir_dispatch_delivered_bytes_total", **place) == 2_500
    assert desk.value("weir_dispatch_counters") == desk.value("weir_dispatch_own_deliveries") == 1
    # To look changes nothing.
    desk.now += 2_000
    assert desk.value("weir_dispatch_available", **place, dimension="msgs") == 5
    assert desk.dispatch.table.counters[("broker-0", *PLACE)].at == T0
    for subscription in ("sub1", "sub1", "sub2", "sub3"):
        desk.dispatch.throttled("broker-0", TOPIC, subscription, "topic", "bytes")
    cut = "pulsar_subscription_dispatch_throttled_bytes_events_total"
    labels = {"namespace": "acme/orders", "topic": TOPIC, "reason": "topic"}
    assert [desk.value(cut, **labels, subscription=f"sub{number}") for number in (1, 2, 3)] == [None, 1, 1]
    for number in (2, 3):
        desk.deliver(1, (TOPIC, f"sub{number}"))
    assert desk.value("weir_dispatch_resume_seconds", **place) is None
    assert desk.value("weir_dispatch_uncommon_total", what="unsent") == 0


def test_a_decision_of_another_broker_is_none_of_ours() -> None:
    """Others may stand before brokers that we have no traffic with."""
    desk = Desk(TEN)
    desk.dispatch.take([CounterStatement("x", T0, "p2", "broker-9", *PLACE, (None, None, (4, 0)))])
    assert desk.left().msgs == 10
    assert desk.left("broker-9").msgs == 6


ACROSS = {"dispatchThrottlingRateInMsg": 200, "ratePeriodInSecond": 2, "across_brokers": True}
GROUP = f"dispatch/{TOPIC}/sub1"


def alone(broker: dict[str, Any] | None = None, **settings: Any) -> Desk:
    """A lone proxy under a rate across brokers, and what else is set for brokers."""
    rate = {"namespaces.acme/orders": {"subscriptionDispatchRate": ACROSS}}
    desk = Desk({**rate, "broker": broker or {}}, **settings)
    desk.meter.set_policies(desk.policies.at(T0))
    desk.meter.newcomers.set_alive(1, T0 - 10_000.0)
    return desk


def test_one_share_for_all_brokers() -> None:
    """Alone the whole limit, later the share; what was too much is waited off, by whatever broker."""
    desk = alone()
    assert desk.dispatch.active and desk.dispatch.limits(*PLACE)
    # Half a second of 100 a second is kept (SHARE_BURST_S).
    assert desk.left() == Left(50, inf, 0, "", "")
    desk.deliver(60, broker="broker-0")
    desk.deliver(10, broker="broker-1")
    assert desk.left("broker-2") == Left(0, inf, 200, "subscription", "msgs")
    limits = {"dispatchRateInMsgs": 20.0}
    desk.meter.take_share(Share(group=GROUP, broker="p1", ts=T0, ttl_ms=60_000, usage={}, limits=limits))
    assert desk.left() == Left(0, inf, 1_000, "subscription", "msgs")
    desk.now += 1_000
    # Who owes nothing may deliver one more.
    assert desk.left() == Left(1, inf, 0, "", "")
    # The counters of brokers leave it alone, and nothing is reported of them.
    assert not desk.dispatch.table.counters and not desk.later
    (account,) = desk.meter.accounts.values()
    assert account.name == GROUP and account.used[2:] == [70, 7_000]


def test_beside_the_rate_of_a_broker() -> None:
    """Both hold; what a broker's own counters limit is reported as ever."""
    desk = alone({"dispatchThrottlingRateInMsg": 10, "dispatchThrottlingOnBatchMessageEnabled": True})
    assert desk.left() == Left(10, inf, 0, "", "")
    desk.deliver(60)
    assert desk.left() == Left(9, inf, 0, "", "")
    for _ in range(60):
        desk.deliver(1, broker="broker-1")
    assert desk.left("broker-1").level == "broker"
    assert desk.left() == Left(0, inf, 110, "subscription", "msgs")
    desk.flush()
    assert len(desk.sent) == 1 and [len(unpack(value)[1]) for value, _ in desk.packs] == [60]


def test_who_has_caught_up_is_not_charged() -> None:
    """With the flag off, as by the counters of brokers."""
    desk = alone({"dispatchThrottlingOnNonBacklogConsumerEnabled": False})
    desk.deliver(500, backlog=False)
    assert desk.left().msgs == 50


def test_a_subscription_more_makes_room_for_itself() -> None:
    """Accounts are bounded, and clients make up subscriptions: one goes, and is reported."""
    desk = alone(subjects_max=1)
    desk.deliver(500, (TOPIC, "sub2"))
    desk.deliver(500)
    assert desk.left().msgs == 0 and desk.meter.unmetered == 0
    (left,) = desk.meter.take_left().values()
    assert left.counts[2] > 0
