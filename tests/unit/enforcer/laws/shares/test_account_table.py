"""All accounts of a proxy: shares that come early, and who makes room for whom."""

from typing import Any

import pytest
from meter_kit import EPOCH_MS, GROUPS, Desk, Waiting, many_groups, publish, send_bytes

from enforcer.core.account import DISPATCH, PUBLISH, Account, State
from enforcer.core.lines import PLACES_MAX


class Looked(dict[str, Account]):
    """Accounts that count how often all of them were looked at."""

    times = 0

    def values(self) -> Any:
        """All accounts."""
        self.times += 1
        return super().values()


def test_a_share_that_comes_before_any_traffic() -> None:
    """A proxy that was restarted has its old share at once, while it lasts; what is kept is bounded."""
    desk = Desk(GROUPS, subjects_max=2)
    for group in ("a", "b", "rg1"):
        desk.share(group, publishRateInMsgs=50.0)
    assert list(desk.meter._early) == ["b", "rg1"]
    desk.now_ms = 2_999.0
    publish(desk, 1)
    account = desk.meter.accounts["rg1"]
    assert account.rate(0) == 50.0 and not account.expire(2_999.0) and account.expire(3_000.0)
    desk.share("rg2", publishRateInMsgs=50.0)
    desk.share("rg2", ttl_ms=60_000, ts=EPOCH_MS - 1, publishRateInMsgs=70.0)  # older, though it comes later
    desk.now_ms = 6_000.0
    publish(desk, 1, topic="acme.other.t")
    assert desk.meter.accounts["rg2"].state is State.JOINING


def test_an_early_share_of_a_very_long_name_is_passed_over() -> None:
    """Were it a mistake, all that stand behind it in the same record would be lost."""
    desk = Desk(GROUPS, subjects_max=1)
    for group in ("a" * 600, "rg1"):
        desk.share(group, publishRateInMsgs=50.0)
    assert list(desk.meter._early) == ["rg1"]


