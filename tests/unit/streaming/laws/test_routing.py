"""Where records go: law, routing key, shard."""

import orjson
import pytest
from law_kit import T0, policy, quota, request

from streaming.laws.name_hashes import shard_of
from streaming.laws.registry import LAWS
from streaming.laws.routing import Route, policy_shards, routes
from streaming.policy.timeline import PolicyTimeline

TIMELINE = PolicyTimeline({"quotas[user=alice]": quota(1)})
SHARDS = 8
TOPIC = "persistent://acme/orders/t1"
USAGE = {"publishedMsg": 6}


def routed(event: object, timeline: PolicyTimeline | None = TIMELINE) -> list[Route]:
    value = event if isinstance(event, bytes) else orjson.dumps(event)
    return routes(value, default_id="f:1", default_ts=T0, shards=SHARDS, timeline=timeline)


def only(event: object, timeline: PolicyTimeline | None = TIMELINE) -> tuple[str, int]:
    (place,) = routed(event, timeline)
    assert not place.for_all
    return place.law, place.shard


def test_a_request_goes_to_the_home_of_its_quota() -> None:
    """The quota entity; without one the user, so that the unlimited do not share one shard."""
    assert only(request("a", 0, 1)) == ("mutation", shard_of("user=alice", SHARDS))
    assert only(request("a", 0, 1, user="bob")) == ("mutation", shard_of("user=bob", SHARDS))


def test_a_live_request_is_trusted_and_a_replayed_one_is_not() -> None:
    """The proxy stamped it from the policies that it held."""
    stamped = request("a", 0, 1, subject="user=alice,client-id=x")
    assert only(stamped, None) == ("mutation", shard_of("user=alice,client-id=x", SHARDS))
    assert only(stamped) == ("mutation", shard_of("user=alice", SHARDS))


def test_usage_goes_to_its_home() -> None:
    """Dispatch to its broker, latency to its partition, backlog to its topic."""
    delivery = {"broker": "b1", "topic": TOPIC, "subscription": "s", "msgs": 1, "bytes": 1, "entries": 1}
    dispatch = {"type": "dispatch_usage", "backlog": True} | delivery
    assert only(dispatch) == ("dispatch", shard_of("b1", SHARDS))
    latency = {"type": "latency", "partition": "p3", "rtt_ns": 1, "inflight": 1}
    assert only(latency) == ("concurrency", shard_of("p3", SHARDS))
    backlog = {"type": "backlog", "topic": TOPIC, "ledgers": [], "subscriptions": []}
    assert only(backlog) == ("backlog", shard_of(TOPIC, SHARDS))


def test_a_report_of_many_groups_is_cut_up_by_shard() -> None:
    """Each shard reads what is its own, all of it in one record."""
    groups = [f"g{number}" for number in range(3 * SHARDS)]
    usage = dict.fromkeys(groups, USAGE)
    found = routed({"type": "group_usage", "broker": "b", "period_ms": 1, "usage": usage})
    assert {place.law for place in found} == {"shares"}
    assert {place.shard: list(orjson.loads(place.value)["usage"]) for place in found} == {
        shard: own for shard in range(SHARDS) if (own := [g for g in groups if shard_of(g, SHARDS) == shard])
    }
    assert len({place.shard for place in found}) == len(found) > 1


def reached(path: str, value: object) -> dict[str, list[int]]:
    """The shards of each law that a policy goes to."""
    found: dict[str, list[int]] = {}
    for place in routed(policy(0, path, value)):
        assert place.for_all
        found.setdefault(place.law, []).append(place.shard)
    return found


