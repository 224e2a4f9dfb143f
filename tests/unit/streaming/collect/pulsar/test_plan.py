"""What limiters should hold: shares divided over topics and partitions, and policies as they are."""

from collections.abc import Mapping
from typing import Any

import pytest

from streaming.collect.pulsar.counters import Counts, Passage, Place
from streaming.collect.pulsar.limits import Kind, LimiterRate, Rates, Slot
from streaming.collect.pulsar.plan import Plan, Planner
from streaming.collect.pulsar.shares import Shares
from streaming.policy.policy_set import PolicySet

T1, T2 = "persistent://a/b/t1", "persistent://a/b/t2"
NAMESPACE = Slot("a/b", "", "", Kind.PUBLISH)
GROUP = {"resourcegroups.g": {"publishRateInMsgs": 100}, "namespaces.a/b": {"resourcegroup": "g"}}


def own(topic: str, kind: Kind = Kind.PUBLISH, subscription: str = "") -> Slot:
    """A topic's own limiter."""
    return Slot("a/b", topic, subscription, kind)


def published(broker: str, *topics: tuple[str, int]) -> dict[Place, Counts]:
    """Messages of 10 bytes."""
    return {Place(broker, topic): (count, 10 * count, 0, 0) for topic, count in topics}


def plan(
    entries: Mapping[str, Any],
    counts: Mapping[Place, Counts],
    pushed: Mapping[Slot, Rates] | None = None,
    shares: Shares | None = None,
    planner: Planner | None = None,
    **heard: Any,
) -> Plan:
    """One round at time 0; `heard` is what else is known of the counts."""
    planner = planner or Planner()
    second = dict.fromkeys((place.broker for place in counts), 1_000)
    passage = Passage(period_ms=second, counts=counts, restarted=0, unknown=0, **heard)
    return planner.plan(PolicySet(entries), passage, shares or Shares(), pushed or {}, 0)


def shares_of(
    group: str = "g", dimension: str = "publishRateInMsgs", until_ms: int = 1, **rates: float
) -> Shares:
    """Those of some brokers."""
    shares = Shares()
    for broker, rate in rates.items():
        shares.take(group, broker, {dimension: rate}, until_ms, ours=True)
    return shares


def msgs(made: Plan) -> dict[str, float]:
    """Messages per second of the topics' own publish limits, rounded."""
    return {
        slot.topic: round(wanted.msgs or 0.0, 2)
        for slot, wanted in made.wanted.items()
        if slot.topic and slot.kind is Kind.PUBLISH
    }


def test_alone_a_topic_has_the_whole_limit_and_others_5_percent() -> None:
    """Those without traffic, or with little, share none of it by name."""
    made = plan(GROUP, published("b1", (T1, 500), (T2, 2)))
    assert msgs(made) == {T1: 98.0}
    assert made.wanted[NAMESPACE] == LimiterRate(5.0, None, True)


def test_a_share_is_divided_as_the_law_divides_a_limit() -> None:
    """In proportion at first; then half-way to fairness where both use all they have."""
    planner, shares = Planner(), shares_of(b1=60.0)
    made = plan(GROUP, published("b1", (T1, 80), (T2, 40)), None, shares, planner)
    assert msgs(made) == {T1: 40.0, T2: 20.0}
    pushed = {own(T1): Rates(40, -1), own(T2): Rates(20, -1)}
    made = plan(GROUP, published("b1", (T1, 40), (T2, 20)), pushed, shares, planner)
    assert msgs(made) == {T1: 35.0, T2: 25.0}
    assert made.held_back == {("g", "b1"): {"publishRateInMsgs": 1}}


def test_a_share_of_nothing_lets_next_to_nothing_pass() -> None:
    """Round by round: no job decides it, but who may write decisions can, and it ended the collector."""
    planner, shares = Planner(), shares_of(b1=0.0)
    for _ in range(2):
        made = plan(GROUP, published("b1", (T1, 40)), {own(T1): Rates(1, -1)}, shares, planner)
        assert made.wanted[own(T1)].rates(Kind.PUBLISH) == Rates(1, -1)


def test_shares_of_a_limit_that_was_lowered_since_are_lowered_with_it() -> None:
    """As at a proxy: until the next round the brokers went on with what they had of the former one."""
    counts = published("b1", (T1, 600)) | published("b2", (T2, 400))
    assert msgs(plan(GROUP, counts, None, shares_of(b1=600.0, b2=400.0))) == {T1: 60.0, T2: 40.0}


