"""The law of dispatch: the numbers of docs/contract.md 3.3 and docs/protocol_notes.md 4.5."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from event_kit import T0, TOPIC, Event, delivery
from pack_kit import json_records, stepped
from usage_kit import batch_of, decide

from streaming.laws.dispatch import table as dispatch_table
from streaming.laws.dispatch.law import COUNT_MAX
from streaming.laws.dispatch.table import DispatchTable
from streaming.laws.law import Decision
from streaming.policy.dispatch_limits import Limit
from streaming.policy.policy_set import PolicySet
from streaming.policy.timeline import PolicyTimeline

HOUR = 3_600_000
NAMESPACE = "namespaces.acme/orders"


def rate(msgs: int = -1, size: int = -1, period_s: int = 1) -> dict[str, int]:
    return {
        "dispatchThrottlingRateInMsg": msgs,
        "dispatchThrottlingRateInByte": size,
        "ratePeriodInSecond": period_s,
    }


def subscription_rate(msgs: int = -1, size: int = -1, period_s: int = 1) -> dict[str, Any]:
    return {NAMESPACE: {"subscriptionDispatchRate": rate(msgs, size, period_s)}}


TEN = subscription_rate(10)


def run(policies: dict[str, Any], *events: Event) -> list[Decision]:
    return decide(DispatchTable(), events, PolicyTimeline(policies))


def left(decisions: list[Decision], dimension: str = "msgs") -> list[int | None]:
    return [decision["available"][dimension] for decision in decisions]


@pytest.mark.parametrize(
    ("policies", "sent", "expected"),
    [
        (TEN, [11, 0, 0], [0, 9, 10]),  # the documentation's 11
        (TEN, [30, 0, 0, 0], [0, 0, 0, 10]),  # the documentation's 30: two silent periods
        (TEN, [60, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 10]),
        (TEN, [4, 0, 12, 0], [6, 10, 0, 8]),  # idle credit is not carried: 10, not 16
        (TEN, [10, 0], [0, 10]),  # exactly the limit: nothing available, no debt
    ],
)
def test_periods(policies: dict[str, Any], sent: list[int], expected: list[int]) -> None:
    """What is available after each second's delivery (docs/protocol_notes.md 4.5)."""
    assert left(run(policies, *(delivery(1000 * n, msgs) for n, msgs in enumerate(sent)))) == expected


def test_bytes_by_entries() -> None:
    """1,000 B/s in entries of 134 B: 8, 7, 8, 7 entries (docs/protocol_notes.md 4.5)."""
    events, plans, at = [], [], 0
    for sent in (0, 8, 7, 8, 7):
        events.append(delivery(at, sent, sent * 134, avg_publish_entry_bytes=134))
        decided = run(subscription_rate(size=1000), *events, delivery(at + 999))
        plans.append(decided[-2]["available"]["bytes"])
        at += 1000
    assert plans == [1000, 0, 0, 0, 0]
    decided = run(subscription_rate(size=1000), *events, delivery(5000, avg_publish_entry_bytes=134))
    assert left(decided, "bytes")[-1] == 980
    assert decided[-1]["entries_to_read"] == 7


def test_precise_flow_control_reads_two_entries() -> None:
    """Pulsar's documentation: with 10 per second and 6 messages an entry 2 entries are read, and not 10."""
    policies = TEN | {"broker": {"preciseDispatcherFlowControl": True}}
    decided = run(
        policies, delivery(0, 6, entries=1), delivery(1000, 12, entries=2), delivery(2000, 12, entries=2),
        delivery(3000),
    )  # fmt: skip
    assert [decision["entries_to_read"] for decision in decided] == [1, 0, 0, 1]
    assert left(decided) == [4, 0, 0, 6]
    plain = run(TEN, delivery(0, 6, entries=1), delivery(1000))
    assert plain[1]["entries_to_read"] == 10


