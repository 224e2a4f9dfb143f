"""Topics by whatever a protocol calls them: remembered within a bound, never for longer than they hold."""

from meter_kit import GROUPS, Desk, many_groups

from enforcer.metering.account import PUBLISH
from enforcer.metering.topic_accounts import TopicAccounts
from streaming.policy.policy_set import PolicySet


class Named:
    """Topics called by number, with names that a test sets, and how often one was asked for."""

    def __init__(self, desk: Desk, topics_max: int = 100) -> None:
        self.names: dict[int, str] = {}
        self.asked: list[int] = []
        self.topics = TopicAccounts(desk.meter, self.name_of, topics_max)

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
    assert named.topics.charge(passed, PUBLISH).unknown == [(7, 5, 50)]
    assert named.topics.of(7) is None and named.topics.of(1) is desk.meter.accounts["rg1"]
    named.names[7] = "acme.orders.u"
    assert not named.topics.charge([(7, 5, 50)], PUBLISH).unknown
    named.asked.clear()
    assert not named.topics.charge(passed, PUBLISH).unknown and not named.asked
    assert desk.meter.accounts["rg1"].used[:2] == [14, 140]


def test_the_strictest_wait_is_told() -> None:
    """Of all topics and of what the user's own rate asks for."""
    desk = Desk(GROUPS)
    wait = desk.topics.charge([("acme.other.t", 100, 0), ("acme.orders.t", 100, 0)], PUBLISH).wait
    assert wait is not None and wait.account.name == "rg1"
    assert desk.topics.charge([("acme.other.t", 1, 0)], PUBLISH, wait).wait is wait


def test_the_topic_found_longest_ago_leaves_alone() -> None:
    """A full table is not emptied for one more."""
    desk = Desk(GROUPS)
    named = Named(desk, topics_max=4)
    named.names = {number: f"acme.orders.t{number}" for number in range(5)}
    for number in range(5):
        named.topics.charge([(number, 1, 0)], PUBLISH)
    named.asked.clear()
    for number in (1, 2, 3, 4, 0):
        named.topics.charge([(number, 1, 0)], PUBLISH)
    assert named.asked == [0]
    assert desk.meter.accounts["rg1"].used[0] == 10


def test_what_is_remembered_follows_the_policies() -> None:
    """Charged or only looked at."""
    desk = Desk(GROUPS)
    desk.topics.charge([("acme.orders.t", 1, 0)], PUBLISH)
    desk.meter.set_policies(PolicySet({**GROUPS, "namespaces.acme/orders": {"resourcegroup": "rg2"}}))
    assert desk.topics.of("acme.orders.t") is desk.meter.accounts["rg2"]
    desk.meter.set_policies(PolicySet(GROUPS))
    desk.topics.charge([("acme.orders.t", 1, 0)], PUBLISH)
    assert desk.meter.accounts["rg1"].used[0] == 2


def test_an_account_that_makes_room_within_a_frame_is_charged_no_more() -> None:
    """One frame brings more groups than there is room for: what cannot be counted is counted as that."""
    desk = Desk(many_groups(3), accounts_max=1)
    desk.topics.charge([("t.n0.x", 1, 0)], PUBLISH)
    desk.topics.charge([("t.n0.x", 1, 0), ("t.n1.x", 1, 0), ("t.n0.x", 1, 0)], PUBLISH)
    desk.now_ms = 1_000.0
    desk.reports.report()
    told = sum(entry["publishedMsg"] for event in desk.events for entry in event["usage"].values())
    assert told + desk.meter.unmetered == 4
