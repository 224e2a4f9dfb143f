"""Whose traffic is whose, by name and by id, and what a connection is told of it."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest
from kafka_kit import decode
from meter_kit import EPOCH_MS, POLICIES, TOPIC, Desk
from traffic_kit import batch, fetch_request, fetch_response, key_of, produce

from enforcer.kafka.protocol.frames import FETCH, METADATA, PRODUCE, RequestHeader
from enforcer.kafka.protocol.traffic import fetching
from enforcer.kafka.traffic.connection_meter import LEARN_MAX_BYTES, SESSION_TOPICS_MAX, ConnectionMeter
from enforcer.metering.account import Account, State
from enforcer.metering.meter import Meter
from streaming.policy.policy_set import PolicySet

GROUPS: dict[str, Any] = {
    "resourcegroups.rg1": {"publishRateInMsgs": 100, "dispatchRateInBytes": 400_000},
    "resourcegroups.rg2": {"publishRateInMsgs": 1_000},
    "namespaces.acme/orders": {"resourcegroup": "rg1"},
    "tenants.acme": {"resourcegroup": "rg2"},
}
ALICE = {"quotas[user=alice]": {"producer_byte_rate": 1_000, "consumer_byte_rate": 2_000}}


class Line:
    """A connection: what it was told to do, and look-ups that a test answers."""

    def __init__(self, desk: Desk) -> None:
        self.waits: list[float] = []
        self.factors: list[float] = []
        self.asked: list[tuple[list[bytes], Callable[[Mapping[bytes, str]], None]]] = []
        self.later: list[int] = []
        self.connection_meter = ConnectionMeter(
            desk.frames, desk.metrics, self, lambda ids, done: self.asked.append((ids, done))
        )

    def brake(self, wait_ms: float) -> bool:
        """Noted (connection_meter.Brake)."""
        self.waits.append(wait_ms)
        return True

    def hasten(self, factor: float) -> None:
        """Noted (connection_meter.Brake)."""
        self.factors.append(factor)

    def produce(self, count: int, topic: str = TOPIC, version: int = 9, user: str = "bob") -> int:
        """Produce some records; returns the throttle time."""
        frame, header = produce(version, {topic: [batch(count)]})
        return self.connection_meter.produce(frame, header, user, self.later.append)


def used(meter: Meter) -> dict[str, list[int]]:
    """Records and bytes by account."""
    return {name: account.used for name, account in meter.accounts.items() if any(account.used)}


def test_nothing_is_active_without_groups_or_byte_rates() -> None:
    """A mutation quota or a group that nobody is attached to costs nothing on the hot path."""
    assert not Desk({}).meter.active
    assert not Desk({"quotas[user=a]": {"controller_mutation_rate": 1}}).meter.active
    assert not Desk({"resourcegroups.rg1": {"publishRateInMsgs": 1}}).meter.active
    assert Desk(GROUPS).meter.active and Desk(ALICE).meter.active


def test_a_namespace_has_its_own_group_else_its_tenants() -> None:
    """A topic in no namespace has none."""
    desk = Desk(GROUPS)
    line = Line(desk)
    for topic in ("acme.orders.t", "acme.orders.u", "acme.other.t", "evil.orders.t", "plain"):
        line.produce(1, topic)
    size = len(batch(1))
    assert used(desk.meter) == {"rg1": [2, 2 * size, 0, 0], "rg2": [1, size, 0, 0]}


def test_a_group_in_debt_brakes_its_connection() -> None:
    """The whole wait is braked; while the share is on its way only a round of it is told."""
    desk = Desk({**GROUPS, "broker": {"resourceUsagePublishIntervalInSecs": 1}})
    line = Line(desk)
    assert line.produce(2) == 0
    assert line.produce(10) == 1_000  # 5 a second, 2.5 in stock
    assert line.waits == [pytest.approx(1_900)]
    desk.share(publishRateInMsgs=10.0)
    assert line.factors == [0.5]
    assert line.produce(90) == pytest.approx(9_950, abs=1)
    assert desk.metrics.throttled.labels("group", "publishRateInMsgs")._value.get() == 2


def test_the_stricter_of_user_and_group_wins() -> None:
    """And is named in the metric."""
    desk = Desk({**GROUPS, **ALICE})
    line = Line(desk)
    desk.meter.interval_ms = 10**9
    line.produce(100, user="alice")
    by_user = desk.metrics.throttled.labels("user", "publishRateInBytes")._value.get()
    by_group = desk.metrics.throttled.labels("group", "publishRateInMsgs")._value.get()
    account = desk.meter.accounts["quota/user=alice"]
    assert (by_user, by_group) == (1, 0)
    frame, _ = produce(9, {TOPIC: [batch(100)]})
    assert account.used == [0, len(frame), 0, 0]
    assert line.waits[0] == pytest.approx((len(frame) - 25) / 50 * 1_000)


def test_byte_rates_of_users() -> None:
    """Found like mutation quotas, each rate for itself; fetched bytes are those of the whole response."""
    desk = Desk({
        "quotas[user=<default>]": {"consumer_byte_rate": 2_000},
        "quotas[user=alice,client-id=<default>]": {"producer_byte_rate": 1_000},
    })  # fmt: skip
    line = Line(desk)
    response = fetch_response(12, {TOPIC: [batch(5)]})
    header = RequestHeader(FETCH, 12, 1, "tests", 0)
    line.connection_meter.fetched(response, header, "alice")
    line.produce(1, user="alice")
    line.produce(1, user="bob")
    frame, _ = produce(9, {TOPIC: [batch(1)]})
    assert used(desk.meter) == {
        "quota/user=alice": [0, 0, 0, len(response)],
        "quota/user=alice,client-id=tests": [0, len(frame), 0, 0],
    }


def test_move_detach_and_a_change_of_limits() -> None:
    """The next frame counts in the new group; balances stay; those who wait for a gone group are let go."""
    desk = Desk(GROUPS)
    line = Line(desk)
    line.produce(100)
    assert line.waits
    policies = {**GROUPS, "namespaces.acme/orders": {"resourcegroup": "rg2"}}
    desk.meter.set_policies(PolicySet(policies))
    line.produce(1)
    assert desk.meter.accounts["rg2"].used[0] == 1
    del policies["resourcegroups.rg1"]
    desk.meter.set_policies(PolicySet(policies))
    assert "rg1" not in desk.meter.accounts and line.factors == [0.0]
    desk.meter.set_policies(PolicySet({}))
    assert not desk.meter.active and not desk.meter.accounts


def test_topic_ids_that_are_known() -> None:
    """Learnt from Metadata, they cost nothing."""
    desk = Desk(GROUPS)
    line = Line(desk)
    desk.frames.learn({key_of(TOPIC, True): TOPIC})
    line.produce(3, version=13)
    assert not line.asked and desk.meter.accounts["rg1"].used[0] == 3


def test_topic_ids_that_are_looked_up() -> None:
    """The request passes at once; it is charged when the name is there, before its own response."""
    desk = Desk({**GROUPS, "broker": {"resourceUsagePublishIntervalInSecs": 1}})
    line = Line(desk)
    assert line.produce(30, version=13) == 0 and not line.waits
    ((ids, done),) = line.asked
    assert ids == [key_of(TOPIC, True)]
    done({ids[0]: TOPIC})
    assert desk.meter.accounts["rg1"].used[0] == 30
    assert line.later == [1_000] and line.waits == [pytest.approx(5_500)]
    line.produce(1, version=13)
    assert len(line.asked) == 1


def test_a_topic_that_nobody_knows_is_not_looked_up_each_time() -> None:
    """After a while it is, since a new topic reaches the brokers late."""
    desk = Desk(GROUPS)
    line = Line(desk)
    line.produce(1, version=13)
    line.asked[0][1]({})
    line.produce(1, version=13)
    assert len(line.asked) == 1
    desk.now_ms += 5_001
    line.produce(1, version=13)
    assert len(line.asked) == 2


def test_a_fetched_topic_without_a_name_is_counted_as_not_metered() -> None:
    """The look-up at the begin of the session did not help."""
    desk = Desk(GROUPS)
    line = Line(desk)
    header = RequestHeader(FETCH, 16, 1, "c", 0)
    response = fetch_response(16, {TOPIC: [batch(1)]})
    assert line.connection_meter.fetched(response, header, "bob") == 0 and desk.meter.unmetered == 1
    desk.frames.learn({}, [key_of(TOPIC, True)])
    line.connection_meter.fetched(response, header, "bob")
    assert desk.meter.unmetered == 2


def test_a_share_that_comes_before_any_traffic() -> None:
    """A proxy that was restarted has its old share at once, while it lasts; what is kept is bounded."""
    desk = Desk(GROUPS, accounts_max=2)
    for group in ("a", "b", "rg1"):
        desk.share(group, publishRateInMsgs=50.0)
    assert len(desk.meter._table._early) == 1
    line = Line(desk)
    desk.now_ms = 2_999.0
    line.produce(1)
    account = desk.meter.accounts["rg1"]
    assert account.rate(0) == 50.0 and not account.expire(2_999.0) and account.expire(3_000.0)
    desk.share("rg2", publishRateInMsgs=50.0)
    desk.share("rg2", ttl_ms=60_000, ts=EPOCH_MS - 1, publishRateInMsgs=70.0)  # older, though it comes later
    desk.now_ms = 6_000.0
    line.produce(1, "acme.other.t")
    assert desk.meter.accounts["rg2"].state is State.JOINING


def test_the_tables_of_users_and_of_a_session_are_bounded() -> None:
    """Users are found again by the policies; further topics do not make a session's responses smaller."""
    desk = Desk({**GROUPS, **ALICE}, subjects_max=3)
    line = Line(desk)
    for number in range(10):
        line.produce(1, user=f"user-{number}")
    assert len(desk.meter._by_user) <= 3
    names = {f"plain-{number}": 1 for number in range(SESSION_TOPICS_MAX)}
    assert sessions(line, 11, {**names, TOPIC: 1}, epoch=0) == 50_000_000
    assert len(line.connection_meter._session) == SESSION_TOPICS_MAX


