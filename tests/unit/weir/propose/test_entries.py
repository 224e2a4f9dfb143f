"""Which entries are proposed: one for all who are alike, few of their own, and what they hold."""

from pathlib import Path

import pytest
import yaml
from event_kit import Event, backlog, delivery, ledger, sample, subscription
from law_kit import T0, request
from plan_kit import outcomes, plan_of, policies_of
from propose_kit import BURST, HOUR_MS, NAMESPACE, entries_of, hourly, proposed

from streaming.policy.files import check_entry, load_policies, policy_file
from weir.propose.proposal import OWN_MAX, rounded_up
from weir.propose.told import policies_of as text_of

DEFAULT = "quotas[user=<default>]"
SECOND_MS = 1000


def test_thousands_of_users_have_one_entry(tmp_path: Path) -> None:
    """And whoever asks for much more has one of its own, by the headroom."""
    crowd = [request(f"r{n}", n, 1 + n % 3, user=f"u{n}") for n in range(2000)]
    entries = entries_of(tmp_path, [*crowd, *(request(f"b{n}", n, 3, user="big") for n in range(10))], 2.0)
    assert list(entries) == [DEFAULT, "quotas[user=big]"]
    assert [entry[BURST] for entry in entries.values()] == [6, 60]


def test_entries_of_their_own_are_few(tmp_path: Path) -> None:
    """Those who ask most; the default is what the others need."""
    crowd = [request(f"r{n}", n, 1, user=f"u{n}") for n in range(200)]
    large = [request(f"b{n}", n, 100 + n, user=f"big-{n:03}") for n in range(OWN_MAX + 10)]
    entries = entries_of(tmp_path, [*crowd, *large])
    assert len(entries) == 1 + OWN_MAX and entries[DEFAULT][BURST] == 110
    assert "quotas[user=big-010]" in entries and "quotas[user=big-009]" not in entries


def test_a_runaway_lifts_no_limit(tmp_path: Path) -> None:
    """What is proposed with it is what is proposed without it, and the comment names it."""
    teams = [event for n in range(8) for event in hourly(f"team-{n}", *[4 + n % 2] * 24)]
    wild = [request(f"w{n}", 5 * HOUR_MS + n * 100, 2, user="wild\n: {") for n in range(3000)]
    with_it = proposed(tmp_path, sorted([*teams, *wild], key=lambda event: event["ts"]))
    assert with_it.proposal.entries == entries_of(tmp_path, teams)
    assert 'Left out as far from usual: wild\\n: { (1,200 times' in text_of(with_it)


def test_headroom_times_as_much_gets_through(tmp_path: Path) -> None:
    """The whole log again, twice as large, under limits of twice the usual: nobody is refused."""
    gaps = [1, 40, 700, 3, 90, 2000, 11] * 40
    at = [sum(gaps[:n]) * SECOND_MS for n in range(len(gaps))]
    log = [request(f"r{n}", when, 1 + n % 7) for n, when in enumerate(at)]
    twice = [request(f"r{n}", when, 2 * (1 + n % 7)) for n, when in enumerate(at)]
    limits = yaml.safe_load(policy_file(entries_of(tmp_path, log, 2.0)))
    del limits["version"]
    found = plan_of(tmp_path, twice, {}, limits)
    assert outcomes(found, "user=alice")[1] == [len(log), 0, 0]


def lumps(every_s: int, msgs: int, **fields: str) -> list[Event]:
    """A subscription that gets so many messages at once, so often."""
    return [delivery(n * every_s * SECOND_MS, msgs, 10 * msgs, **fields) for n in range(60)]


