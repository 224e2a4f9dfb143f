"""Whose traffic is whose, by the policies: groups of topics, byte rates of users."""

from typing import Any

from each_kit import each
from meter_kit import ALICE, EPOCH_MS, GROUPS, Desk, Waiting, publish, send_bytes, used

from enforcer.core.account import DISPATCH, PUBLISH
from streaming.contract.decisions import share_of
from streaming.contract.usage_events import DIMENSIONS
from streaming.policy.policy_set import PolicySet


def test_nothing_is_active_without_groups_or_byte_rates() -> None:
    """A mutation quota or a group that nobody is attached to costs nothing on the hot path."""
    assert not Desk({}).meter.active
    assert not Desk({"quotas[user=a]": {"controller_mutation_rate": 1}}).meter.active
    assert not Desk({"resourcegroups.rg1": {"publishRateInMsgs": 1}}).meter.active
    assert Desk(GROUPS).meter.active and Desk(ALICE).meter.active


def test_a_namespace_has_its_own_group_else_its_tenants() -> None:
    """A topic in no namespace has none."""
    desk = Desk(GROUPS)
    for topic in ("acme.orders.t", "acme.orders.u", "acme.other.t", "evil.orders.t", "plain"):
        publish(desk, 1, 70, topic)
    assert used(desk.meter) == {"rg1": [2, 140, 0, 0], "rg2": [1, 70, 0, 0]}


def test_byte_rates_of_users() -> None:
    """Found like mutation quotas, each rate for itself."""
    desk = Desk({
        "quotas[user=<default>]": {"consumer_byte_rate": 2_000},
        "quotas[user=alice,client-id=<default>]": {"producer_byte_rate": 1_000},
    })  # fmt: skip
    assert send_bytes(desk, "alice", "app", DISPATCH, 20) is None
    assert send_bytes(desk, "alice", "app", PUBLISH, 10) is None
    assert send_bytes(desk, "bob", "app", PUBLISH, 10**9) is None
    assert used(desk.meter) == {
        "quota/user=alice": [0, 0, 0, 20],
        "quota/user=alice,client-id=app": [0, 10, 0, 0],
    }
    wait = send_bytes(desk, "alice", "app", PUBLISH, 1_000)
    assert wait is not None and wait.account is desk.meter.accounts["quota/user=alice,client-id=app"]


def test_a_full_table_of_users_loses_the_one_found_longest_ago() -> None:
    """Not all of them; by the policies that one is found again."""
    desk = Desk({**GROUPS, **ALICE}, subjects_max=3)
    for user in ("alice", *(f"user-{number}" for number in range(3))):
        send_bytes(desk, user, "app", PUBLISH, 1)
    assert [user for user, _, _ in desk.meter._by_user] == ["user-0", "user-1", "user-2"]
    send_bytes(desk, "alice", "app", PUBLISH, 1)
    assert used(desk.meter) == {"quota/user=alice": [0, 2, 0, 0]}


T1 = "persistent://acme/orders/t1"
LOWERED: list[tuple[str, str, str, dict[str, Any], dict[str, Any], float]] = [
    ("rg1", "publishRateInMsgs", "resourcegroups.rg1",
     {"publishRateInMsgs": 100}, {"publishRateInMsgs": 10}, 0.1),
    ("quota/user=alice", "publishRateInBytes", "quotas[user=alice]",
     {"producer_byte_rate": 1_000}, {"producer_byte_rate": 250}, 0.25),
    (f"dispatch/{T1}", "dispatchRateInMsgs", f"topics.{T1}",
     {"dispatchRate": {"dispatchThrottlingRateInMsg": 100, "across_brokers": True}},
     {"dispatchRate": {"dispatchThrottlingRateInMsg": 100, "across_brokers": True,
                       "ratePeriodInSecond": 2}}, 0.5),
    # In parts of the limit, whatever that is.
    ("inflight/broker-1", "publishRateInMsgs", "backpressure.partitions.*",
     {"algorithm": "fixed", "fixed": {"limit": 20}}, {"algorithm": "fixed", "fixed": {"limit": 2}}, 1.0),
]  # fmt: skip


@each(("group", "dimension", "path", "before", "after", "part"), LOWERED)
@each("early", [False, True])
def test_a_share_of_a_limit_that_was_lowered(
    group: str, dimension: str, path: str, before: dict[str, Any], after: dict[str, Any], part: float,
    early: bool,
) -> None:  # fmt: skip
    """Whatever kind of group it is of, and if it is only read when the limit is a lower one already."""
    desk, place = Desk({path: before}), DIMENSIONS.index(dimension)
    then = PolicySet({path: before})
    said = {"group": group, "broker": "p1", "ts": EPOCH_MS, "ttl_ms": 3_000, "limits": {dimension: 40.0}}
    share = share_of(said)
    if early:
        desk.meter.set_policies(PolicySet({path: after}))
        desk.meter.take_share(share, then)
    account = desk.meter.of_group(group)
    assert account is not None
    if not early:
        desk.meter.take_share(share)
        desk.meter.set_policies(PolicySet({path: after}))
    assert account.rate(place) == 40.0 * part
    desk.meter.take_share(share, then)
    assert account.rate(place) == 40.0 * part
    desk.meter.set_policies(then)
    assert account.rate(place) == 40.0


def test_move_detach_and_a_change_of_limits() -> None:
    """What passes next counts in the new group; who waits for a group that is gone is let go."""
    desk, waiting = Desk(GROUPS), Waiting()
    wait = publish(desk, 100)
    assert wait is not None
    desk.meter.lines.join(wait.account.counters[:1], waiting.claim)
    policies = {**GROUPS, "namespaces.acme/orders": {"resourcegroup": "rg2"}}
    desk.meter.set_policies(PolicySet(policies))
    publish(desk, 1)
    assert desk.meter.accounts["rg2"].used[0] == 1
    del policies["resourcegroups.rg1"]
    desk.meter.set_policies(PolicySet(policies))
    assert "rg1" not in desk.meter.accounts and waiting.woken
    desk.meter.set_policies(PolicySet({}))
    assert not desk.meter.active and not desk.meter.accounts