def test_partitions_of_a_topic_have_one_rate_wherever_they_are() -> None:
    """The level at which they use up together what the topic got at its brokers."""
    shares = shares_of(b1=60.0, b2=40.0)
    counts = published("b1", (f"{T1}-partition-0", 90), (f"{T1}-partition-1", 10)) | published(
        "b2", (f"{T1}-partition-2", 90)
    )
    assert msgs(plan(GROUP, counts, {own(T1): Rates(90, -1)}, shares)) == {T1: 44.5}


def test_a_topic_whose_name_only_looks_like_a_partition_has_a_limit_of_its_own() -> None:
    """Pulsar writes no leading zeros: no limit of another topic holds it back."""
    assert msgs(plan(GROUP, published("b1", (f"{T1}-partition-01", 500)))) == {f"{T1}-partition-01": 100.0}


def test_who_uses_little_since_it_may_not_use_more_is_no_newcomer() -> None:
    """Its way up is the law's: half-way to a fair part."""
    planner, shares = Planner(), shares_of(b1=100.0)
    plan(GROUP, published("b1", (T1, 400), (T2, 10)), None, shares, planner)
    pushed = {own(T1): Rates(97, -1), own(T2): Rates(1, -1)}
    made = plan(GROUP, published("b1", (T1, 97), (T2, 1)), pushed, shares, planner)
    assert msgs(made) == {T1: 73.78, T2: 26.22}


def test_a_newcomer_goes_half_way_to_a_fair_part_at_once() -> None:
    """It is held back by what its namespace lets it have, and that is what it had."""
    pushed = {own(T1): Rates(100, -1), NAMESPACE: Rates(5, -1)}
    made = plan(GROUP, published("b1", (T1, 100), (T2, 5)), pushed)
    assert msgs(made) == {T1: 73.17, T2: 26.83}


def test_a_topic_without_traffic_keeps_its_limit_for_some_rounds() -> None:
    """Then it is a newcomer again; so is one that uses less than half of what a newcomer may."""
    planner, pushed = Planner(), {own(T1): Rates(50, -1), NAMESPACE: Rates(5, -1)}
    for _ in range(2):
        assert own(T1) in plan(GROUP, published("b1", (T1, 1)), pushed, None, planner).held
    assert own(T1) not in plan(GROUP, {}, pushed, None, planner).held


def test_a_topic_that_nobody_has_told_of_keeps_its_limit() -> None:
    """Its broker does not answer the collector, and may serve its clients: it is no newcomer."""
    planner, pushed = Planner(), {own(T1): Rates(50, -1), NAMESPACE: Rates(5, -1)}
    unheard = frozenset({(f"{T1}-partition-0", "")})
    for _ in range(5):
        assert own(T1) in plan(GROUP, {}, pushed, None, planner, unheard=unheard).held
    assert plan({}, {}, pushed, None, planner, unheard=unheard).held == set()


def test_a_topic_that_nobody_has_told_of_since_the_start_keeps_its_limit() -> None:
    """Its broker has not answered this run of the collector yet; one that is told to be idle is."""
    planner, pushed = Planner(), {own(T1): Rates(50, -1), own(T2): Rates(50, -1)}
    counts = published("b2", (T2, 0))
    held = [plan(GROUP, counts, pushed, None, planner, whole=False).held for _ in range(3)]
    assert [len(each) for each in held] == [2, 2, 1] and held[-1] == {own(T1)}


@pytest.mark.parametrize("whole", [True, False])
def test_newcomers_of_a_namespace_that_nobody_has_told_of_stay_limited(whole: bool) -> None:
    """By the group of its tenant: while its broker did not answer they had no limit at all."""
    entries = {"resourcegroups.g": {"publishRateInMsgs": 100}, "tenants.a": {"resourcegroup": "g"}}
    unheard = frozenset({(T1, "")}) if whole else frozenset[tuple[str, str]]()
    planner, pushed = Planner(), {NAMESPACE: Rates(5, -1)}
    made = plan(entries, {}, pushed, None, planner, unheard=unheard, whole=whole)
    assert made.wanted == {NAMESPACE: LimiterRate(5.0, None, True)}
    assert plan({}, {}, pushed, None, planner, unheard=unheard, whole=whole).wanted == {}


@pytest.mark.parametrize(
    "entries", [{}, {**GROUP, "resourcegroups.g": {"publishRateInMsgs": 100, "shadow": True}}]
)
def test_without_its_policy_a_limit_goes_at_once(entries: Mapping[str, Any]) -> None:
    """Also where the group is on trial: nobody acts on that."""
    made = plan(entries, published("b1", (T1, 500)), {own(T1): Rates(50, -1), NAMESPACE: Rates(5, -1)})
    assert (made.wanted, made.held) == ({}, set())


