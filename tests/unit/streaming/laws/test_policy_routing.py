"""Policies where they are asked for: each shard knows less than all, and decides the same."""

from collections.abc import Sequence
from typing import Any

import orjson
from event_kit import backlog, delivery, ledger, quotas, report, subscription
from hypothesis import given
from hypothesis import strategies as st
from law_kit import T0, Event, policy, quota, records_of, replay_all, request
from property_kit import tries

from streaming.columns.outputs import Outputs
from streaming.contract.events import PolicyChange
from streaming.laws.law import StepContext
from streaming.laws.registry import LAWS
from streaming.laws.routing import routes, take
from streaming.laws.shard import step
from streaming.policy.timeline import PolicyTimeline

SHARDS = 3
TOPICS = ("persistent://acme/a/t1", "persistent://acme/b/t1")
INITIAL: dict[str, Any] = {
    "quotas[user=<default>]": quota(5) | {"producer_byte_rate": 50},
    "resourcegroups.rg1": {"publishRateInMsgs": 100},
    "namespaces.acme/a": {"resourcegroup": "rg1", "dispatchRate": {"dispatchThrottlingRateInMsg": 7}},
    "backpressure.partitions.*": {"algorithm": "aimd"},
    "broker": {"resourceUsagePublishIntervalInSecs": 2, "dispatchThrottlingRateInMsg": 9},
}
BACKLOG = quotas(10, policy="producer_request_hold")
VALUES: dict[str, list[dict[str, Any]]] = {
    "quotas[user=<default>]": [quota(1), quota(9), {"producer_byte_rate": 10}],
    "quotas[user=alice]": [quota(2), quota(2, algorithm="sampled_rate"), {"producer_byte_rate": 20}],
    "quotas[user=alice,client-id=c]": [quota(3)],
    "resourcegroups.rg1": [{"publishRateInMsgs": 10}, {"publishRateInBytes": 10}],
    "resourcegroups.rg2": [{"publishRateInMsgs": 20, "shadow": True}],
    "tenants.acme": [{"resourcegroup": "rg2"}],
    "namespaces.acme/a": [
        {"resourcegroup": "rg2"},
        {"dispatchRate": {"dispatchThrottlingRateInMsg": 3}},
        {"dispatchRate": {"dispatchThrottlingRateInMsg": 30, "across_brokers": True}},
    ],
    "namespaces.acme/b": [{"resourcegroup": "rg1"}, BACKLOG],
    f"topics.{TOPICS[0]}": [{"subscriptionDispatchRate": {"dispatchThrottlingRateInMsg": 2}}],
    "broker": [{}, {"resourceUsagePublishIntervalInSecs": 3}, {"dispatchThrottlingRatePerTopicInMsg": 4}],
    "backpressure.partitions.p0": [{"algorithm": "vegas"}, {"algorithm": "fixed", "fixed": {"limit": 3}}],
    "nowhere": [{}],
}


def used(groups: Sequence[str], broker: str) -> Event:
    counts = {"publishedMsg": 5, "publishedBytes": 70, "dispatchedMsg": 2}
    return report(0, broker, dict.fromkeys(groups, counts))


EVENTS: list[Event] = [
    request("r", 0, 4),
    request("r", 0, 4, client_id="c"),
    request("r", 0, 4, user="bob"),
    used(["rg1", "rg2", "quota/user=alice", "quota/user=bob", "unknown"], "b1"),
    used(["rg1", "quota/user=bob"], "b2"),
    used([f"dispatch/{TOPICS[0]}", f"dispatch/{TOPICS[0]}/s", "inflight/p0", "inflight/p1"], "b1"),
    {"type": "tick"},
    *(delivery(0, 5, 50, topic=topic) for topic in TOPICS),
    *(backlog([ledger(1, 9, 99)], subscription("s", 1, -1, 0), topic=topic) for topic in TOPICS),
    *({"type": "latency", "partition": name, "rtt_ns": 10**8, "inflight": 60} for name in ("p0", "p1")),
]
CHANGES = st.sampled_from(list(VALUES)).flatmap(
    lambda path: st.sampled_from([None, *VALUES[path]]).map(lambda value: policy(0, path, value))
)