@pytest.mark.parametrize(
    ("every_s", "period"), [(1, {}), (10, {"ratePeriodInSecond": 10}), (60, {"ratePeriodInSecond": 60})]
)
def test_a_period_is_as_long_as_lumps_need(tmp_path: Path, every_s: int, period: dict[str, int]) -> None:
    """The broker's default, which knows seconds only, takes them as they come."""
    entries = entries_of(tmp_path, lumps(every_s, 10))
    rate = {"dispatchThrottlingRateInMsg": 10, "dispatchThrottlingRateInByte": 100}
    assert entries[NAMESPACE] == {"subscriptionDispatchRate": rate | period}
    assert entries["broker"] == {
        "dispatchThrottlingRatePerSubscriptionInMsg": 10, "dispatchThrottlingRatePerSubscriptionInByte": 100,
    }  # fmt: skip


def test_a_subscription_unlike_its_namespace_has_its_own(tmp_path: Path) -> None:
    """The namespace's is not lifted by it, nor is the broker's."""
    events = [event for name in "abc" for event in lumps(1, 10, subscription=name)]
    events += lumps(1, 1000, subscription="s.x: #\u2028")
    entries = entries_of(tmp_path, sorted(events, key=lambda event: event["ts"]))
    own = entries["topics.persistent://acme/orders/t1"]["subscriptions"]["s.x: #\u2028"]["dispatchRate"]
    assert own["dispatchThrottlingRateInMsg"] == 1000
    assert entries[NAMESPACE]["subscriptionDispatchRate"]["dispatchThrottlingRateInMsg"] == 10
    assert entries["broker"]["dispatchThrottlingRatePerSubscriptionInMsg"] == 10
    (tmp_path / "p.yaml").write_text(policy_file(entries))
    assert load_policies(str(tmp_path / "p.yaml")) == entries


def test_a_subscription_that_no_entry_can_name_lifts_no_other(tmp_path: Path) -> None:
    """Nor the broker's default; it goes by its namespace."""
    events = [event for name in "abc" for event in lumps(1, 10, subscription=name)]
    log = sorted([*events, *lumps(1, 1000, subscription="s" * 1025)], key=lambda event: event["ts"])
    assert entries_of(tmp_path, log) == entries_of(tmp_path, events)


def test_a_partition_named_like_the_default_is_none_of_its_own(tmp_path: Path) -> None:
    """It goes by the default, and does not lift it."""
    events = [sample(f"{name}", n, 10, 8, partition=name) for n, name in enumerate(("a", "b", "c"))]
    entries = entries_of(tmp_path, [*events, sample("s", 9, 10, 80, partition="*")])
    assert list(entries) == ["backpressure.partitions.*"]
    assert entries["backpressure.partitions.*"]["aimd"]["maxLimit"] == 8


def test_thousands_of_namespaces_go_by_the_broker(tmp_path: Path) -> None:
    """Those that ask most have entries of their own."""
    events = [
        delivery(n, 1 + (n >= 300) * n, topic=f"persistent://acme/n{n:03}/t") for n in range(300 + OWN_MAX)
    ]
    entries = entries_of(tmp_path, events)
    assert len(entries) == 1 + OWN_MAX and "namespaces.acme/n300" in entries
    assert entries["broker"]["dispatchThrottlingRatePerSubscriptionInMsg"] == 1


def test_quotas_of_backlogs_hold_producers(tmp_path: Path) -> None:
    """By the greatest size and age; one that loses messages is nobody's proposal."""
    events = [
        backlog([ledger(1, 10, 1000, closed_ago_ms=3_000_000), ledger(2, 1, size)],
                subscription("s", 1, -1), at_ms=n * HOUR_MS)
        for n, size in enumerate([50, 200])
    ]  # fmt: skip
    hold = {"policy": "producer_request_hold"}
    quotas = entries_of(tmp_path, events)[NAMESPACE]["backlogQuotaMap"]
    assert quotas == {
        "destination_storage": {"limitSize": 1200, **hold}, "message_age": {"limitTime": 6600, **hold},
    }  # fmt: skip