def test_a_large_metadata_response_is_not_read() -> None:
    """Its ids are looked up when they are needed."""
    desk = Desk(GROUPS)
    line = Line(desk)
    line.connection_meter.described(bytes(LEARN_MAX_BYTES + 1), 12)
    line.connection_meter.described(b"anything", 9)
    assert not desk.frames.names


def test_clients_without_a_byte_rate_are_not_read() -> None:
    """Where only some users have one, the requests of others pass as they come."""
    desk = Desk(ALICE)
    assert desk.frames.reads(PRODUCE, "alice", "c") and desk.frames.reads(FETCH, "alice", "c")
    assert not desk.frames.reads(METADATA, "alice", "c")
    assert not any(desk.frames.reads(key, "bob", "c") for key in (PRODUCE, FETCH, METADATA))
    grouped = Desk(GROUPS)
    assert all(grouped.frames.reads(key, "bob", "c") for key in (PRODUCE, FETCH, METADATA))


def test_the_table_of_topics_is_bounded() -> None:
    """Full, it is emptied, and ids are looked up again."""
    desk = Desk(GROUPS, topics_max=4)
    line = Line(desk)
    for number in range(10):
        line.produce(1, f"acme.orders.t{number}")
        desk.frames.learn({bytes([number]) * 16: f"acme.orders.t{number}"})
        desk.frames.learn({}, [bytes([number + 100]) * 16])
    assert len(desk.frames.names) <= 4
    assert len(desk.frames._by_name._accounts) <= 4 and len(desk.frames._absent) <= 4
    assert desk.meter.accounts["rg1"].used[0] == 10


