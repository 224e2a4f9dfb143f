"""What users of Pulsar 4.0.7 run into with backlog quotas, and what the law decides instead.

Each test names the defect in its docstring. What concerns collectors, metrics and the brokers' threads is not
for the law to have or not to have (PIP-323; docs/contract.md 3.5).
"""

from fractions import Fraction
from typing import Any

import pytest
from event_kit import EVICT, T0, ledger, quotas, subscription
from event_kit import backlog as report
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries
from usage_kit import fold, judged, reloaded, timeline_of

from streaming.contract.errors import BadEvent
from streaming.laws.backlog.table import BacklogTable
from streaming.policy.files import check_entry

HOLD, REFUSE = "producer_request_hold", "producer_exception"
NAMESPACE = "namespaces.acme/orders"
Json = dict[str, Any]


def by_size(limit: int, policy: str = EVICT) -> Json:
    """A quota of size alone."""
    return {NAMESPACE: quotas(limit, None, policy)}


def by_age(limit: int, policy: str = EVICT) -> Json:
    """A quota of time alone."""
    return {NAMESPACE: quotas(None, limit, policy)}


def test_a_last_ledger_that_is_closed_is_evicted_once() -> None:
    """At each check the cursor failed to be set behind it, for ever, and each time counted as an eviction."""
    last = ledger(7, 20, 2_000, closed_ago_ms=20_000)
    before = judged(report([last], subscription("slow", 7, -1, 25_000)), by_age(10))
    assert before["exceeded"] == ["message_age"]
    assert before["evict"] == [{"subscription": "slow", "before_publish_time": T0 - 10_000}]
    # All of it was older, so all is acknowledged; then there is nothing to do, now and later.
    for at_ms in (5_000, 500_000):
        after = judged(report([last], subscription("slow", 7, 19), at_ms=at_ms), by_age(10))
        assert (after["exceeded"], after["actions"], after["evict"]) == ([], [], [])


def test_a_last_ledger_that_is_closed_goes_by_size_too() -> None:
    """The last entry that there is can be named, whatever comes behind it."""
    decision = judged(report([ledger(7, 20, 2_000, 1)], subscription("slow", 7, -1)), by_size(0))
    assert decision["evict"] == [{"subscription": "slow", "ledger": 7, "entry": 19, "entries": 20}]


@pytest.mark.parametrize("kind", ["destination_storage", "message_age"])
def test_a_quota_without_a_limit_is_refused(kind: str) -> None:
    """A policy alone was stored with the limit 0 and blocked all producers at once."""
    with pytest.raises(BadEvent, match="is missing"):
        check_entry(NAMESPACE, {"backlogQuotaMap": {kind: {"policy": REFUSE}}})


def test_an_absent_quota_limits_nothing() -> None:
    """Of the type that is not set the limit was 0, which every backlog exceeds."""
    behind = report([ledger(1, 10, 10**9, 10**7)], subscription("slow", 1, -1, 10**7))
    for policies, size, age in (
        (by_age(10**6), -1, 10**6),
        (by_size(2 * 10**9), 2 * 10**9, -1),
        ({}, -1, -1),
    ):
        decision = judged(behind, policies)
        assert (decision["backlogQuotaLimitSize"], decision["backlogQuotaLimitTime"]) == (size, age)
        assert decision["exceeded"] == []


@pytest.mark.parametrize("precise", [False, True])
def test_without_a_backlog_the_age_does_not_grow(precise: bool) -> None:
    """The age of what was read long ago went on for ever; it lives no longer than its backlog."""
    ledgers = [ledger(1, 10, 1_000, 60_000), ledger(2, 0, 0)]
    policies = by_age(10) | {"broker": {"preciseTimeBasedBacklogQuotaCheck": precise}}
    table = BacklogTable()
    (behind,) = fold(table, [report(ledgers, subscription("s", 1, -1, 90_000))], timeline_of(policies))
    assert behind["oldestBacklogMessageAgeSeconds"] == (90 if precise else 60)
    for at_ms in (60_000, 3_600_000):
        # As a reporter may still know of the message that was read meanwhile.
        caught_up = subscription("s", 1, 9, 90_000)
        told = fold(reloaded(table), [report(ledgers, caught_up, at_ms=at_ms)], timeline_of(policies))
        assert told[0]["oldestBacklogMessageAgeSeconds"] == -1
        assert told[0]["oldestBacklogMessageSubscriptionName"] is None
        assert (told[0]["backlogSize"], told[0]["exceeded"]) == (0, [])


