"""Properties of the backlog law, for any report: plans hold and are the least that does."""

from broker_histories import LIMITS, policies_of, reports
from event_kit import Event
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries
from usage_kit import judged


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