def test_the_table_of_accounts_is_bounded() -> None:
    """An account without share and debt makes room; where none does, traffic is not metered, and counted."""
    policies: dict[str, Any] = {}
    for number in range(5):
        policies[f"resourcegroups.g{number}"] = {"publishRateInMsgs": 100}
        policies[f"namespaces.t/n{number}"] = {"resourcegroup": f"g{number}"}
    desk = Desk(policies, accounts_max=2)
    line = Line(desk)
    for number in range(3):
        line.produce(1, f"t.n{number}.x")
    assert list(desk.meter.accounts) == ["g2"] and desk.meter.unmetered == 0
    line.produce(100, "t.n2.x")
    line.produce(100, "t.n3.x")
    assert line.produce(100, "t.n4.x") == 0
    assert list(desk.meter.accounts) == ["g2", "g3"] and desk.meter.unmetered == 1


def many_groups(count: int) -> dict[str, Any]:
    """Policies of the groups g0, g1, ..., each with a namespace t/n0, t/n1, ..."""
    policies: dict[str, Any] = {}
    for number in range(count):
        policies[f"resourcegroups.g{number}"] = {"publishRateInMsgs": 10_000}
        policies[f"namespaces.t/n{number}"] = {"resourcegroup": f"g{number}"}
    return policies


