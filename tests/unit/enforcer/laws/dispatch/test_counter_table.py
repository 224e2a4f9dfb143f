"""What may be delivered by statement + own tail: the contract's examples, and every bound."""

import random
from math import inf
from typing import Any

import pytest
from dispatch_kit import PER_SUBSCRIPTION, PLACE, T0, TOPIC, Job, Proxy, ten_a_second

from enforcer.laws.dispatch.counter import Delivery
from enforcer.laws.dispatch.counter_table import LOST_MS
from enforcer.laws.dispatch.decisions import CounterStatement
from enforcer.laws.dispatch.left import Left
from streaming.policy.timeline import PolicyTimeline


def proxy_of(policies: dict[str, Any], **bounds: int) -> Proxy:
    """A proxy that is alone."""
    return Proxy("p1", PolicyTimeline(policies), **bounds)


@pytest.mark.parametrize(
    ("delivered", "periods"), [(11, [0, 9, 10]), (30, [0, 0, 0, 10]), (10, [0, 10]), (3, [7, 10])]
)
def test_the_examples_of_the_contract(delivered: int, periods: list[int]) -> None:
    """At 10 a second 11 leave 9 in the next period; 30 leave nothing, nothing, then 10."""
    proxy = proxy_of(ten_a_second())
    assert proxy.left(T0) == Left(10, inf, 0, "", "")
    proxy.deliver(T0 + 300, delivered)
    for number, expected in enumerate(periods):
        now = T0 + 1000 * number + 300
        here = proxy.left(now)
        assert here.msgs == expected
        assert here.wait_ms == (700 + 1000 * (delivered // 10 - 1 - number) if expected == 0 else 0)
        assert (here.level, here.dimension) == (("", "") if expected else ("subscription", "msgs"))


def test_all_levels_and_both_dimensions_apply_together() -> None:
    """The least that is left counts, and what frees last is named."""
    proxy = proxy_of(
        {
            "broker": {"dispatchThrottlingRateInMsg": 100, PER_SUBSCRIPTION: 10},
            f"topics.{TOPIC}": {
                "dispatchRate": {"dispatchThrottlingRateInByte": 500, "ratePeriodInSecond": 5}
            },
        }
    )
    proxy.deliver(T0, 10, 600)
    assert proxy.left(T0) == Left(0, 0, 5_000, "topic", "bytes")
    assert proxy.left(T0, place=(TOPIC, "sub2")) == Left(10, 0, 5_000, "topic", "bytes")
    assert proxy.left(T0, place=(TOPIC, "")) == Left(90, 0, 5_000, "topic", "bytes")
    other = ("persistent://acme/orders/t2", "sub1")
    assert proxy.left(T0, place=other) == Left(10, inf, 0, "", "")
    # Of another broker nothing was delivered.
    assert proxy.left(T0, broker="b2") == Left(10, 500, 0, "", "")
    assert proxy.left(T0 + 5_000) == Left(10, 400, 0, "", "")


def test_nothing_limits() -> None:
    """Without a rate nothing is counted and nothing is to be reported."""
    proxy = proxy_of({"broker": {"dispatchThrottlingOnBatchMessageEnabled": True}})
    assert proxy.deliver(T0, 100) is None
    assert proxy.left(T0) == Left(inf, inf, 0, "", "")
    assert not proxy.table.counters and not proxy.table.tail


def test_flags_say_what_is_charged() -> None:
    """Entries instead of messages; nothing for consumers that have caught up."""
    flags = {"dispatchThrottlingOnBatchMessageEnabled": True}
    proxy = proxy_of(ten_a_second(**flags))
    proxy.deliver(T0, 60, entries=4)
    assert proxy.left(T0).msgs == 6
    proxy = proxy_of(ten_a_second(dispatchThrottlingOnNonBacklogConsumerEnabled=False))
    event = proxy.deliver(T0, 60, backlog=False)
    # It is reported, since averages count it, and charges nothing.
    assert event is not None and proxy.left(T0).msgs == 10 and not proxy.table.tail
    proxy.deliver(T0, 4, backlog=True)
    assert proxy.left(T0).msgs == 6


def test_a_decision_takes_the_place_of_what_it_holds() -> None:
    """An own one leaves the tail, another's sets the counters; again and older ones change nothing."""
    timeline = PolicyTimeline(ten_a_second())
    job, one, two = Job(timeline), Proxy("p1", timeline), Proxy("p2", timeline)
    events = [one.deliver(T0, 3), two.deliver(T0, 4), one.deliver(T0 + 10, 2)]
    said = [job.decide(event) for event in events if event is not None]
    assert (one.left(T0 + 10).msgs, two.left(T0 + 10).msgs) == (5, 6)
    one.read(said[0])
    assert (one.table.tail, one.left(T0 + 10).msgs) == (1, 5)
    one.read(said[1])
    assert (one.table.tail, one.left(T0 + 10).msgs) == (1, 1)
    for again in (said[2], said[0], said[1], said[2]):
        one.read(again)
        assert one.left(T0 + 10).msgs == 1
    assert one.table.tail == 0
    for each in said:
        two.read(each)
    assert two.left(T0 + 10).msgs == 1


def test_alone_a_decision_says_what_was_known() -> None:
    """Nothing is walked again where the job agrees, as it does with a proxy that is alone."""
    timeline = PolicyTimeline(ten_a_second(dispatchThrottlingRateInByte=1000))
    job, proxy = Job(timeline), Proxy("p1", timeline)
    events = [proxy.deliver(T0 + 300 * number, 4, 100) for number in range(20)]
    before = proxy.left(T0 + 6_000)
    for event in events:
        assert event is not None
        proxy.read(job.decide(event))
        assert not any(counter.stale for counter in proxy.table.counters.values())
    assert proxy.left(T0 + 6_000) == before and proxy.table.tail == 0


def test_the_job_is_away() -> None:
    """A proxy that is alone goes on exactly, for hours, with the oldest deliveries summed up."""
    timeline = PolicyTimeline(ten_a_second())
    proxy, exact = Proxy("p1", timeline, tail_max=5), Proxy("p1", timeline)
    job, now, events = Job(timeline), T0, []
    for number in range(200):
        now += 137
        here = proxy.left(now)
        assert here == exact.left(now)
        if here.wait_ms == 0:
            events.append(proxy.deliver(now, 1 + number % 7))
            exact.deliver(now, 1 + number % 7)
    assert proxy.table.tail == 5 and proxy.table.counts.folded == len(events) - 5
    # It comes back: what was said of the first ones is passed over, until it says what was summed up.
    for event in events:
        assert event is not None
        proxy.read(job.decide(event))
        assert proxy.left(now) == exact.left(now)
    assert proxy.table.counts.passed_over == len(events) - 6
    assert proxy.acquired(now) == {names: job.at(now)[names] for names in proxy.table.counters}


def test_summed_up_deliveries_that_were_lost_are_given_up() -> None:
    """Once the job decides what is two minutes later it will never say anything of them."""
    proxy = proxy_of({"broker": {PER_SUBSCRIPTION: 10, "dispatchThrottlingRateInMsg": 1}}, tail_max=1)
    proxy.deliver(T0, 50)
    proxy.deliver(T0, 1)
    other = CounterStatement("x", T0 + LOST_MS, "p2", "b1", *PLACE, ((7, 0), None, (7, 0)))
    proxy.read(other)
    assert (proxy.table.counts.passed_over, proxy.table.counts.folded) == (0, 1)
    assert proxy.left(T0 + LOST_MS).msgs == 0
    proxy.read(other._replace(at=T0 + LOST_MS + 1))
    assert proxy.table.counts.lost == 1 and proxy.table.tail == 0


def test_a_lost_report_goes_with_the_next_of_its_broker() -> None:
    """What the job never heard of is not charged by it; from then on nor here."""
    timeline = PolicyTimeline(ten_a_second(dispatchThrottlingRateInMsg=100))
    job, proxy = Job(timeline), Proxy("p1", timeline)
    proxy.deliver(T0, 5)
    proxy.deliver(T0, 5, place=(TOPIC, "sub2"))
    proxy.deliver(T0, 5, broker="b2")
    event = proxy.deliver(T0, 1)
    later = proxy.deliver(T0, 1)
    assert event is not None and later is not None
    proxy.read(job.decide(event))
    assert proxy.left(T0).msgs == 8 and proxy.table.counts.lost == 2
    assert proxy.left(T0, place=(TOPIC, "sub2")).msgs == 10
    # Another broker's events have an order of their own.
    assert proxy.table.tail == 2 and proxy.left(T0, broker="b2").msgs == 5


def test_a_decision_far_ahead_is_waited_for() -> None:
    """A broker's time never goes back: until ours is there its periods end later for us."""
    proxy = proxy_of(ten_a_second())
    proxy.read(CounterStatement("x", T0 + 5_400, "p2", "b1", *PLACE, (None, None, (10, 0))))
    assert proxy.left(T0) == Left(0, inf, 6_000, "subscription", "msgs")
    event = proxy.deliver(T0, 1)
    assert event is not None and event["ts"] == T0 + 5_400
    assert proxy.left(T0 + 6_000).msgs == 9


def test_counters_are_bounded() -> None:
    """Those at 0 make room, the ones unused longest first; while none is there, more are not limited."""
    proxy = proxy_of(ten_a_second(), counters_max=3)
    places = [(TOPIC, f"sub{number}") for number in range(20)]
    for place in places[:3]:
        proxy.deliver(T0, 25, place=place)
    proxy.deliver(T0, 25, place=places[3])
    assert proxy.left(T0, place=places[3]).msgs == 10 and proxy.table.counts.unkept == 1
    # Their decisions are read, and a period at a time all is paid off.
    for number, place in enumerate(places[:3]):
        said = CounterStatement(f"p1-{number + 1}", T0, "p1", "b1", *place, (None, None, (25, 0)))
        proxy.read(said)
    for number, place in enumerate(places[4:]):
        proxy.deliver(T0 + 3_000, 1, place=place)
        proxy.read(CounterStatement(f"p1-{number + 5}", T0 + 3_000, "p1", "b1", *place, (None, None, (0, 0))))
        assert len(proxy.table.counters) <= 3
    assert proxy.table.counts.unkept == 1


def test_decisions_of_what_is_paid_off_take_no_room() -> None:
    """Counters at 0 are not kept for others' sake."""
    proxy = proxy_of(ten_a_second())
    proxy.read(CounterStatement("x", T0, "p2", "b9", *PLACE, (None, None, (0, 0))))
    assert not proxy.table.counters


def test_a_change_of_policy_in_the_middle() -> None:
    """What was delivered before a change is paid by the rates of then, as in the job."""
    timeline = PolicyTimeline(ten_a_second())
    timeline.apply("broker", {PER_SUBSCRIPTION: 1}, T0 + 2_500)
    timeline.apply("broker", {PER_SUBSCRIPTION: 100}, T0 + 4_500)
    proxy = Proxy("p1", timeline)
    proxy.deliver(T0, 50)
    assert proxy.left(T0 + 2_600) == Left(0, inf, 29_400, "subscription", "msgs")
    assert proxy.left(T0 + 4_600).msgs == 72
    event = proxy.deliver(T0 + 4_600, 10)
    assert event is not None
    job = Job(timeline)
    for each in ({**event, "id": "p1-1", "ts": T0, "msgs": 50}, event):
        said = job.decide(each)
    assert said.acquired[2] == (38, 0)
    assert proxy.acquired(T0 + 4_600)[("b1", *PLACE)] == (38, 0)


def test_a_change_that_comes_late_moves_what_was_counted() -> None:
    """It is in force since its time, whenever it was read."""
    timeline = PolicyTimeline(ten_a_second())
    proxy = Proxy("p1", timeline)
    proxy.deliver(T0, 50)
    timeline.apply("broker", {PER_SUBSCRIPTION: 100, "dispatchThrottlingRateInMsg": 60}, T0)
    proxy.table.policies_changed(T0)
    assert proxy.left(T0) == Left(10, inf, 0, "", "")


def test_changes_may_be_forgotten() -> None:
    """What they mean is settled before, so nothing changes; what says nothing goes."""
    timeline = PolicyTimeline(ten_a_second(ratePeriodInSecond=1))
    day = {"dispatchRate": {"dispatchThrottlingRateInMsg": 10, "ratePeriodInSecond": 86_400}}
    timeline.apply(f"topics.{TOPIC}", day, T0 - 10)
    timeline.apply("broker", {PER_SUBSCRIPTION: 1}, T0 + 2_500)
    proxy = Proxy("p1", timeline)
    proxy.deliver(T0, 50)
    proxy.deliver(T0 + 1_000_000, 1)
    before = proxy.left(T0 + 1_000_000)
    proxy.table.sweep(T0 + 400_000)
    timeline.forget_before(T0 + 400_000)
    assert proxy.left(T0 + 1_000_000) == before
    assert set(proxy.table.counters) == {("b1", TOPIC), ("b1", *PLACE)}
    proxy.read(CounterStatement("p1-2", T0 + 1_000_000, "p1", "b1", *PLACE, (None, (41, 0), (1, 0))))
    proxy.left(T0 + 2_000_000)
    proxy.table.sweep(T0 + 1_900_000)
    assert set(proxy.table.counters) == {("b1", TOPIC)}


def test_brokers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the one that was not heard of for longest the time is forgotten, not what was delivered."""
    monkeypatch.setattr("enforcer.laws.dispatch.counter_table.BROKERS_MAX", 2)
    proxy = proxy_of(ten_a_second())
    for broker in ("b1", "b2", "b3"):
        proxy.deliver(T0, 4, broker=broker)
    assert proxy.table.tail == 2 and proxy.table.counts.folded == 1
    assert [proxy.left(T0, broker=broker).msgs for broker in ("b1", "b2", "b3")] == [6, 6, 6]


def test_a_moment_is_as_good_as_asking_each_time() -> None:
    """Also where counters are made, must leave for others, or deliveries are summed up on the way."""
    policies = ten_a_second() | {"broker": {"dispatchThrottlingRateInMsg": 40, PER_SUBSCRIPTION: 10}}
    chance, now = random.Random(1), T0
    for bounds in ({}, {"tail_max": 2}, {"counters_max": 3}):
        one, other = proxy_of(policies, **bounds), proxy_of(policies, **bounds)
        for seq in range(1, 300):
            now += chance.choice((0, 1, 400, 1_000))
            moment = one.table.moment("b1", now)
            for place in ((TOPIC, f"s{chance.randrange(3)}") for _ in range(3)):
                assert one.table.left(moment, *place) == other.left(now, place=place)
                if chance.randrange(2):
                    delivery = (seq, 0, chance.randrange(15), 100, 1, True, place)
                    ts = one.table.deliver(moment, Delivery(*delivery))
                    assert ts == other.table.deliver(other.table.moment("b1", now), Delivery(*delivery))
                assert one.table.left(moment, *place) == other.left(now, place=place)
            assert one.acquired(now) == other.acquired(now)
        assert one.table.counts == other.table.counts