def test_batch_counting_counts_entries() -> None:
    """With dispatchThrottlingOnBatchMessageEnabled 10 entries are 10, however many messages they hold."""
    both = {"dispatchThrottlingOnBatchMessageEnabled": True, "preciseDispatcherFlowControl": True}
    (decision,) = run(TEN | {"broker": both}, delivery(0, 54, entries=9))
    assert (decision["available"]["msgs"], decision["entries_to_read"]) == (1, 1)


@pytest.mark.parametrize(
    ("backlog", "charging", "expected"), [(True, False, 0), (False, True, 0), (False, False, 10)]
)
def test_caught_up_consumers(backlog: bool, charging: bool, expected: int) -> None:
    """Without a backlog nothing is charged if the flag says so, but the averages go on."""
    flags = {"dispatchThrottlingOnNonBacklogConsumerEnabled": charging, "preciseDispatcherFlowControl": True}
    events = [delivery(0, 50, entries=10, backlog=backlog), delivery(900)]
    decided = run(TEN | {"broker": flags}, *events)
    assert left(decided) == [expected, expected]
    assert decided[1]["entries_to_read"] == (2 if expected else 0)
    events = [delivery(0, size=50, entries=1, backlog=backlog)]
    by_size = run(subscription_rate(size=10) | {"broker": flags}, *events)
    assert left(by_size, "bytes") == [expected]


@pytest.mark.parametrize(
    ("seen", "published", "expected"),
    [
        (delivery(0), None, 1),  # no mean at all: exactly one entry
        (delivery(0, 2, 500), None, 2),  # mean dispatched 250
        (delivery(0, 2, 500), 100, 5),  # mean published first
        (delivery(0, 2, 500), 0.3, 1666),
        (delivery(0, 2, 500), 501, 1),  # at least one
        (delivery(0, 0, 500), None, 1),  # bytes without entries
        (delivery(0, 5, 0), None, 1),  # entries without bytes
    ],
)
def test_entries_by_bytes(seen: Event, published: float | None, expected: int) -> None:
    """The order in which Pulsar's documentation looks for a mean size of an entry."""
    more = {} if published is None else {"avg_publish_entry_bytes": published}
    decided = run(subscription_rate(size=1000), seen, delivery(1, **more))
    assert decided[1]["entries_to_read"] == (expected if seen["bytes"] else min(expected, 1000))


def test_all_levels_apply_together() -> None:
    """The smallest of broker, topic and subscription is available; who frees last is named."""
    policies = {
        "broker": {"dispatchThrottlingRateInMsg": 20},
        NAMESPACE: {"dispatchRate": rate(msgs=8), "subscriptionDispatchRate": rate(msgs=5, size=10_000)},
    }
    decided = run(
        policies, delivery(0, 4), delivery(1, 3, subscription="sub2"), delivery(2, 1),
        delivery(3, 20, topic="persistent://acme/other/t", subscription="x"), delivery(4),
    )  # fmt: skip
    assert left(decided) == [1, 1, 0, 0, 0]
    assert left(decided, "bytes") == [10_000, 10_000, 10_000, None, 10_000]
    limited = [decision["limited_by"] and decision["limited_by"]["level"] for decision in decided]
    # 28 of the broker's 20 and 8 of the topic's 8: the first free again at the end of this second.
    assert limited == [None, None, "topic", "broker", "broker"]


def test_counters_are_kept_per_broker() -> None:
    """Two brokers that deliver the same topic each have the whole rate."""
    assert left(run(TEN, delivery(0, 10), delivery(1, broker="b2"))) == [0, 10]


def test_precedence_of_rates() -> None:
    """A subscription's own rate, then topic, namespace, broker; one that sets no rate is passed over."""
    policies: dict[str, Any] = {
        "broker": {"dispatchThrottlingRatePerSubscriptionInMsg": 1},
        NAMESPACE: {"subscriptionDispatchRate": rate(msgs=2)},
        f"topics.{TOPIC}": {
            "subscriptionDispatchRate": rate(msgs=-1),
            "subscriptions": {"own": {"dispatchRate": {"dispatchThrottlingRateInByte": 3}}},
        },
    }
    other = "persistent://acme/other/t"
    decided = run(policies, delivery(0), delivery(1, subscription="own"), delivery(2, topic=other))
    assert [decision["available"] for decision in decided] == [
        {"msgs": 2, "bytes": None},
        {"msgs": None, "bytes": 3},
        {"msgs": 1, "bytes": None},
    ]


