"""Properties of the backlog law, for any report: plans hold and are the least that does."""

from typing import Any

from event_kit import T0, Event, backlog, quotas
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries
from usage_kit import fold, judged, reloaded, replay, timeline_of

from streaming.laws.backlog.table import BacklogTable
from streaming.laws.law import LawState

Json = dict[str, Any]


@st.composite
def reports(draw: st.DrawFn, number: int = 0) -> Event:
    """A topic of some ledgers, empty and heavy ones among them; subscriptions anywhere, listed or not."""
    ids = sorted(draw(st.lists(st.integers(5, 30), min_size=1, max_size=6, unique=True)))
    ledgers = []
    for place, name in enumerate(ids):
        entries = draw(st.integers(0, 12))
        size = draw(st.sampled_from([0, 1, 7, 100, 1001, 2**40])) * entries + draw(st.integers(0, 3))
        closed = T0 - draw(st.integers(0, 100_000)) if place < len(ids) - 1 else None
        ledgers.append({"id": name, "entries": entries, "size": size if entries else 0, "closeTime": closed})
    subscriptions = [
        {
            "name": name,
            "ledger": draw(st.sampled_from(ids) | st.integers(3, 32)),
            "entry": draw(st.integers(-1, 13)),
            "durable": draw(st.integers(0, 4)) > 0,
            "oldestPublishTime": draw(st.none() | st.integers(0, 200_000).map(lambda ago: T0 - ago)),
        }
        for name in draw(st.lists(st.sampled_from("abcdef"), max_size=6, unique=True))
    ]
    topic = f"persistent://acme/orders/t{draw(st.integers(0, 2))}"
    return backlog(ledgers, *subscriptions, at_ms=number, topic=topic)


def policies_of(limit: int, precise: bool, seconds: int = -1) -> Json:
    """Both quotas for every topic of the namespace, evicting."""
    flags = {"preciseBacklogSize": precise, "preciseTimeBasedBacklogQuotaCheck": precise}
    return {"namespaces.acme/orders": quotas(limit, seconds), "broker": flags}


LIMITS = st.one_of(st.integers(0, 5000), st.sampled_from([0, 99, 100, 2**40, 2**42]))


def moved(event: Event, positions: dict[str, tuple[int, int]]) -> Event:
    """The report after subscriptions were moved."""
    subscriptions = [
        s | dict(zip(("ledger", "entry"), positions.get(s["name"], (s["ledger"], s["entry"])), strict=True))
        for s in event["subscriptions"]
    ]
    return event | {"subscriptions": subscriptions}


def evicted_step_by_step(event: Event, limit: int, precise: bool) -> tuple[dict[str, int], Event]:
    """Contract 3.5 to the letter: the oldest one, a step, and again until the size is within the limit.

    Returns:
        Entries of each subscription, and the report after them.
    """
    steps: dict[str, int] = {}
    policies = policies_of(limit, precise)
    while True:
        decision = judged(event, policies)
        if "destination_storage" not in decision["exceeded"]:
            assert decision["backlogSize"] <= limit or not steps
            return steps, event
        name = decision["oldestBacklogMessageSubscriptionName"]
        found = next(s for s in event["subscriptions"] if s["name"] == name)
        everything = [(e["id"], n) for e in event["ledgers"] for n in range(e["entries"])]
        left = [p for p in everything if p > (found["ledger"], found["entry"])]
        step = 1 if precise else sum(p[0] == left[0][0] for p in left)
        steps[name] = steps.get(name, 0) + step
        event = moved(event, {name: left[step - 1]})


@given(reports(), LIMITS, st.booleans())
@tries(150)
def test_a_plan_is_what_the_contracts_steps_come_to(event: Event, limit: int, precise: bool) -> None:
    """Always the oldest, entry by entry or ledger by ledger: the same entries of the same subscriptions."""
    decision = judged(event, policies_of(limit, precise))
    lines = {line["subscription"]: line["entries"] for line in decision["evict"]}
    final = {line["subscription"]: (line["ledger"], line["entry"]) for line in decision["evict"]}
    assert (lines, moved(event, final)) == evicted_step_by_step(event, limit, precise)


@given(reports(), LIMITS, st.booleans())
@tries(40)
def test_readers_and_the_order_of_the_report_do_not_count(event: Event, limit: int, precise: bool) -> None:
    """Only durable subscriptions hold data back, in whatever order they are reported."""
    policies = policies_of(limit, precise, 60)
    durable = [s for s in reversed(event["subscriptions"]) if s["durable"]]
    assert judged(event | {"subscriptions": durable}, policies) == judged(event, policies)


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Reports on three topics in order of time."""
    return [draw(reports(number)) for number in range(draw(st.integers(1, 6)))]


@given(histories(), LIMITS, st.integers(0, 6), st.booleans())
@tries(30)
def test_splitting_checkpoints_and_sharding_change_nothing(
    events: list[Event], limit: int, cut: int, precise: bool
) -> None:
    """A report is judged by itself and the policies of its time."""
    changes = [(2, "namespaces.acme/orders", {}), (4, "broker", {"backlogQuotaDefaultLimitBytes": 1})]
    timeline = timeline_of(policies_of(limit, precise, 10), changes)
    whole = replay(events, timeline)
    table: LawState = BacklogTable()
    found = fold(table, events[:cut], timeline)
    table = reloaded(table)
    table.sweep(timeline, T0 + cut)
    assert found + fold(table, events[cut:], timeline) == whole
    for topic in {event["topic"] for event in events}:
        mine = [event for event in events if event["topic"] == topic]
        assert replay(mine, timeline) == [decision for decision in whole if decision["topic"] == topic]