def test_both_types_at_once_are_both_planned() -> None:
    """The check of the time was skipped as long as the size was exceeded."""
    ledgers = [ledger(1, 10, 1_000, 60_000), ledger(2, 10, 1_000)]
    subscriptions = subscription("slow", 1, -1, 90_000), subscription("mid", 2, 4, 45_000)
    decision = judged(report(ledgers, *subscriptions), {NAMESPACE: quotas(1_500, 30)})
    assert decision["exceeded"] == ["destination_storage", "message_age"]
    assert [action["quota_type"] for action in decision["actions"]] == ["size", "time"]
    assert decision["evict"] == [
        {"subscription": "slow", "ledger": 1, "entry": 9, "entries": 10},
        {"subscription": "mid", "before_publish_time": T0 - 30_000},
        {"subscription": "slow", "before_publish_time": T0 - 30_000},
    ]


@pytest.mark.parametrize("size", [0, 500])
def test_the_type_of_time_is_not_ignored(size: int) -> None:
    """A quota of time alone, or beside one of size that holds, did nothing."""
    event = report([ledger(1, 10, size, 60_000)], subscription("slow", 1, -1, 90_000))
    size_that_holds = quotas(500, None, HOLD)["backlogQuotaMap"]
    beside = {"backlogQuotaMap": size_that_holds | quotas(None, 30, REFUSE)["backlogQuotaMap"]}
    for policies in (by_age(30, REFUSE), {NAMESPACE: beside}):
        decision = judged(event, policies)
        assert decision["actions"] == [{"quota_type": "time", "policy": REFUSE}]


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Json], list[Json]]:
    """Ledgers and subscriptions of small numbers, so that all cuts of a log can be tried."""
    counts = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    ledgers = [
        ledger(
            2 * place + 1, count, count and draw(st.integers(0, 50)), None if place + 1 == len(counts) else 1
        )
        for place, count in enumerate(counts)
    ]
    subscriptions = [
        subscription(
            name, draw(st.integers(0, 2 * len(counts))), draw(st.integers(-1, 4)), durable=name != "d"
        )
        for name in draw(st.lists(st.sampled_from("abcd"), max_size=4, unique=True))
    ]
    return ledgers, subscriptions


def acknowledged(ledgers: list[Json], position: Json) -> int:
    """How many entries of the whole log a position acknowledges."""
    return sum(
        (one["id"], number) <= (position["ledger"], position["entry"])
        for one in ledgers
        for number in range(one["entries"])
    )


def left_bytes(ledgers: list[Json], done: int, precise: bool) -> Fraction:
    """The size of a backlog behind so many entries of the log, entry by entry as the contract says it."""
    entries = [
        (one["id"], Fraction(one["size"], one["entries"])) for one in ledgers for _ in range(one["entries"])
    ]
    if done >= len(entries):
        return Fraction(0)
    first = entries[done][0]
    return sum(
        (
            size
            for number, (id_, size) in enumerate(entries)
            if number >= done or (not precise and id_ == first)
        ),
        Fraction(0),
    )


@given(logs(), st.integers(0, 120), st.booleans())
@tries(300)
def test_a_plan_takes_nothing_younger_than_it_must(
    log: tuple[list[Json], list[Json]], limit: int, precise: bool
) -> None:
    """Of all places at which a log can be cut, the earliest that brings every durable subscription inside."""
    ledgers, subscriptions = log
    done = {one["name"]: acknowledged(ledgers, one) for one in subscriptions if one["durable"]}
    ends = [0]
    for one in ledgers:
        ends.append(ends[-1] + one["entries"])
    cut = next(
        cut
        for cut in (range(ends[-1] + 1) if precise else ends)
        if all(left_bytes(ledgers, max(cut, place), precise) <= limit for place in done.values())
    )
    policies = by_size(limit) | {"broker": {"preciseBacklogSize": precise}}
    decision = judged(report(ledgers, *subscriptions), policies)
    lines = {line["subscription"]: line for line in decision["evict"]}
    assert {name: line["entries"] for name, line in lines.items()} == {
        name: cut - place for name, place in done.items() if place < cut
    }
    # The place that is named acknowledges exactly these.
    assert {acknowledged(ledgers, line) for line in lines.values()} <= {cut}


@given(st.lists(st.none() | st.integers(-5_000, 200_000), max_size=5), st.integers(1, 150))
@tries(100)
def test_a_plan_by_age_takes_nothing_younger_than_its_limit(ages: list[int | None], seconds: int) -> None:
    """Whoever is too old loses what is older than the limit and no more; who is not is not named."""
    names = [subscription(f"s{number}", 1, 0, ago) for number, ago in enumerate(ages)]
    policies = by_age(seconds) | {"broker": {"preciseTimeBasedBacklogQuotaCheck": True}}
    decision = judged(report([ledger(1, 5, 50)], *names), policies)
    oldest = decision["oldestBacklogMessageAgeSeconds"]
    expected = [
        name["name"]
        for name, ago in zip(names, ages, strict=True)
        if ago is not None and ago > seconds * 1_000
    ]
    assert [line["subscription"] for line in decision["evict"]] == (expected if oldest > seconds else [])
    assert {line["before_publish_time"] for line in decision["evict"]} <= {T0 - seconds * 1_000}