@pytest.fixture
def timeline() -> PolicyTimeline:
    """Ten messages a second."""
    return PolicyTimeline(TEN)


def test_debt_outlives_a_change_of_rate(timeline: PolicyTimeline) -> None:
    """Periods before a change are paid at the old rate, those after it at the new one."""
    timeline.apply(NAMESPACE, subscription_rate(20)[NAMESPACE], T0 + 2500)
    decided = decide(
        DispatchTable(), [delivery(0, 75), delivery(2000), delivery(4000), delivery(5000)], timeline
    )
    # 75 - 10 - 10 = 55, then - 20 - 20 = 15 of 20, then nothing.
    assert left(decided) == [0, 0, 5, 20]
    assert [decision["throttle_time_ms"] for decision in decided] == [7000, 5000, 0, 0]
    whole = decide(DispatchTable(), [delivery(0, 75), delivery(4000)], timeline)
    assert left(whole)[-1] == 5


def test_period_that_ends_at_a_change_is_paid_at_the_new_rate(timeline: PolicyTimeline) -> None:
    """Policies come first at their time, so that boundary is already theirs."""
    timeline.apply(NAMESPACE, subscription_rate(20)[NAMESPACE], T0 + 1000)
    assert left(decide(DispatchTable(), [delivery(0, 25), delivery(1000)], timeline)) == [0, 15]
    assert left(decide(DispatchTable(), [delivery(0, 35), delivery(2000)], timeline)) == [0, 20]


def test_sweep_settles_changes_before_they_are_forgotten(timeline: PolicyTimeline) -> None:
    """What a debt was paid before a change stays paid when the timeline no longer knows the old rate."""
    timeline.apply(NAMESPACE, subscription_rate(1)[NAMESPACE], T0 + 5500)
    table = DispatchTable()
    decide(table, [delivery(0, 52)], timeline)
    table.sweep(timeline, T0 + 6000)
    timeline.forget_before(T0 + 6000)
    # 52 - 5 * 10 = 2, then - 1 at T0 + 6 s.
    (decision,) = decide(table, [delivery(6000)], timeline)
    assert decision["throttle_time_ms"] == 1000
    # A delivery from before the time that is settled does not bring anything back.
    table.sweep(timeline, T0 + 6000)
    late = decide(table, [delivery(100)], timeline)[0]
    assert late["throttle_time_ms"] == 1000


def test_late_delivery_after_a_sweep(timeline: PolicyTimeline) -> None:
    """A delivery older than what was settled is taken at the settled time: a debt that is paid stays paid."""
    timeline.apply("tenants.acme", {"resourcegroup": "rg1"}, T0 + 5500)
    table = DispatchTable()
    decide(table, [delivery(0, 30)], timeline)
    table.sweep(timeline, T0 + 6000)
    assert left(decide(table, [delivery(100)], timeline)) == [10]