def test_a_silent_job_leaves_everything_as_it_is() -> None:
    """A share whose life is over is neither enlarged nor taken away."""
    shares = shares_of(until_ms=-1, b1=60.0)
    made = plan(GROUP, published("b1", (T1, 80)), {own(T1): Rates(60, -1)}, shares)
    assert made.held == {own(T1)} and own(T1) not in made.wanted


def test_where_others_have_shares_a_broker_waits_for_its_own() -> None:
    """Until then its topics are newcomers."""
    shares = Shares()
    shares.take("g", "proxy-1", {"publishRateInMsgs": 100.0}, 1, ours=False)
    assert list(plan(GROUP, published("b1", (T1, 80)), None, shares).wanted) == [NAMESPACE]


def test_bytes_and_messages_are_in_one_limiter_dispatch_in_another() -> None:
    """Each dimension is divided by itself."""
    group = {"publishRateInMsgs": 100, "publishRateInBytes": 500, "dispatchRateInBytes": 300}
    counts = {
        **published("b1", (T1, 80)),
        Place("b1", T1, "s1"): (0, 0, 5, 2_000),
        Place("b1", T1, "s2"): (0, 0, 0, 9),
    }
    made = plan({**GROUP, "resourcegroups.g": group}, counts)
    assert made.wanted[own(T1)] == LimiterRate(100.0, 500.0)
    assert made.wanted[own(T1, Kind.DISPATCH)] == LimiterRate(None, 300.0)
    assert made.pools["g"].counts == {"b1": (80, 800, 5, 2_009)}


RATE = {"dispatchThrottlingRateInMsg": 50, "ratePeriodInSecond": 5}


def test_dispatch_rates_of_policies_are_pushed_as_they_are() -> None:
    """With their periods; of namespaces, topics and subscriptions."""
    entries = {
        "namespaces.a/b": {"subscriptionDispatchRate": RATE},
        f"topics.{T1}": {"dispatchRate": RATE, "subscriptions": {"s": {"dispatchRate": RATE}}},
    }
    wanted = LimiterRate(10.0, None, True, 5)
    assert plan(entries, {}).wanted == {
        Slot("a/b", "", "", Kind.SUBSCRIPTION): wanted,
        own(T1, Kind.DISPATCH): wanted,
        own(T1, Kind.SUBSCRIPTION, "s"): wanted,
    }


def test_a_topics_own_limit_holds_what_its_namespaces_would() -> None:
    """Pulsar does not add them up: the nearest one alone counts."""
    entries = {
        "resourcegroups.g": {"dispatchRateInMsgs": 100},
        "namespaces.a/b": {"resourcegroup": "g", "dispatchRate": RATE},
    }
    made = plan(entries, {Place("b1", T1, "s"): (0, 0, 80, 0)})
    assert made.wanted[own(T1, Kind.DISPATCH)] == LimiterRate(10.0, None, False, 5)
    assert made.wanted[Slot("a/b", "", "", Kind.DISPATCH)] == LimiterRate(5.0, None, True, 5)


def test_a_rate_across_brokers_is_shared_out_for_each_subscription() -> None:
    """Its shares are those of a group of its own; without one it holds at each broker."""
    rate = {"dispatchThrottlingRateInMsg": 100, "across_brokers": True}
    entries = {"namespaces.a/b": {"subscriptionDispatchRate": rate}}
    group = f"dispatch/{T1}/s"
    shares = shares_of(group, "dispatchRateInMsgs", b1=30.0, b2=70.0)
    counts: dict[Place, Counts] = {
        Place("b1", f"{T1}-partition-0", "s"): (0, 0, 60, 0),
        Place("b2", f"{T1}-partition-1", "s"): (0, 0, 60, 0),
    }
    made = plan(entries, counts, None, shares)
    assert made.pools[group].counts == {"b1": (0, 0, 60, 0), "b2": (0, 0, 60, 0)}
    assert made.wanted[own(T1, Kind.SUBSCRIPTION, "s")] == LimiterRate(50.0, None)
    assert made.wanted[Slot("a/b", "", "", Kind.SUBSCRIPTION)] == LimiterRate(100.0, None, True, 1)


def test_tracked_pulsar_holds_nothing_of_ours() -> None:
    """What passes is still counted by its group."""
    entries = {**GROUP, "topics." + T1: {"dispatchRate": {"dispatchThrottlingRateInMsg": 5}}}
    assert plan(entries, published("b1", (T1, 500))).wanted
    made = plan({**entries, "mode": "track"}, published("b1", (T1, 500)), {own(T1): Rates(40, -1)})
    assert not made.wanted and not made.held and list(made.pools) == ["g"]
