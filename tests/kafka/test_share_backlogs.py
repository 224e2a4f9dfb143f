"""Backlogs of share groups (KIP-1226) on a broker that has them, and how they are evicted."""

from contextlib import AbstractContextManager, closing
from typing import Any

import pytest
from cluster_kit import Cluster, fresh
from confluent_kafka import TopicPartition
from kafka_backlog_kit import Lagging, Looker
from share_kit import MEMBER, SHARE_HEARTBEAT, RawMember, Session, acquired, codes, configure

from enforcer.wire.kafka.frames import SHARE_ACKNOWLEDGE, SHARE_FETCH, Fields
from streaming.collect.backlog.cluster import CannotEvict
from streaming.contract.broker_events import Backlog

RECORDS = 20
NOT_LEADER = 6
NOW_MS = 1_795_000_000_000


class Shared(Lagging, AbstractContextManager[Any]):
    """A topic of twenty records, and a share group whose only member has acquired all of them."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.kafka.bootstrap, fresh("acme.orders.shared"))
        self.group = fresh("members")
        self.write(RECORDS, times=range(NOW_MS, NOW_MS + RECORDS))
        configure(self.bootstrap, self.group)
        self._wire = RawMember(self.bootstrap)
        self._session = Session(self._wire, self.group, self.topic)
        got = set[int]()
        while len(got) < RECORDS:
            got |= self.acquire()

    def __exit__(self, *_: object) -> None:
        self._wire.__exit__(*_)

    def _ask(self, key: int, body: Fields) -> Fields:
        answer = self._wire.ask(key, 2, body)
        assert answer["ErrorCode"] == 0, answer
        return answer

    def acquire(self) -> set[int]:
        """Offsets of what the next ShareFetch brings."""
        answer = self._ask(SHARE_FETCH, self._session.fetch(MaxWaitMs=500))
        return {one for first, last, _ in acquired(answer) for one in range(first, last + 1)}

    def accept(self, first: int, last: int, says: int = 0) -> None:
        """Acknowledge the records from `first` to `last`; the broker says this."""
        assert codes(self._ask(SHARE_ACKNOWLEDGE, self._session.acknowledge((first, last)))) == [says]

    def leave(self) -> None:
        """End the session and leave the group; what was acquired and not acknowledged is free."""
        self._session.epoch = -1
        self._ask(SHARE_ACKNOWLEDGE, self._session.acknowledge())
        said = self._wire.ask(SHARE_HEARTBEAT, 1, {
            "GroupId": self.group.encode(), "MemberId": MEMBER.encode(), "MemberEpoch": -1,
        })  # fmt: skip
        assert said["ErrorCode"] == 0, said

    def again(self) -> list[int]:
        """The offsets that a new member gets at first."""
        assert self._session.epoch == 0
        self._session = Session(self._wire, self.group, self.topic)
        while not (got := self.acquire()):
            pass
        return sorted(got)


def own(report: Backlog) -> tuple[int, int | None]:
    """How many records the only group has not acknowledged, and when the oldest was published."""
    (one,) = report.subscriptions
    end = report.ledgers[-1].id
    return end - (one.ledger + one.entry + 1), one.oldest_publish_time


@pytest.mark.soak
def test_what_is_acknowledged_out_of_order_is_no_backlog(cluster: Cluster, looker: Looker) -> None:
    """By the group's own lag; before the first acknowledgement it is no subscription."""
    with Shared(cluster) as topic:
        assert looker.report(topic.topic).subscriptions == ()
        topic.accept(5, 9)
        assert own(looker.report(topic.topic, expires=True)) == (15, NOW_MS + 5)
        topic.accept(0, 1)
        assert own(looker.report(topic.topic, precise_age=True)) == (13, NOW_MS + 7)
        topic.accept(2, 4)
        topic.accept(10, RECORDS - 1)
        assert own(looker.report(topic.topic, precise_age=True)) == (0, None)
        topic.write(2, times=[NOW_MS + RECORDS] * 2)
        # Where its coordinator still has an older start: what is behind it was acknowledged long ago.
        assert own(looker.report(topic.topic, precise_age=True)) == (2, NOW_MS + RECORDS)


@pytest.mark.soak
def test_a_share_group_without_members_is_moved(cluster: Cluster, looker: Looker) -> None:
    """As far as planned, and not while it has some; what it has acknowledged beyond is delivered again."""
    with Shared(cluster) as topic:
        topic.accept(3, 7)
        report, (planned,) = looker.planned(topic.topic)
        with pytest.raises(CannotEvict, match=rf"group {topic.group} is active \(Stable\)"):
            looker.prepare(report, planned)
        topic.leave()
        eviction = looker.prepare(report, planned)
        assert eviction is not None
        assert (eviction.how, eviction.messages, eviction.upto) == ("offsets", 10, (0, 9))
        looker.carry_out(eviction)
        assert looker.passed(topic.topic, [(topic.group, eviction.upto)]) == [True]
        assert own(looker.report(topic.topic))[0] == 10
        assert looker.prepare(report, planned) is None
        # The leader has the old start in memory, and learns the new one at the first acknowledgement.
        first = topic.again()
        topic.accept(first[0], first[0], says=NOT_LEADER)
        assert topic.acquire() == set(range(10, RECORDS))


@pytest.mark.soak
def test_a_member_that_comes_meanwhile_keeps_its_records(cluster: Cluster, looker: Looker) -> None:
    """Kafka refuses to move a share group that has one."""
    with Shared(cluster) as topic:
        topic.accept(0, 4)
        topic.leave()
        report, (planned,) = looker.planned(topic.topic)
        eviction = looker.prepare(report, planned)
        assert eviction is not None
        assert topic.again() == list(range(5, RECORDS))
        with pytest.raises(CannotEvict, match="does not move the offset of members"):
            looker.carry_out(eviction)


@pytest.mark.soak
def test_records_that_a_share_group_needs_are_not_deleted(cluster: Cluster, looker: Looker) -> None:
    """Not before it has acknowledged any, nor those before its position; with its own plan they are."""
    with Shared(cluster) as topic:
        topic.commit("slow", 1)
        with closing(topic.join("slow")) as slow:
            report, (planned,) = looker.planned(topic.topic)
            eviction = looker.prepare(report, planned, may_delete=True)
            assert eviction is not None and eviction.how == "delete_records"
            with pytest.raises(CannotEvict, match=f"group {topic.group} has not read"):
                looker.carry_out(eviction)
            # Twelve have been acknowledged, and yet the first is needed.
            topic.accept(8, RECORDS - 1)
            report, (planned,) = looker.planned(topic.topic)
            assert planned.subscription == "slow"
            with pytest.raises(CannotEvict, match=f"group {topic.group} has not read"):
                looker.prepare(report, planned, may_delete=True)
            slow.commit(offsets=[TopicPartition(topic.topic, 0, RECORDS)], asynchronous=False)
            report, (planned,) = looker.planned(topic.topic, 4)
            assert report.ledgers[0].id == 0 and planned.subscription == topic.group
            eviction = looker.prepare(report, planned, may_delete=True)
            # From its start offset on, though it has acknowledged some of these.
            assert eviction is not None and (eviction.how, eviction.messages) == ("delete_records", 15)
            looker.carry_out(eviction)
        assert looker.report(topic.topic).ledgers[0].id == 15
