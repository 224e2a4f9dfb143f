"""What a KafkaCluster reads of a real cluster, beside what the cluster's own tools say of it."""

import time
from contextlib import closing

import pytest
from cluster_kit import Cluster, fresh
from confluent_kafka import Producer, TopicPartition
from kafka_backlog_kit import Lagging, Looker, full_name, rules

from streaming.contract.broker_events import Backlog
from streaming.contract.topics import Cluster as Home
from streaming.kafka_io.admin_client import AdminClient
from streaming.laws.backlog.law import judge

MINUTE_MS = 60_000


def lagging(cluster: Cluster) -> Lagging:
    """A new topic."""
    return Lagging(cluster.kafka.bootstrap, fresh("acme.orders.lag"))


def log_size(cluster: Cluster, topic: str) -> int:
    """What DescribeLogDirs says of a topic's only partition."""
    with closing(AdminClient(cluster=Home(cluster.kafka.bootstrap), timeout_ms=20_000)) as admin:
        answer = admin.describe_log_dirs({topic: [0]})
    return sum(
        part["partition_size"]
        for broker in answer
        for folder in broker["log_dirs"]
        for one in folder["topics"]
        for part in one["partitions"]
        if one["name"] == topic
    )


def subscription_ages(report: Backlog) -> dict[str, int | None]:
    """Publish times by group."""
    return {one.name: one.oldest_publish_time for one in report.subscriptions}


def test_two_groups_one_slow_then_the_other(cluster: Cluster, looker: Looker) -> None:
    """Size within one record of the cluster's own, the slowest named; the other when that catches up."""
    topic = lagging(cluster)
    topic.commit("slow", 0)
    topic.commit("fast", 0)
    topic.write(30)
    topic.commit("fast", 25)
    record = log_size(cluster, topic.topic) / 30
    for slow, fast, oldest in ((0, 25, "slow"), (7, 25, "slow"), (30, 25, "fast")):
        topic.commit("slow", slow)
        topic.commit("fast", fast)
        report = looker.report(topic.topic)
        said = judge(report, rules())
        assert said["oldestBacklogMessageSubscriptionName"] == oldest
        expected = record * (30 - min(slow, fast))
        assert abs(said["backlogSize"] - expected) <= record
    topic.commit("fast", 30)
    assert judge(looker.report(topic.topic), rules())["backlogSize"] == 0
    topic.write(12)
    said = judge(looker.report(topic.topic), rules())
    assert said["oldestBacklogMessageSubscriptionName"] == "fast"
    assert abs(said["backlogSize"] - 12 * record) <= record


def test_publish_times_are_those_of_the_records_at_the_offsets(cluster: Cluster, looker: Looker) -> None:
    """Of the oldest group, or of all; none for who has no backlog; control records have none of their own."""
    topic = lagging(cluster)
    now = time.time_ns() // 1_000_000
    times = [now - minutes * MINUTE_MS for minutes in (9, 7, 5, 3)]
    topic.write(4, times=times)
    for group, offset in (("a", 1), ("b", 3), ("c", 4)):
        topic.commit(group, offset)
    assert subscription_ages(looker.report(topic.topic)) == {"a": None, "b": None, "c": None}
    precise = looker.report(topic.topic, precise_age=True)
    assert subscription_ages(precise) == {"a": times[1], "b": None, "c": None}
    assert subscription_ages(looker.report(topic.topic, expires=True)) == {
        "a": times[1], "b": times[3], "c": None,
    }  # fmt: skip
    producer = Producer({"bootstrap.servers": cluster.kafka.bootstrap, "transactional.id": fresh("tx")})
    producer.init_transactions(20)
    for number in range(2):
        producer.begin_transaction()
        producer.produce(topic.topic, b"tx", partition=0, timestamp=now + number)
        producer.commit_transaction(20)
    # Offsets 4 and 6 are records, 5 and 7 the ends of their transactions.
    topic.commit("b", 5)
    topic.commit("c", 7)
    ages = subscription_ages(looker.report(topic.topic, expires=True))
    assert ages == {"a": times[1], "b": now + 1, "c": None}


@pytest.mark.soak
def test_ages_survive_a_restart(cluster: Cluster) -> None:
    """A collector that sees a topic first divides it by the time index: its age is within a factor of two."""
    topic = lagging(cluster)
    now = time.time_ns() // 1_000_000
    topic.write(20, times=[now - (20 - number) * MINUTE_MS for number in range(20)])
    topic.commit("slow", 0)
    with Looker(cluster.kafka.bootstrap) as first:
        report = first.report(topic.topic)
    said = judge(report, rules(precise=False))
    assert 10 * 60 <= said["oldestBacklogMessageAgeSeconds"] <= 20 * 60 + 30
    assert len(report.ledgers) > 4
    assert sum(one.entries for one in report.ledgers) == 20
    assert abs(sum(one.size for one in report.ledgers) - log_size(cluster, topic.topic)) <= 1


@pytest.mark.soak
def test_partitions_are_topics(cluster: Cluster, looker: Looker) -> None:
    """Of several, each is one; Weir's own topics and Kafka's are none."""
    topic = Lagging(cluster.kafka.bootstrap, fresh("acme.orders.parts"), 2)
    topic.write(5, partition=1)
    topic.commit("slow", 2, partition=1)
    reports = {one.topic: one for one in looker.look().reports}
    first, second = (reports[f"{full_name(topic.topic)}-partition-{number}"] for number in range(2))
    assert first.subscriptions == () and [one.name for one in second.subscriptions] == ["slow"]
    assert not [name for name in reports if "weir." in name or "__consumer" in name]


def test_a_recreated_topic_begins_anew(cluster: Cluster, looker: Looker) -> None:
    """Its stretches are those of the new one, though it is longer than the old one was."""
    topic = lagging(cluster)
    topic.write(5)
    topic.commit("slow", 0)
    before = looker.report(topic.topic)
    topic.recreate()
    topic.write(8)
    topic.commit("slow", 0)
    after = looker.report(topic.topic)
    assert [one.entries for one in before.ledgers] == [5, 0]
    assert [one.entries for one in after.ledgers] == [8, 0]
    assert after.ledgers[0].close_time is not None and after.ledgers[0].close_time > before.ts


def test_deleted_records_are_no_backlog(cluster: Cluster, looker: Looker) -> None:
    """Committed offsets before the log's beginning stand at it."""
    topic = lagging(cluster)
    topic.write(10)
    topic.commit("slow", 1)
    looker.look()
    for done in topic.admin.delete_records([TopicPartition(topic.topic, 0, 6)]).values():
        done.result(20)
    report = looker.report(topic.topic)
    assert [(one.id, one.entries) for one in report.ledgers] == [(6, 4), (10, 0)]
    own = report.subscriptions[0]
    assert (own.ledger, own.entry) == (6, -1)
    record = log_size(cluster, topic.topic) / 10
    assert abs(judge(report, rules())["backlogSize"] - 4 * record) <= record
