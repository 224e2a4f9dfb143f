"""The decisions of the backlog law as columns against `law.judge`, which is what people read."""

import orjson
from event_kit import T0, Event, backlog
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries
from usage_kit import replay

from streaming.contract.broker_events import Backlog
from streaming.laws.backlog.law import Quota, Rules, judge
from streaming.laws.registry import LAWS

BIG = 2**63 - 1
POLICIES = st.sampled_from(["consumer_backlog_eviction", "producer_request_hold"])
SMALL, HUGE = st.integers(0, 12), st.sampled_from([2**52, 2**53, 2**53 + 1, 2**62, BIG])
COUNTS = st.one_of(SMALL, SMALL, SMALL, SMALL, SMALL, HUGE)
SIZES = st.one_of(st.integers(0, 3000), st.integers(0, 3000), st.sampled_from([2**40 + 1, 2**52]), HUGE)
LIMITS = st.one_of(st.integers(-1, 5000), st.sampled_from([0, 100, 2**40, 2**53, BIG]))


@st.composite
def reports(draw: st.DrawFn) -> Event:
    """Any report, numbers beyond doubles and 64 bits among those of its ledgers."""
    ids = sorted(draw(st.lists(st.integers(0, 20), max_size=5, unique=True)))
    times = st.none() | st.integers(0, 200_000).map(lambda ago: T0 - ago) | st.just(BIG)
    ledgers = [
        {"id": name, "entries": draw(COUNTS), "size": draw(SIZES), "closeTime": draw(times)} for name in ids
    ]
    names = draw(st.lists(st.sampled_from(["a", "b", "é", "B", '"']), max_size=5, unique=True))
    subscriptions = [
        {
            "name": name,
            "ledger": draw(st.sampled_from([*ids, -1, 7])),
            "entry": draw(st.integers(-1, 13) | st.sampled_from([2**53 - 1, BIG])),
            "durable": draw(st.integers(0, 4)) > 0,
            "oldestPublishTime": draw(times),
        }
        for name in names
    ]
    return backlog(ledgers, *subscriptions)


@st.composite
def rules(draw: st.DrawFn) -> Rules:
    """Any rules."""
    return Rules(
        size=Quota(limit=draw(LIMITS), policy=draw(POLICIES)),
        age=Quota(limit=draw(st.sampled_from([-1, 0, 1, 60, BIG])), policy=draw(POLICIES)),
        precise_size=draw(st.booleans()),
        precise_age=draw(st.booleans()),
    )


def read(event: Event) -> Backlog:
    event_read = LAWS.readers["backlog"](event, event["id"], event["ts"])
    assert isinstance(event_read, Backlog)
    return event_read


@tries(250)
@given(st.lists(reports(), min_size=1, max_size=4), rules())
def test_columns_say_what_the_readable_law_says(events: list[Event], rules: Rules) -> None:
    """Byte for byte; sums of entries that no 64 bits hold are cut there."""
    quotas = {
        "destination_storage": {"limitSize": rules.size.limit, "policy": rules.size.policy},
        "message_age": {"limitTime": rules.age.limit, "policy": rules.age.policy},
    }
    flags = {"preciseBacklogSize": rules.precise_size, "preciseTimeBasedBacklogQuotaCheck": rules.precise_age}
    policies = {"namespaces.acme/orders": {"backlogQuotaMap": quotas}, "broker": flags}
    decided = replay([event | {"id": str(i)} for i, event in enumerate(events)], policies)
    for event, decision in zip(events, decided, strict=True):
        said = judge(read(event), rules)
        for line in said["evict"]:
            if "entries" in line:
                line["entries"] = min(BIG, line["entries"])
        found = {key: decision[key] for key in said}
        assert orjson.dumps(found) == orjson.dumps(said)