def test_a_policy_goes_to_the_laws_that_ask_for_it() -> None:
    """And to all of mutations, which name the version. Limits of one group go to its routing key."""
    every = list(range(SHARDS))
    mutation = {"mutation": every}
    for path in ("resourcegroups.rg1", "resourcegroups.é"):
        routing_key = shard_of(path.partition(".")[2], SHARDS)
        assert reached(path, {"publishRateInMsgs": 1}) == mutation | {"shares": [routing_key]}
    for path in ("quotas[user=a]", "quotas[client-id=%2C]", "quotas[user=a,client-id=]"):
        routing_key = shard_of(f"quota/{path[7:-1]}", SHARDS)
        assert reached(path, quota(1)) == mutation | {"shares": [routing_key]}
    for path in ("quotas[user=<default>]", "quotas[user=a,client-id=<default>]"):
        assert reached(path, quota(1)) == mutation | {"shares": every}
    assert reached("broker", {}) == mutation | dict.fromkeys(("shares", "dispatch", "backlog"), every)
    for path in ("namespaces.acme/a", f"topics.{TOPIC}"):
        # Rates across brokers are shared out as groups, of which one entry may limit many.
        assert reached(path, {}) == mutation | dict.fromkeys(("shares", "dispatch", "backlog"), every)
    assert reached("backpressure.partitions.*", {}) == mutation | dict.fromkeys(
        ("shares", "concurrency"), every
    )
    group = shard_of("inflight/p0", SHARDS)
    assert reached("backpressure.partitions.p0", {})["shares"] == [group]
    assert reached("tenants.acme", {"resourcegroup": "rg1"}) == mutation


def test_a_policy_of_nothing_goes_to_those_that_see_all() -> None:
    """One of which buries it."""
    assert reached("nowhere", {}) == {"mutation": list(range(SHARDS))}


def test_a_policy_among_live_reports_is_garbage() -> None:
    """Who may write reports may not set limits, and no proxy would go by it."""
    assert only(policy(0, "broker", {}), None) == (LAWS.reporting.name, shard_of("f:1", SHARDS))


def test_on_the_topic_of_policies_all_else_goes_to_those_that_see_all() -> None:
    """As what came by the wrong topic; a tick ticks everybody."""
    for value in (b"{", orjson.dumps(request("a", 0, 1))):
        assert list(policy_shards(value, default_ts=T0, shards=SHARDS)) == [("mutation", range(SHARDS))]
    tick = orjson.dumps({"type": "tick", "ts": T0})
    found = list(policy_shards(tick, default_ts=T0, shards=SHARDS))
    assert found == [(law, range(SHARDS)) for law in LAWS.by_name]


def test_a_tick_goes_to_what_has_a_life_time() -> None:
    """Every shard of the laws whose decisions end or are repeated, shares too."""
    ticks = routed({"type": "tick", "ts": T0})
    assert {place.law for place in ticks} == set(LAWS.by_name)
    assert len(ticks) == len(LAWS.by_name) * SHARDS


def test_what_says_that_a_proxy_lives_goes_to_one_shard() -> None:
    """Where it is counted, and decides nothing."""
    assert only({"type": "alive", "proxy": "p1"}) == (LAWS.reporting.name, shard_of("p1", SHARDS))


def test_garbage_goes_to_the_shard_of_its_id() -> None:
    """Which buries it."""
    assert only(b"{") == (LAWS.reporting.name, shard_of("f:1", SHARDS))
    broken = {"type": "group_usage", "broker": "b", "period_ms": 1, "usage": {"g1": USAGE, "g2": 7}}
    assert only(broken) == (LAWS.reporting.name, shard_of("f:1", SHARDS))
    for event in (request("a", 60_001, 1), {"type": "tick", "ts": T0 + 60_001}, broken | {"usage": {}}):
        far = event | {"ts": T0 + 60_001}
        assert only(far, None) == (LAWS.reporting.name, shard_of("f:1", SHARDS))


DEEP = b"[" * 300 + b"]" * 300


@pytest.mark.parametrize("event", [
    b'{"type":%s}', b'{"type":"tick","v":%s}', b'{"type":"request","items":[],"subject":%s}',
    b'{"type":"group_usage","broker":"b","period_ms":1,"usage":{"g":{"publishedMsg":1,"more":%s}}}',
])  # fmt: skip
def test_what_is_nested_too_deeply_is_garbage_too(event: bytes) -> None:
    """It can be read and not be written again, in a dead letter's reason or in parts: no batch ends of it."""
    assert only(event % DEEP) == (LAWS.reporting.name, shard_of("f:1", SHARDS))
