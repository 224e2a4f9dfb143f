"""Any history of resource groups, for properties of the law of shares."""

from collections.abc import Sequence

from event_kit import T0, Event, report, tick
from hypothesis import strategies as st
from usage_kit import batch_from, entry_of

from streaming.contract.usage_events import DIMENSIONS
from streaming.laws.law import Batch
from streaming.policy.timeline import PolicyTimeline

SECOND = 1000
GROUPS = ["rg1", "rg2", "quota/user=alice", "ghost"]
COUNTS = ["publishedMsg", "publishedBytes", "dispatchedMsg", "dispatchedBytes"]

rates = st.sampled_from([-1, 5, 100, 0.3, 7e9])
group_values = st.fixed_dictionaries({}, optional={name: rates for name in DIMENSIONS})
counts = st.sampled_from([0, 0, 1, 40, 50, 1000, 2**40])
usages = st.fixed_dictionaries(
    {name: counts for name in COUNTS},
    optional={"throttledMs": st.dictionaries(st.sampled_from(DIMENSIONS), st.sampled_from([0, 50, 900]))},
)
POLICY_VALUES = {
    "resourcegroups.rg1": st.none() | group_values,
    "resourcegroups.rg2": group_values,
    "quotas[user=<default>]": st.fixed_dictionaries({"producer_byte_rate": rates}),
    "broker": st.fixed_dictionaries(
        {
            "resourceUsagePublishIntervalInSecs": st.sampled_from([1, 2, 3]),
            "resourceUsageMemberExpiryRounds": st.sampled_from([1, 2, 4]),
        }
    ),
}


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Event], PolicyTimeline]:
    """Reports of several groups, ticks, some too late, under policies that change."""
    timeline = PolicyTimeline({path: draw(values) or {} for path, values in POLICY_VALUES.items()})
    events: list[Event] = []
    now = T0
    for number in range(draw(st.integers(1, 25))):
        now += draw(st.sampled_from([0, 1, 300, 999, 1000, 2500, 9000]))
        kind = draw(st.sampled_from(["report"] * 6 + ["late", "tick", "policy"]))
        if kind == "policy":
            path = draw(st.sampled_from(sorted(POLICY_VALUES)))
            timeline.apply(path, draw(POLICY_VALUES[path]), now + draw(st.sampled_from([0, 1500])))
        elif kind == "tick":
            events.append(tick(now - T0))
        else:
            late = draw(st.sampled_from([500, 2000, 7000])) if kind == "late" else 0
            usage = draw(st.dictionaries(st.sampled_from(GROUPS), usages, min_size=1, max_size=3))
            broker = draw(st.sampled_from(["b1", "b2", "b3"]))
            events.append(report(now - late - T0, broker, usage, SECOND, id=f"u{number}"))
    return events, timeline


def batch(events: Sequence[Event], timeline: PolicyTimeline, *, end: bool) -> Batch:
    """Events in the order in which they arrived, late ones not moved."""
    entries = [entry_of(event, source) for source, event in enumerate(events)]
    return batch_from(entries, timeline, end=end)