def by_shard(events: list[Event], initial: dict[str, Any]) -> list[bytes]:
    """What the shards of all laws write, each from the records that are placed there."""
    timeline = PolicyTimeline(initial)
    for event in events:
        if event["type"] == "policy" and event["path"] != "nowhere":
            timeline.apply(event["path"], event["value"], event["ts"])
    records = records_of(events)
    of_shard: dict[tuple[str, int], list[tuple[int, bytes, bool]]] = {
        (law, shard): [] for law in LAWS.by_name for shard in range(SHARDS)
    }
    for offset in range(len(records)):
        value, name = records.value_of(offset), records.name_of(offset)
        for place in routes(value, default_id=name, default_ts=None, shards=SHARDS, timeline=timeline):
            for_all = place.for_all
            of_shard[place.law, place.shard].append((offset, place.value, for_all))
    context = StepContext(initial=initial, replay=True, fail_fast=True)
    written: list[bytes] = []
    for (law, shard), own in of_shard.items():
        part = records_of([{}] * len(own))
        part.offset = [offset for offset, _, _ in own]
        part.value = [value for _, value, _ in own]
        part.broadcast = [for_all for _, _, for_all in own]
        written += step(law, shard, None, part, context)[1].value
    return sorted(written)


@given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from(EVENTS) | CHANGES), min_size=1, max_size=40))
@tries(200)
def test_shards_that_know_their_own_policies_decide_as_one_that_knows_all(log: list[Any]) -> None:
    """Of every section, set and removed at any time; the versions in decisions too."""
    events = [event | {"ts": T0 + at * 500, "id": f"e{n:03d}"} for n, (at, event) in enumerate(log)]
    whole: Outputs = replay_all(records_of(events), StepContext(initial=INITIAL, replay=True, fail_fast=True))
    assert by_shard(events, INITIAL) == sorted(whole.value)


def kept(law: str, changes: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    timeline = PolicyTimeline()
    for path, value in changes:
        change = PolicyChange(id="", ts=T0, at=T0, path=path, value=value, version=None)
        take(change, LAWS.by_name[law], timeline)
    assert timeline.at(T0).version == 1 + len(changes) or not LAWS.by_name[law].versioned
    return dict(timeline.at(T0).entries)


def test_a_law_keeps_what_it_asks_for() -> None:
    """A hundred thousand groups stand with the law of shares alone, as do those who belong to them."""
    changes = [(path, values[-1]) for path, values in VALUES.items() if path != "nowhere"]
    found = {law: set(kept(law, changes)) for law in LAWS.by_name}
    quotas = {path for path in VALUES if path.startswith("quotas[")}
    assert found == {
        "mutation": quotas,
        "shares": set(VALUES) - {"tenants.acme", "nowhere"},
        "dispatch": {"namespaces.acme/a", "namespaces.acme/b", f"topics.{TOPICS[0]}", "broker"},
        "concurrency": {"backpressure.partitions.p0"},
        "backlog": {"namespaces.acme/a", "namespaces.acme/b", f"topics.{TOPICS[0]}", "broker"},
    }


def test_a_namespace_that_only_has_a_group_is_not_kept() -> None:
    """It takes the place of one that had limits."""
    limits = {"resourcegroup": "rg1", **BACKLOG}
    both = [("namespaces.acme/a", limits), ("namespaces.acme/b", limits)]
    assert set(kept("backlog", [*both, ("namespaces.acme/b", {"resourcegroup": "rg2"})])) == {both[0][0]}


def test_the_records_of_many_groups_are_few() -> None:
    """One goes to the shard of its group, and one to each shard of mutations, which counts it."""
    value = orjson.dumps(policy(0, "resourcegroups.rg1", {"publishRateInMsgs": 1}))
    found = routes(value, default_id="", default_ts=None, shards=8, timeline=PolicyTimeline())
    assert len(found) == 8 + 1