class Looked(dict[str, Account]):
    """Accounts that count how often all of them were looked at."""

    times = 0

    def values(self) -> Any:
        """All accounts."""
        self.times += 1
        return super().values()


@pytest.mark.parametrize("held", [64, 63])
def test_groups_without_room_cost_no_look_at_all_accounts(held: int) -> None:
    """Two that alternate before a table of active ones, with one place for them or none: a look a second."""
    desk = Desk(many_groups(66), accounts_max=64)
    line = Line(desk)
    for number in range(held):
        line.produce(1, f"t.n{number}.x")
        desk.share(f"g{number}", ttl_ms=10**9, publishRateInMsgs=1_000.0)
    accounts = desk.meter.accounts = desk.meter._table.accounts = Looked(desk.meter.accounts)
    generation = desk.meter.generation
    for _ in range(1_000):
        for topic in ("t.n64.x", "t.n65.x", "t.n0.x"):
            line.produce(1, topic)
        desk.now_ms += 10
    assert accounts.times <= 11 and desk.meter.generation - generation <= 11
    assert accounts["g0"].used[0] == 1_001
    desk.reports.report()
    told = sum(entry["publishedMsg"] for event in desk.events for entry in event["usage"].values())
    assert told + desk.meter.unmetered == 3_000 + held


def test_making_room_pays_for_itself() -> None:
    """Where accounts are free, a look at all of them makes room for an eighth at least."""
    desk = Desk(many_groups(1_000), accounts_max=64)
    accounts = desk.meter.accounts = desk.meter._table.accounts = Looked()
    line = Line(desk)
    for number in range(1_000):
        line.produce(1, f"t.n{number}.x")
    assert accounts.times <= 1_000 / 8 and desk.meter.generation <= 1_000 / 8
    reports = 0
    for number in range(1_000):
        line.produce(1, f"t.n{number}.x")
        if number % 50 == 0:
            desk.now_ms += 1_000
            desk.reports.report()
            reports += 1
    assert desk.meter.unmetered
    assert accounts.times - reports <= 2_000 / 8 + reports


def test_a_group_without_room_gets_it_when_there_is_some() -> None:
    """Within a second, and until then each of its frames is counted; a topic and a user alike."""
    desk = Desk({**many_groups(2), **ALICE}, accounts_max=1)
    line = Line(desk)
    for topic, user, account in (("t.n1.x", "bob", "g1"), ("plain", "alice", "quota/user=alice")):
        line.produce(1, "t.n0.x")
        desk.share("g0", ttl_ms=10**9, publishRateInMsgs=1_000.0)
        before = desk.meter.unmetered
        for _ in range(3):
            line.produce(1, topic, user=user)
        assert list(desk.meter.accounts) == ["g0"] and desk.meter.unmetered == before + 3
        desk.share("g0", ts=EPOCH_MS + int(desk.now_ms))
        desk.now_ms += 1_000
        desk.reports.report()
        line.produce(1, topic, user=user)
        assert list(desk.meter.accounts) == [account] and desk.meter.unmetered == before + 3