def test_changes_are_free_without_debts(timeline: PolicyTimeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of rows that rest are not worked out for each change, in a sweep or when they wake."""
    table, limit_of, asked = DispatchTable(), dispatch_table.limit_of, list[int]()
    decide(table, [delivery(0, 11), delivery(1, 1, topic="persistent://acme/orders/t2")], timeline)
    for number in range(5):
        timeline.apply(NAMESPACE, subscription_rate(20)[NAMESPACE], T0 + 60_000 + number)

    def counted(policies: PolicySet, names: tuple[str, ...]) -> Limit:
        asked.append(policies.version)
        return limit_of(policies, names)

    monkeypatch.setattr(dispatch_table, "limit_of", counted)
    table.sweep(timeline, T0 + 70_000)
    assert not asked and not table.state["acquired"].any()
    assert left(decide(table, [delivery(80_000, 3)], timeline)) == [17]
    assert asked == [6] * 3


def test_lifted_limit_forgives(timeline: PolicyTimeline) -> None:
    """While nothing limits nothing is counted: a limit set again starts at 0."""
    timeline.apply(NAMESPACE, None, T0 + 500)
    timeline.apply(NAMESPACE, TEN[NAMESPACE], T0 + 700)
    assert left(decide(DispatchTable(), [delivery(0, 75), delivery(800)], timeline)) == [0, 10]


def test_time_of_a_broker_never_goes_back() -> None:
    """A late delivery is taken at the broker's newest time and keeps its own in the decision."""
    table, timeline = DispatchTable(), PolicyTimeline(TEN)
    decide(table, [delivery(1000, 11)], timeline)
    decide(table, [delivery(2000, topic="persistent://acme/orders/t2")], timeline)
    (decision,) = decide(table, [delivery(900)], timeline)
    assert (decision["ts"], decision["available"]["msgs"]) == (T0 + 900, 9)


def test_averages_are_forgotten_after_an_hour() -> None:
    """An hour without a delivery: what entries held then says nothing now; up to that it does."""
    policies = TEN | {"broker": {"preciseDispatcherFlowControl": True}}
    for gap, entries in ((HOUR, 2), (HOUR + 1, 10)):
        assert run(policies, delivery(0, 5, entries=1), delivery(gap))[-1]["entries_to_read"] == entries


def test_idle_rows_leave_but_debts_stay() -> None:
    """A row leaves an hour after its last event if it owes nothing; a day's quota is not forgotten."""
    daily = subscription_rate(1000, period_s=86_400)
    table, timeline = DispatchTable(), PolicyTimeline(daily)
    decide(table, [delivery(0, 900)], timeline)
    table.sweep(timeline, T0 + HOUR)
    assert len(table) == 3
    table.sweep(timeline, T0 + HOUR + 1)
    assert len(table) == 1
    assert left(decide(table, [delivery(2 * HOUR)], timeline)) == [100]
    table.sweep(timeline, T0 + 90_000_000 + 2 * HOUR)
    assert len(table) == 0


def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond MAX_ROWS those idle longest start afresh, what others lie in last; at once when live."""
    monkeypatch.setattr(dispatch_table, "MAX_ROWS", 3)
    table, timeline = DispatchTable(), PolicyTimeline(TEN)
    decide(table, [delivery(0, 11), delivery(1, 11, subscription="b")], timeline)
    assert len(table) == 4, "a replay has its whole input in hand"
    for name in ("d", "e"):
        event = delivery(3, 11, subscription=name)
        table.fold(replace(batch_of([event], timeline, DispatchTable), processed_ts=T0))
        assert [orjson.loads(row)[2:] for row in table.names.to_pylist()] == [[], [], [name]]
    found = decide(table, [delivery(4, subscription="b"), delivery(5, subscription="e")], timeline)
    assert left(found) == [10, 0]


def test_who_owes_is_the_last_to_start_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is silent for long just because it owes, and would go on at its full rate."""
    monkeypatch.setattr(dispatch_table, "MAX_ROWS", 4)
    table, timeline = DispatchTable(), PolicyTimeline(TEN)
    for at, msgs, name in ((0, 900, "owes"), (1_000, 9, "paid"), (9_000, 9, "new")):
        event = delivery(at, msgs, subscription=name)
        table.fold(replace(batch_of([event], timeline, DispatchTable), processed_ts=T0))
    assert [orjson.loads(row)[2:] for row in table.names.to_pylist()] == [[], [], ["owes"], ["new"]]
    assert left(decide(table, [delivery(80_000, subscription="owes")], timeline)) == [0]


def test_huge_numbers_stay_in_bounds() -> None:
    """Counts, rates and periods at their largest neither wrap round nor raise."""
    events = [delivery(n, COUNT_MAX, COUNT_MAX, COUNT_MAX, avg_publish_entry_bytes=1e-300) for n in range(3)]
    for msgs in (1, 2**62, 10**30):
        decided = run(subscription_rate(msgs, msgs, 2**31 - 1), *events, delivery(250_000_000_000_000 - T0))
        assert all(0 <= number <= COUNT_MAX for number in left(decided) if number is not None)
        assert all(0 <= decision["throttle_time_ms"] <= COUNT_MAX for decision in decided)
        assert all(0 <= decision["entries_to_read"] <= COUNT_MAX for decision in decided)
    precise = {"broker": {"preciseDispatcherFlowControl": True}}
    few = delivery(0, 1, 1, COUNT_MAX)
    assert run(subscription_rate(2**62, 2**62) | precise, few)[0]["entries_to_read"] == COUNT_MAX


def test_a_debt_for_ever_does_not_fail_its_batch() -> None:
    """It is kept to be repeated, whatever time it ends at."""
    records = json_records([delivery(0, COUNT_MAX)])
    decisions, reasons = stepped("dispatch", [records], subscription_rate(1), live=True)
    assert (len(decisions), reasons) == (1, [])
    assert orjson.loads(decisions[0])["throttle_time_ms"] > 2**62


def test_a_delivery_of_a_proxy_is_told_the_state_of_all_counters() -> None:
    """Of every level that limits, both numbers; 0 in a dimension that does not."""
    policies = subscription_rate(10, 1000) | {"broker": {"dispatchThrottlingRateInMsg": 100}}
    first, second = run(policies, delivery(0, 11, 1100, proxy="p1"), delivery(1000, 1, 50, proxy="p2"))
    assert list(first)[:6] == ["type", "id", "ts", "proxy", "broker", "topic"]
    assert (first["proxy"], second["proxy"]) == ("p1", "p2")
    assert first["acquired"] == {
        "broker": {"msgs": 11, "bytes": 0},
        "subscription": {"msgs": 11, "bytes": 1100},
    }
    assert second["acquired"] == {
        "broker": {"msgs": 1, "bytes": 0},
        "subscription": {"msgs": 2, "bytes": 150},
    }
    (free,) = run({}, delivery(0, 11, proxy="p1"))
    assert free["acquired"] == {}


def test_only_proxies_are_told_of_counters() -> None:
    """A broker has its own; among deliveries of both each is told its own."""
    without, of_proxy = run(TEN, delivery(0, 5), delivery(1, 5, proxy="p1"))
    assert not {"proxy", "acquired", "applied_ts"} & set(without)
    assert of_proxy["acquired"] == {"subscription": {"msgs": 10, "bytes": 0}}


def test_a_decision_stands_until_all_its_counters_are_zero() -> None:
    """The topic's debt is paid after the subscription's; at least a second."""
    policies = {NAMESPACE: {"dispatchRate": rate(5, period_s=10), "subscriptionDispatchRate": rate(10)}}
    decided = run(policies, delivery(0, 0), delivery(1, 11), delivery(15_000))
    assert [decision["ttl_ms"] for decision in decided] == [1000, 29_999, 15_000]


def test_late_deliveries_say_when_they_were_applied() -> None:
    """At the newest time of their broker, in their own batch and in later ones."""
    table, timeline = DispatchTable(), PolicyTimeline(TEN)
    (first,) = decide(table, [delivery(1000, 11, proxy="p1")], timeline)
    late, fresh = decide(table, [delivery(900, 1, proxy="p2"), delivery(1001, proxy="p2")], timeline)
    assert "applied_ts" not in first and "applied_ts" not in fresh
    assert (late["ts"], late["applied_ts"]) == (T0 + 900, T0 + 1000)
    assert late["acquired"] == {"subscription": {"msgs": 12, "bytes": 0}}
