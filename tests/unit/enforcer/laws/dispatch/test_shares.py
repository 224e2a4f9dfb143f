"""Rates across brokers: this proxy's share limits, whatever broker delivers, and its use is reported."""

from collections.abc import Mapping
from typing import Any

from context_kit import context, enforce
from dispatch_kit import PLACE, TOPIC
from meter_kit import EPOCH_MS, Desk

from enforcer.core.feeds.policies import Policies
from enforcer.laws.dispatch.dispatch import Dispatch
from enforcer.laws.dispatch.left import Left
from streaming.contract.decisions import Share

ACROSS = {"dispatchThrottlingRateInMsg": 200, "ratePeriodInSecond": 2, "across_brokers": True}
GROUP = f"dispatch/{TOPIC}/sub1"


class Bench:
    """A proxy's dispatch rates over its meter, and what was sent of them."""

    def __init__(self, policies: Mapping[str, Any], **settings: Any) -> None:
        self.desk = desk = Desk(policies, **settings)
        self.sent: list[Mapping[str, Any]] = []
        known = Policies(desk.clock.wall_ms)
        enforce(known, EPOCH_MS - 1, policies)
        desk.meter.set_policies(known.at(EPOCH_MS))
        desk.meter.newcomers.set_alive(1, -10_000.0)
        ends = context(
            desk.clock, settings=desk.settings, policies=known, send_usage=self._send,
            send_usage_pack=self._refuse,
        )  # fmt: skip
        self.dispatch = Dispatch(ends, desk.meter)

    def left(self, broker: str = "broker-0") -> Left:
        """What may be delivered."""
        return self.dispatch.left_at(self.dispatch.moment(broker), *PLACE)

    def deliver(self, count: int, broker: str = "broker-0", *, backlog: bool = True) -> None:
        """Deliver something."""
        moment = self.dispatch.moment(broker)
        self.dispatch.deliver_at(moment, *PLACE, msgs=count, size=10 * count, entries=1, backlog=backlog)

    def _send(self, event: Mapping[str, Any], _key: str) -> bool:
        self.sent.append(event)
        return True

    def _refuse(self, _value: bytes, _key: str) -> bool:
        return False


def test_one_share_for_all_brokers() -> None:
    """Alone the whole limit, later the share; what was too much is waited off, by whatever broker."""
    bench = Bench({"namespaces.acme/orders": {"subscriptionDispatchRate": ACROSS}})
    assert bench.dispatch.active and bench.dispatch.limits(*PLACE)
    # Half a second of 100 a second is kept (share_burst_ms).
    assert bench.left() == Left(50, None, 0, "", "")
    bench.deliver(60, "broker-0")
    bench.deliver(10, "broker-1")
    assert bench.left("broker-2") == Left(0, None, 200, "subscription", "msgs")
    share = {"ts": EPOCH_MS, "ttl_ms": 60_000, "usage": {}, "limits": {"dispatchRateInMsgs": 20.0}}
    bench.desk.meter.take_share(Share(group=GROUP, broker="p1", **share))  # type: ignore[arg-type]
    assert bench.left() == Left(0, None, 1_000, "subscription", "msgs")
    bench.desk.now_ms += 1_000
    # Who owes nothing may deliver one more.
    assert bench.left() == Left(1, None, 0, "", "")
    # The counters of brokers leave it alone, and nothing is reported of them.
    assert not bench.dispatch.table.counters and not bench.sent
    (account,) = bench.desk.meter.accounts.values()
    assert account.name == GROUP and account.used[2:] == [70, 700]


def test_beside_the_rate_of_a_broker() -> None:
    """Both hold; what a broker's own counters limit is reported as ever."""
    bench = Bench(
        {
            "broker": {"dispatchThrottlingRateInMsg": 10, "dispatchThrottlingOnBatchMessageEnabled": True},
            "namespaces.acme/orders": {"subscriptionDispatchRate": ACROSS},
        }
    )
    assert bench.left() == Left(10, None, 0, "", "")
    bench.deliver(60)
    assert bench.left() == Left(9, None, 0, "", "")
    for _ in range(60):
        bench.deliver(1, "broker-1")
    assert bench.left("broker-1").level == "broker"
    assert bench.left() == Left(0, None, 110, "subscription", "msgs")
    assert len(bench.sent) == 61


def test_who_has_caught_up_is_not_charged() -> None:
    """With the flag off, as by the counters of brokers."""
    flag = {"broker": {"dispatchThrottlingOnNonBacklogConsumerEnabled": False}}
    bench = Bench({"namespaces.acme/orders": {"subscriptionDispatchRate": ACROSS}} | flag)
    bench.deliver(500, backlog=False)
    assert bench.left().msgs == 50


def test_a_subscription_more_makes_room_for_itself() -> None:
    """Accounts are bounded, and clients make up subscriptions: one goes, and is reported."""
    bench = Bench({"namespaces.acme/orders": {"subscriptionDispatchRate": ACROSS}}, accounts_max=1)
    other = (TOPIC, "sub2")
    dispatch = bench.dispatch
    dispatch.deliver_at(dispatch.moment("broker-0"), *other, msgs=500, size=1, entries=1, backlog=True)
    bench.deliver(500)
    assert bench.left().msgs == 0 and bench.desk.meter.unmetered == 0
    (left,) = bench.desk.meter.take_left().values()
    assert left.counts[2] > 0