def test_an_account_that_made_room_is_charged_no_more() -> None:
    """Nor by the user whose other rate it made room for."""
    policies = {
        "quotas[user=alice]": {"producer_byte_rate": 10**9},
        "quotas[user=alice,client-id=tests]": {"consumer_byte_rate": 10**9},
    }
    desk = Desk(policies, accounts_max=1)
    line = Line(desk)
    for _ in range(3):
        line.produce(1, user="alice")
    desk.now_ms = 1_000.0
    desk.reports.report()
    frame, _ = produce(9, {TOPIC: [batch(1)]})
    usage = desk.events[0]["usage"]
    assert {name: entry["publishedBytes"] for name, entry in usage.items()} == {
        "quota/user=alice": 3 * len(frame)
    }


def sessions(line: Line, version: int, topics: Mapping[str, int], epoch: int) -> int:
    """max_bytes of a Fetch request as it is forwarded."""
    frame, header = fetch_request(version, topics, max_bytes=50_000_000, epoch=epoch)
    sent = line.connection_meter.fetch(frame, header, "bob")
    assert len(sent) == len(frame)
    decode(FetchRequest, version, sent)
    return fetching(sent, header).limit_bytes


@pytest.mark.parametrize("version", [4, 11, 12, 16])
def test_a_fetch_of_a_limited_group_brings_less(version: int) -> None:
    """A quarter of a second of the share; in a session its topics are remembered, until it begins anew."""
    desk = Desk(GROUPS)
    line = Line(desk)
    desk.frames.learn({key_of(TOPIC, True): TOPIC, key_of("plain", True): "plain"})
    assert sessions(line, version, {TOPIC: 2}, epoch=0) == 5_000  # 5 % of 400,000
    desk.share(dispatchRateInBytes=100_000.0)
    if version >= 7:
        assert sessions(line, version, {}, epoch=1) == 25_000
        assert sessions(line, version, {"plain": 1}, epoch=2) == 25_000
    assert sessions(line, version, {"plain": 1}, epoch=0) == 50_000_000


def test_a_fetch_limit_follows_the_policies() -> None:
    """Also in the middle of a session."""
    desk = Desk(GROUPS)
    line = Line(desk)
    assert sessions(line, 11, {TOPIC: 2}, epoch=0) == 5_000
    desk.meter.set_policies(PolicySet({**GROUPS, "namespaces.acme/orders": {"resourcegroup": "rg2"}}))
    assert sessions(line, 11, {}, epoch=1) == 50_000_000


def test_a_limit_in_messages_is_turned_into_bytes() -> None:
    """By the mean size of the records that were seen."""
    desk = Desk({**POLICIES, "resourcegroups.rg1": {"dispatchRateInMsgs": 10_000}})
    line = Line(desk)
    assert sessions(line, 11, {TOPIC: 1}, epoch=0) == 16_000  # 500 x 0.25 x 128
    data = batch(10, size=1_000)
    response = fetch_response(11, {TOPIC: [data]})
    line.connection_meter.fetched(response, RequestHeader(FETCH, 11, 1, "c", 0), "bob")
    assert sessions(line, 11, {}, epoch=1) == int(125 * len(data) / 10)


def test_fetched_records_are_charged_by_id() -> None:
    """A Fetch by id looks its topics up when its session begins."""
    desk = Desk(GROUPS)
    line = Line(desk)
    sessions(line, 16, {TOPIC: 1}, epoch=0)
    ((ids, done),) = line.asked
    done({ids[0]: TOPIC})
    header = RequestHeader(FETCH, 16, 1, "c", 0)
    data = batch(300, size=100)
    assert line.connection_meter.fetched(fetch_response(16, {TOPIC: [data]}), header, "bob") > 0
    assert desk.meter.accounts["rg1"].used == [0, 0, 300, len(data)]
    assert sessions(line, 16, {}, epoch=1) == 5_000


def test_a_closed_connection_waits_for_nothing() -> None:
    """Nothing is kept for it."""
    desk = Desk(GROUPS)
    line = Line(desk)
    line.produce(100)
    account: Account = desk.meter.accounts["rg1"]
    assert account.waiting == {line.connection_meter}
    line.connection_meter.close()
    assert not account.waiting
