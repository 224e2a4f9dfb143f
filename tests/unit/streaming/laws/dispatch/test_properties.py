"""Properties of the dispatch law: how much can be delivered, and what must never change a decision."""

from dispatch_policies import TOPICS, histories
from event_kit import T0, Event
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries
from usage_kit import decide

from streaming.laws.dispatch import law
from streaming.laws.dispatch.table import DispatchTable
from streaming.policy.dispatch_limits import NO_LIMIT, limit_of
from streaming.policy.policy_set import PolicySet
from streaming.policy.timeline import PolicyTimeline


@tries(80)
@given(histories())
def test_decisions_are_sound(history: tuple[list[Event], PolicyTimeline]) -> None:
    """One decision an event; it says when to wait and for whom exactly if nothing is available."""
    events, timeline = history
    decided = decide(DispatchTable(), events, timeline)
    assert [decision["id"] for decision in decided] == [event["id"] for event in events]
    for decision in decided:
        limited = [left for left in decision["available"].values() if left is not None]
        throttled = 0 in limited
        assert throttled == (decision["throttle_time_ms"] > 0) == (decision["limited_by"] is not None)
        assert (decision["entries_to_read"] is None) == (not limited)
        assert throttled == (decision["entries_to_read"] == 0)


@tries(60)
@given(
    st.integers(1, 20),
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 60)), min_size=1, max_size=30),
)
def test_delivered_in_n_periods(limit: int, period_s: int, attempts: list[tuple[int, int]]) -> None:
    """Who delivers only while something is available stays within the limit times n and one over-delivery.

    Over any n periods: a delivery may be of any size, since its size is known only once it is read.
    """
    rate = {"dispatchThrottlingRateInMsg": limit, "ratePeriodInSecond": period_s}
    timeline = PolicyTimeline({"namespaces.acme/a": {"subscriptionDispatchRate": rate}})
    table, at, delivered = DispatchTable(), T0, dict[int, list[int]]()
    for gap, size in attempts:
        at += gap
        ask = {"type": "dispatch_usage", "ts": at, "broker": "b", "topic": TOPICS[0], "subscription": "s"}
        nothing = {"msgs": 0, "bytes": 0, "entries": 0, "backlog": True}
        (asked,) = decide(table, [ask | nothing], timeline)
        assert asked["available"]["msgs"] <= limit
        if not asked["throttle_time_ms"]:
            decide(table, [ask | nothing | {"msgs": size, "entries": size}], timeline)
            delivered.setdefault(at // (period_s * 1000), []).append(size)
    periods = sorted(delivered)
    for first in range(len(periods)):
        for last in range(first, len(periods)):
            sizes = [size for period in periods[first : last + 1] for size in delivered[period]]
            spanned = periods[last] - periods[first] + 1
            assert sum(sizes) <= limit * spanned + max(sizes)


@tries(40)
@given(histories())
def test_wait_is_exact(history: tuple[list[Event], PolicyTimeline]) -> None:
    """After its throttle time, and not a millisecond before, something is available again."""
    events, timeline = history
    timeline = PolicyTimeline(timeline.at(T0).entries)
    last = decide(DispatchTable(), events, timeline)[-1]
    wait = last["throttle_time_ms"]
    # A subscription forgets its averages after an hour, but never what it owes.
    for early in (1, 0) if wait else ():
        poll: Event = {**events[-1], "ts": last["ts"] + wait - early, "id": "poll"}
        poll |= {"msgs": 0, "bytes": 0, "entries": 0}
        (polled,) = [d for d in decide(DispatchTable(), [*events, poll], timeline) if d["id"] == "poll"]
        assert polled["throttle_time_ms"] == early


class Tail:
    """What a proxy makes of statements and of the deliveries after them, with the law's own steps."""

    def __init__(self, policies: PolicySet) -> None:
        self.policies = policies
        self.counters: dict[tuple[str, ...], tuple[list[int], int]] = {}

    def hear(self, decision: Event) -> None:
        """Take the state that a decision tells, as of its time."""
        for level, counts in decision["acquired"].items():
            self.counters[names_of(decision, level)] = [counts["msgs"], counts["bytes"]], decision["ts"]

    def walk(self, event: Event) -> Event:
        """Go on by a delivery whose decision is not read; the state that the decision tells."""
        broker = self.policies.entries.get("broker", {})
        units = event["entries" if broker.get("dispatchThrottlingOnBatchMessageEnabled") else "msgs"]
        charged = event["backlog"] or broker.get("dispatchThrottlingOnNonBacklogConsumerEnabled", True)
        state: Event = {}
        for level in law.LEVELS:
            names = names_of(event, level)
            limit = limit_of(self.policies, names)
            if limit == NO_LIMIT:
                continue
            before, since = self.counters.get(names, ([0, 0], event["ts"]))
            after = []
            for count, rate, more in zip(before, limit.rate, (units, event["bytes"]), strict=True):
                rolled = law.rolled(count, rate, limit.period_ms, since, event["ts"])
                after.append(law.added(rolled, more) if charged and rate else rolled)
            self.counters[names] = after, event["ts"]
            state[level] = dict(zip(law.DIMENSIONS, after, strict=True))
        return state


def names_of(event: Event, level: str) -> tuple[str, ...]:
    return tuple(event[each] for each in law.LEVELS[: law.LEVELS.index(level) + 1])


@tries(80)
@given(histories(), st.data())
def test_a_statement_and_the_tail_after_it_are_the_law(
    history: tuple[list[Event], PolicyTimeline], data: st.DataObject
) -> None:
    """Of any two proxies: who has read up to any decision and walks on has the job's own state."""
    events, timeline = history
    policies = timeline.at(T0)
    events = [event | {"proxy": data.draw(st.sampled_from(["p1", "p2"]))} for event in events]
    decided = decide(DispatchTable(), events, PolicyTimeline(policies.entries))
    read = data.draw(st.integers(0, len(events)))
    tail = Tail(policies)
    for decision in decided[:read]:
        tail.hear(decision)
    for event, decision in zip(events[read:], decided[read:], strict=True):
        assert tail.walk(event) == decision["acquired"]
        assert decision["proxy"] == event["proxy"]
