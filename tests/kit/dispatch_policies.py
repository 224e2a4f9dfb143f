"""Dispatch rates, and deliveries under them, as properties draw them, the law's and the proxies'."""

from typing import Any

from event_kit import T0, Event, delivery
from hypothesis import strategies as st

from streaming.policy.timeline import PolicyTimeline

_RATES = st.fixed_dictionaries(
    {},
    optional={
        "dispatchThrottlingRateInMsg": st.sampled_from([-1, 1, 10, 33]),
        "dispatchThrottlingRateInByte": st.sampled_from([-1, 50, 1000]),
        "ratePeriodInSecond": st.sampled_from([1, 3, 86_400]),
    },
)
KINDS = st.fixed_dictionaries({}, optional={"dispatchRate": _RATES, "subscriptionDispatchRate": _RATES})
COUNTS = st.sampled_from([0, 1, 6, 10, 45, 300])


def broker_settings(*flags: str) -> st.SearchStrategy[dict[str, Any]]:
    """A broker's rates, what else is counted, and other flags."""
    flags += "dispatchThrottlingOnBatchMessageEnabled", "dispatchThrottlingOnNonBacklogConsumerEnabled"
    return st.fixed_dictionaries(
        {},
        optional={
            "dispatchThrottlingRateInMsg": st.sampled_from([-1, 40]),
            "dispatchThrottlingRatePerTopicInByte": st.sampled_from([-1, 500]),
            "dispatchThrottlingRatePerSubscriptionInMsg": st.sampled_from([-1, 7]),
            **{flag: st.booleans() for flag in flags},
        },
    )


TOPICS = ["persistent://acme/a/t1", "persistent://acme/a/t2", "persistent://acme/b/t1"]
BROKER = broker_settings("preciseDispatcherFlowControl")
POLICIES = {"broker": BROKER, "namespaces.acme/a": KINDS, f"topics.{TOPICS[0]}": KINDS}
PLACES = {"broker": ["b1", "b2"], "topic": TOPICS, "subscription": ["s1", "s2"]}
GAPS = [0, 1, 400, 1000, 2600, 60_000, 3_600_000, 3_600_001, 90_000_000]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Event], PolicyTimeline]:
    """Deliveries in order of time under policies that change."""
    timeline = PolicyTimeline({path: draw(values) for path, values in POLICIES.items()})
    events: list[Event] = []
    now = T0
    for number in range(draw(st.integers(1, 25))):
        now += draw(st.sampled_from(GAPS))
        if draw(st.integers(0, 5)) == 0:
            path = draw(st.sampled_from(sorted(POLICIES)))
            timeline.apply(path, draw(st.none() | POLICIES[path]), now)
        fields = draw(st.sampled_from([{}, {"avg_publish_entry_bytes": 30}]))
        place = {name: draw(st.sampled_from(own)) for name, own in PLACES.items()}
        counts = draw(COUNTS), draw(COUNTS), draw(COUNTS)
        own = {"id": f"e{number:02}", "backlog": draw(st.booleans()), **place, **fields}
        events.append(delivery(now - T0, *counts, **own))
    return events, timeline