def test_shares_that_end_together_are_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Without the job it is all of them, up to ten thousand."""
    desk = Desk(many_groups(8))
    for number in range(8):
        publish(desk, 1, topic=f"t.n{number}.x")
        desk.share(f"g{number}", publishRateInMsgs=5.0)
    desk.now_ms = 3_001.0
    desk.meter.look()
    assert [record.getMessage() for record in caplog.records] == [
        "8 shares were not repeated in time, of g0, g1, g2, g3, g4 and others;"
        " going on by expired_share: safe_fraction"
    ]


def test_the_table_of_accounts_is_bounded() -> None:
    """An account without share and debt makes room; where none does, traffic is not metered, and counted."""
    desk = Desk(many_groups(5, rate=100), subjects_max=2)
    for number in range(3):
        publish(desk, 1, topic=f"t.n{number}.x")
    assert list(desk.meter.accounts) == ["g2"] and desk.meter.unmetered == 0
    publish(desk, 100, topic="t.n2.x")
    publish(desk, 100, topic="t.n3.x")
    assert publish(desk, 100, topic="t.n4.x") is None
    assert list(desk.meter.accounts) == ["g2", "g3"] and desk.meter.unmetered == 1


@pytest.mark.parametrize("held", [64, 63])
def test_groups_without_room_cost_no_look_at_all_accounts(held: int) -> None:
    """Two that alternate before a table of active ones, with one place for them or none: a look a second."""
    desk = Desk(many_groups(66), subjects_max=64)
    for number in range(held):
        publish(desk, 1, topic=f"t.n{number}.x")
        desk.share(f"g{number}", ttl_ms=10**9, publishRateInMsgs=1_000.0)
    accounts = desk.meter.accounts = Looked(desk.meter.accounts)
    generation = desk.meter.generation
    for _ in range(1_000):
        for topic in ("t.n64.x", "t.n65.x", "t.n0.x"):
            publish(desk, 1, topic=topic)
        desk.now_ms += 10
    assert accounts.times <= 11 and desk.meter.generation - generation <= 11
    assert accounts["g0"].used[0] == 1_001
    desk.reports.report()
    told = sum(entry["publishedMsg"] for event in desk.events for entry in event["usage"].values())
    assert told + desk.meter.unmetered == 3_000 + held


def test_making_room_pays_for_itself() -> None:
    """Where accounts are free, a look at all of them makes room for an eighth at least."""
    desk = Desk(many_groups(1_000), subjects_max=64)
    accounts = desk.meter.accounts = Looked()
    for number in range(1_000):
        publish(desk, 1, topic=f"t.n{number}.x")
    assert accounts.times <= 1_000 / 8 and desk.meter.generation <= 1_000 / 8
    reports = 0
    for number in range(1_000):
        publish(desk, 1, topic=f"t.n{number}.x")
        if number % 50 == 0:
            desk.report()
            reports += 1
    assert desk.meter.unmetered
    assert accounts.times - reports <= 2_000 / 8 + reports


def test_a_group_without_room_gets_it_when_there_is_some() -> None:
    """Within a second, and until then all that passes of it is counted."""
    desk = Desk(many_groups(2), subjects_max=1)
    publish(desk, 1, topic="t.n0.x")
    desk.share("g0", ttl_ms=10**9, publishRateInMsgs=1_000.0)
    for _ in range(3):
        publish(desk, 1, topic="t.n1.x")
    assert list(desk.meter.accounts) == ["g0"] and desk.meter.unmetered == 3
    desk.share("g0", ts=EPOCH_MS + int(desk.now_ms))
    desk.report()
    publish(desk, 1, topic="t.n1.x")
    assert list(desk.meter.accounts) == ["g1"] and desk.meter.unmetered == 3


EACH = {"quotas[user=<default>,client-id=<default>]": {"producer_byte_rate": 1_000}}


def test_whoever_takes_many_names_takes_no_tenants_room() -> None:
    """Groups are metered all the same, also where each of the names has a share already."""
    desk = Desk({**many_groups(1, rate=100), **EACH}, subjects_max=8)
    for number in range(100):
        send_bytes(desk, "mallory", f"c{number}", PUBLISH, 1)
        desk.share(f"quota/user=mallory,client-id=c{number}", publishRateInBytes=1_000.0)
    assert publish(desk, 100, topic="t.n0.x") is not None
    assert len(desk.meter.accounts) <= 9 and "g0" in desk.meter.accounts


def test_of_many_names_those_that_used_least_make_room() -> None:
    """Who owes goes last. What they used is reported as far as there is room; the rest is counted."""
    desk = Desk(EACH, subjects_max=8)
    assert send_bytes(desk, "bob", "owes", PUBLISH, 1_000) is not None
    send_bytes(desk, "bob", "used", PUBLISH, 20)
    desk.share("quota/user=bob,client-id=used", publishRateInBytes=1_000.0)
    for number in range(30):
        send_bytes(desk, "mallory", f"c{number}", PUBLISH, 1 + number % 2)
        desk.share(f"quota/user=mallory,client-id=c{number}", publishRateInBytes=1_000.0)
    kept = set(desk.meter.accounts)
    assert {"quota/user=bob,client-id=owes", "quota/user=bob,client-id=used"} < kept and len(kept) <= 8
    assert len(desk.meter._left[True]) == 8 and desk.meter.unmetered == 32 - 8 - len(kept)


def test_where_all_owe_there_is_room_too() -> None:
    """Or whoever comes later would have no limit at all."""
    desk = Desk(EACH, subjects_max=8)
    for number in range(30):
        assert send_bytes(desk, "mallory", f"c{number}", PUBLISH, 10_000) is not None
    assert send_bytes(desk, "bob", "app", PUBLISH, 10_000) is not None


def test_an_account_that_made_room_is_charged_no_more() -> None:
    """Nor by the user whose other rate it made room for."""
    policies = {
        "quotas[user=alice]": {"producer_byte_rate": 10**9},
        "quotas[user=alice,client-id=app]": {"consumer_byte_rate": 10**9},
    }
    desk = Desk(policies, subjects_max=1)
    for direction in (PUBLISH, DISPATCH, PUBLISH, DISPATCH, PUBLISH):
        send_bytes(desk, "alice", "app", direction, 100)
        desk.now_ms += 1_000.0
    desk.reports.report()
    usage = desk.events[0]["usage"]
    assert {name: [entry["publishedBytes"], entry["dispatchedBytes"]] for name, entry in usage.items()} == {
        "quota/user=alice": [300, 0],
        "quota/user=alice,client-id=app": [0, 200],
    }


def test_everybody_has_a_place() -> None:
    """However many wait: a tenant's producers take none from the connections of others."""
    meter = Desk(GROUPS).meter
    for _ in range(PLACES_MAX):
        meter.lines.join([("rg2", "publish")], Waiting().claim)
    first, second = Waiting(), Waiting()
    for each in (first, second):
        meter.lines.join([("rg1", "publish")], each.claim)
    meter.lines.leave(first.claim)
    assert second.woken == 1