def test_two_that_are_unlike_each_other_in_two_ways_are_alike(tmp_path: Path) -> None:
    """Somebody must go by the default."""
    topics = [("a", 9000, 1000), ("b", 100, 90_000)]
    events = [
        backlog([ledger(1, 10, size, closed_ago_ms=ago_ms), ledger(2, 1, 1)], subscription("s", 1, -1),
                topic=f"persistent://acme/orders/{name}")
        for name, size, ago_ms in topics
    ]  # fmt: skip
    assert list(entries_of(tmp_path, events)) == ["broker", NAMESPACE]


def test_slots_are_those_in_flight(tmp_path: Path) -> None:
    """By minutes: the limit begins and ends at the peak, half of them stay below the least."""
    events = [sample(f"s{n}", n * 60 * SECOND_MS, 10, inflight=5 + n % 4) for n in range(40)]
    events += [sample(f"w{n}", (40 + n) * 60 * SECOND_MS, 10_000, inflight=900) for n in range(3)]
    entries = entries_of(tmp_path, events, 2.0)
    slots = {"requestTimeout": "20ms", "initialLimit": 16, "minLimit": 6, "maxLimit": 16}
    assert entries == {"backpressure.partitions.*": {"algorithm": "aimd", "aimd": slots}}


def test_who_cannot_be_named_has_no_entry(tmp_path: Path) -> None:
    """And lifts no other's."""
    events = [*hourly("a", 1, 1), *hourly("b", 1, 1), *hourly("c" * 2000, 900, 900)]
    entries = entries_of(tmp_path, sorted(events, key=lambda event: event["ts"]))
    assert list(entries) == [DEFAULT] and entries[DEFAULT][BURST] <= 2


def test_members_of_groups_stay(tmp_path: Path) -> None:
    """As in the policies of the log; a group of which nothing was seen stays as it is."""
    groups = {"rg1": {"publishRateInMsgs": 7}, "rg2": {"publishRateInMsgs": 8}}
    held = policies_of(
        tmp_path, "held.yaml", resourcegroups=groups, tenants={"acme": {"resourcegroup": "rg1"}},
        namespaces={"acme/orders": {"dispatchRate": {"dispatchThrottlingRateInMsg": 1}}},
    )  # fmt: skip
    found = proposed(tmp_path, [*hourly("a", 1), *lumps(1, 10)], policies=held).proposal.entries
    assert found["tenants.acme"] == {"resourcegroup": "rg1"} and "resourcegroups.rg2" not in found
    assert found["resourcegroups.rg1"] == groups["rg1"]
    assert list(found[NAMESPACE]) == ["subscriptionDispatchRate"]


def test_numbers_at_their_bounds_make_entries(tmp_path: Path) -> None:
    """Greater than any limit can be, and less."""
    most = 2**63 - 1
    events = [
        request("a", 0, *([most] * 3)), *(delivery(at_ms, most, most, entries=1) for at_ms in (0, 1)),
        sample("s", 0, 1, inflight=most) | {"rtt_ns": most},
        backlog([ledger(1, most, most)], subscription("s", 1, -1)),
        {"type": "group_usage", "id": "g", "ts": T0, "broker": "b", "period_ms": 1,
         "usage": {"rg": {"publishedMsg": most}, "quota/user=a": {"publishedBytes": most}}},
    ]  # fmt: skip
    for log in (events, [request("a", 0, 1), request("a", 250_000_000_000_000 - T0, 1)]):
        found = proposed(tmp_path, log, 1000.0)
        for path, value in found.proposal.entries.items():
            check_entry(path, value)
        (tmp_path / "p.yaml").write_text(text_of(found))
        assert load_policies(str(tmp_path / "p.yaml")) == found.proposal.entries


@pytest.mark.parametrize("amount", [1e-9, 0.123, 99.0, 99.5, 1e18, 3e-7])
def test_limits_have_two_digits(amount: float) -> None:
    """Never less than what they are made of, and a tenth more at most."""
    rounded = rounded_up(amount)
    assert amount <= rounded * (1 + 1e-9) and rounded <= amount * 1.1 + 1e-18
    assert float(f"{rounded:.1e}") == rounded
