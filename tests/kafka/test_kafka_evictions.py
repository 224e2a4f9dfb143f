"""What a KafkaCluster takes from groups: never more than was planned, and nothing it is not sure of."""

import time
from contextlib import closing

import pytest
from cluster_kit import Cluster, fresh
from kafka_backlog_kit import Lagging, Looker, plans

from streaming.collect.backlog.cluster import CannotEvict
from streaming.contract.backlog.decisions import EvictionPlan

MINUTE_MS = 60_000


@pytest.fixture
def topic(cluster: Cluster) -> Lagging:
    """Twenty records of which `slow` has read one and `fast` twelve."""
    own = Lagging(cluster.kafka.bootstrap, fresh("acme.orders.evict"))
    own.write(20)
    own.commit("slow", 1)
    own.commit("fast", 12)
    return own


def test_an_inactive_group_is_moved_and_loses_no_more_than_planned(looker: Looker, topic: Lagging) -> None:
    """By size: to the planned offset, told in messages; done twice it changes nothing; the rest is read."""
    report, planned = looker.planned(topic.topic)
    limit = sum(one.size for one in report.ledgers) // 2
    assert [(one.subscription, one.entries) for one in planned] == [("slow", 9)]
    eviction = looker.prepare(report, planned[0])
    assert eviction is not None
    assert (eviction.how, eviction.messages, eviction.since, eviction.upto) == (
        "offsets", 9, (0, 0), (0, 9),
    )  # fmt: skip
    assert abs(eviction.bytes - 9 * limit / 10) < limit / 10
    # Written while it is decided: younger than what was planned.
    topic.write(3)
    looker.carry_out(eviction)
    assert looker.passed(topic.topic, [("slow", eviction.upto), ("fast", (0, 15)), ("none", (0, 1))]) == [
        True, False, None,
    ]  # fmt: skip
    assert looker.prepare(report, planned[0]) is None
    # A second time changes nothing.
    looker.carry_out(eviction)
    assert topic.committed("fast") == 12
    assert topic.rest("slow", 23) == list(range(10, 23))


def test_a_group_that_has_read_on_is_not_moved_back(looker: Looker, topic: Lagging) -> None:
    """Before and after it was prepared."""
    report, planned = looker.planned(topic.topic)
    eviction = looker.prepare(report, planned[0])
    assert eviction is not None
    topic.commit("slow", 15)
    looker.carry_out(eviction)
    assert topic.committed("slow") == 15
    assert looker.prepare(report, planned[0]) is None


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_active_group_keeps_its_offset(looker: Looker, topic: Lagging, protocol: str) -> None:
    """Without leave to delete records it is named; one that becomes active in between is refused by Kafka."""
    report, planned = looker.planned(topic.topic)
    eviction = looker.prepare(report, planned[0])
    assert eviction is not None and eviction.how == "offsets"
    with closing(topic.join("slow", protocol)):
        with pytest.raises(CannotEvict, match=r"group slow is active \(.*allow_delete_records: true"):
            looker.prepare(report, planned[0])
        with pytest.raises(CannotEvict, match="does not move the offset of slow"):
            looker.carry_out(eviction)
    assert topic.committed("slow") == 1


def test_records_of_an_active_group_are_deleted_as_far_as_planned(looker: Looker, topic: Lagging) -> None:
    """With leave, since nobody else needs them; what is younger stays."""
    report, planned = looker.planned(topic.topic)
    with closing(topic.join("slow")):
        eviction = looker.prepare(report, planned[0], may_delete=True)
        assert eviction is not None and (eviction.how, eviction.messages) == ("delete_records", 9)
        looker.carry_out(eviction)
        assert looker.passed(topic.topic, [("slow", eviction.upto)]) == [True]
        assert looker.prepare(report, planned[0], may_delete=True) is None
    assert topic.rest("slow", 20) == list(range(10, 20))
    own = looker.report(topic.topic)
    assert [one.id for one in own.ledgers] == [10, 20]
    assert [(one.ledger, one.entry) for one in own.subscriptions] == [(10, 1), (10, -1)]


