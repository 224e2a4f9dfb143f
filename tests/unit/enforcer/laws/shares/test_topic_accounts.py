"""Topics by whatever a protocol calls them: remembered within a bound, never for longer than they hold."""

from typing import Any

from meter_kit import ALICE, GROUPS, TOPIC, Desk, alone, many_groups

from enforcer.core.account import PUBLISH
from enforcer.laws.shares.topic_accounts import BillItem, TopicAccounts
from streaming.policy.policy_set import PolicySet


def charge(topics: TopicAccounts[Any], passed: list[tuple[Any, int, int]]) -> list[Any]:
    """Records and bytes of topics pass; returns those without a name."""
    bill = topics.bill(passed)
    bill.charge(PUBLISH, 0.0)
    return bill.unknown


class Named:
    """Topics called by number, with names that a test sets, and how often one was asked for."""

    def __init__(self, desk: Desk, topics_max: int = 100) -> None:
        self.names: dict[int, str] = {}
        self.asked: list[int] = []
        self.topics = TopicAccounts(desk.meter, self.name_of, topics_max, 20)

    def name_of(self, number: int) -> str | None:
        """The name of a topic, if a test has set one."""
        self.asked.append(number)
        return self.names.get(number)


def test_a_topic_without_a_name_is_handed_back() -> None:
    """The others are charged; with its name it is charged too, and asked for no more."""
    desk = Desk(GROUPS)
    named = Named(desk)
    named.names[1] = "acme.orders.t"
    passed = [(1, 2, 20), (7, 5, 50)]
    assert charge(named.topics, passed) == [7]
    assert named.topics.of(7) is None and named.topics.of(1) is desk.meter.accounts["rg1"]
    named.names[7] = "acme.orders.u"
    assert not charge(named.topics, [(7, 5, 50)])
    named.asked.clear()
    assert not charge(named.topics, passed) and not named.asked
    assert desk.meter.accounts["rg1"].used[:2] == [14, 140]


def test_the_longest_wait_is_told() -> None:
    """Of all topics and of the user."""
    desk = Desk({**GROUPS, **ALICE})
    user = desk.meter.of_user("alice", "app", PUBLISH)
    assert user is not None
    bill = desk.topics.bill([("acme.other.t", 100, 0), (TOPIC, 100, 0)], BillItem(user, None, 0, 100))
    wait = bill.charge(PUBLISH, 0.0).wait
    assert wait is not None and wait.account.name == "rg1"
    assert desk.topics.bill([("plain", 10**9, 0)]).charge(PUBLISH, 0.0).wait is None


def test_a_refund_is_for_one_topic() -> None:
    """And no more than what was not forgiven, however often."""
    desk = Desk(GROUPS, debt_max_s=1)
    alone(desk.meter)
    bill = desk.topics.bill([(TOPIC, 10_000, 10), ("acme.other.t", 7, 7)])
    charged = bill.charge(PUBLISH, 0.0)
    account = desk.meter.accounts["rg1"]
    assert charged.forgiven[TOPIC][0] == 9_850
    bill.refund(PUBLISH, TOPIC, 9_000, 1, charged)
    assert account.balance_ms(PUBLISH, 0.0) == -1_000
    bill.refund(PUBLISH, TOPIC, 1_000, 9, charged)
    assert account.balance_ms(PUBLISH, 0.0) == 500
    assert account.refunded[:2] == [10_000, 10] and desk.meter.accounts["rg2"].refunded[0] == 0


def test_a_topic_that_is_listed_often_is_refunded_once() -> None:
    """Each listing is charged, each refusal gives back what it cost, and what was forgiven adds up."""
    desk = Desk(GROUPS, debt_max_s=1)
    alone(desk.meter)
    bill = desk.topics.bill([(TOPIC, 10, 10), (TOPIC, 20, 20), (TOPIC, 15, 15)])
    account = desk.meter.accounts["rg1"]
    charged = bill.charge(PUBLISH, 0.0)
    assert account.balance_ms(PUBLISH, 0.0) == 50
    bill.refund(PUBLISH, TOPIC, 20, 20, charged)
    assert account.refunded[:2] == [20, 20] and account.balance_ms(PUBLISH, 0.0) == 250
    lies = desk.topics.bill([(TOPIC, 10_000, 0), (TOPIC, 5_000, 0)])
    charged = lies.charge(PUBLISH, 0.0)
    assert charged.forgiven[TOPIC][0] == 15_000 - 125
    for records in (10_000, 5_000):
        lies.refund(PUBLISH, TOPIC, records, 0, charged)
    assert account.balance_ms(PUBLISH, 0.0) == 250 and account.refunded[0] == 15_020


def test_the_topic_found_longest_ago_leaves_alone() -> None:
    """A full table is not emptied for one more."""
    desk = Desk(GROUPS)
    named = Named(desk, topics_max=4)
    named.names = {number: f"acme.orders.t{number}" for number in range(5)}
    for number in range(5):
        charge(named.topics, [(number, 1, 0)])
    named.asked.clear()
    for number in (1, 2, 3, 4, 0):
        charge(named.topics, [(number, 1, 0)])
    assert named.asked == [0]
    assert desk.meter.accounts["rg1"].used[0] == 10


def test_a_name_too_long_for_a_topic_is_nobodys() -> None:
    """Nor is it remembered."""
    desk = Desk(GROUPS)
    named = Named(desk)
    named.names = {1: "acme.orders.".ljust(20, "x"), 2: "acme.orders.".ljust(21, "x")}
    charge(named.topics, [(1, 1, 0), (2, 5, 0)])
    assert desk.meter.accounts["rg1"].used[0] == 1 and list(named.topics._accounts) == [1]


def test_what_is_remembered_follows_the_policies() -> None:
    """Charged or only looked at."""
    desk = Desk(GROUPS)
    charge(desk.topics, [("acme.orders.t", 1, 0)])
    desk.meter.set_policies(PolicySet({**GROUPS, "namespaces.acme/orders": {"resourcegroup": "rg2"}}))
    assert desk.topics.of("acme.orders.t") is desk.meter.accounts["rg2"]
    desk.meter.set_policies(PolicySet(GROUPS))
    charge(desk.topics, [("acme.orders.t", 1, 0)])
    assert desk.meter.accounts["rg1"].used[0] == 2


def test_an_account_that_makes_room_within_a_frame_is_charged_no_more() -> None:
    """One frame brings more groups than there is room for: what cannot be counted is counted as that."""
    desk = Desk(many_groups(3), subjects_max=1)
    charge(desk.topics, [("t.n0.x", 1, 0)])
    charge(desk.topics, [("t.n0.x", 1, 0), ("t.n1.x", 1, 0), ("t.n0.x", 1, 0)])
    desk.report()
    told = sum(entry["publishedMsg"] for event in desk.events for entry in event["usage"].values())
    assert told + desk.meter.unmetered == 4