def test_all_who_lose_deleted_records_are_told(looker: Looker, topic: Lagging) -> None:
    """Each with what it has not read itself, members or not; their own lines have nothing left to do."""
    topic.commit("slower", 0)
    report, planned = looker.planned(topic.topic)
    assert [(one.subscription, one.entries) for one in planned] == [("slow", 9), ("slower", 10)]
    with closing(topic.join("slow")):
        eviction = looker.prepare(report, planned[0], may_delete=True)
        assert eviction is not None
        told = [(one.subscription, one.how, one.messages) for one in (eviction, *eviction.also)]
        assert told == [("slow", "delete_records", 9), ("slower", "delete_records", 10)]
        looker.carry_out(eviction)
        assert looker.prepare(report, planned[1], may_delete=True) is None
    assert topic.rest("slower", 20) == list(range(10, 20))


def test_a_group_that_was_moved_back_since_is_left_alone(looker: Looker, topic: Lagging) -> None:
    """Whoever did that wants to read again; a new report tells how much that is."""
    topic.commit("slow", 4)
    report, (planned,) = looker.planned(topic.topic)
    eviction = looker.prepare(report, planned)
    assert eviction is not None
    topic.commit("slow", 2)
    with pytest.raises(CannotEvict, match="slow was moved back to offset 2 meanwhile"):
        looker.carry_out(eviction)
    with pytest.raises(CannotEvict, match="slow was moved back to offset 2 since the report"):
        looker.prepare(report, planned)
    assert topic.committed("slow") == 2


def test_records_that_others_need_are_not_deleted(looker: Looker, topic: Lagging) -> None:
    """Who came, or went back, since the report is in no plan: it is named, before and after preparing."""
    report, planned = looker.planned(topic.topic)
    with closing(topic.join("slow")):
        topic.commit("fast", 5)
        with pytest.raises(CannotEvict, match="group fast has not read"):
            looker.prepare(report, planned[0], may_delete=True)
        topic.commit("fast", 12)
        eviction = looker.prepare(report, planned[0], may_delete=True)
        assert eviction is not None
        topic.commit("newcomer", 3)
        with pytest.raises(CannotEvict, match="group newcomer has not read"):
            looker.carry_out(eviction)
    assert looker.report(topic.topic).ledgers[0].id == 0


def test_by_time_what_is_older_goes_and_nothing_written_since(cluster: Cluster, looker: Looker) -> None:
    """Up to the first record that is young enough; if all are too old, to the end that the report knew."""
    own = Lagging(cluster.kafka.bootstrap, fresh("acme.orders.old"))
    now = time.time_ns() // 1_000_000
    own.write(10, times=[now - (10 - number) * MINUTE_MS for number in range(10)])
    own.commit("slow", 2)
    own.commit("fast", 9)
    report = looker.report(own.topic, expires=True)
    planned = plans(report, seconds=5 * 60 - 30)
    assert [one.subscription for one in planned] == ["slow"]
    eviction = looker.prepare(report, planned[0])
    assert eviction is not None and (eviction.messages, eviction.upto[0] + eviction.upto[1] + 1) == (4, 6)
    looker.carry_out(eviction)
    assert own.committed("slow") == 6
    # Older than the limit by their own word, but written after the report.
    own.write(2, times=[now - 60 * MINUTE_MS] * 2)
    everything = EvictionPlan(subscription="slow", before_publish_time=now + MINUTE_MS)
    eviction = looker.prepare(report, everything)
    assert eviction is not None
    looker.carry_out(eviction)
    assert own.committed("slow") == 10
    assert own.rest("slow", 12) == [10, 11]


def test_what_was_planned_for_another_topic_is_not_done(
    cluster: Cluster, looker: Looker, topic: Lagging
) -> None:
    """A report of another run, and a topic that was created anew since."""
    report, planned = looker.planned(topic.topic)
    with Looker(cluster.kafka.bootstrap) as other:
        for _ in range(2):
            with pytest.raises(CannotEvict, match="was not made in this run"):
                other.prepare(report, planned[0])
            other.look()
        # Even so it knows how far groups have come.
        assert other.passed(topic.topic, [("slow", (0, 0)), ("slow", (0, 1))]) == [True, False]
    eviction = looker.prepare(report, planned[0])
    assert eviction is not None
    topic.recreate()
    topic.write(20)
    topic.commit("slow", 1)
    with pytest.raises(CannotEvict, match="created anew"):
        looker.prepare(report, planned[0])
    with pytest.raises(CannotEvict, match="created anew"):
        looker.carry_out(eviction)
    assert topic.committed("slow") == 1
