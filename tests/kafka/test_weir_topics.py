"""Weir's topics as a real broker tells of them: how they must be, and what makes them otherwise."""

import pytest
from cluster_kit import Cluster, fresh
from confluent_kafka.admin import AdminClient, NewTopic
from proxy_kit import until
from stack_kit import alter, put

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster as Where
from streaming.contract.topics import Topics
from streaming.kafka_io.weir_topics import Fault, TopicsSeen, look, topic_settings
from weir.stack.topics import check_topics, ensure_topics

LIMIT_S = 10.0


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    """Straight to the broker."""
    return AdminClient({"bootstrap.servers": cluster.kafka.bootstrap})


def seen(cluster: Cluster, admin: AdminClient, topics: Topics) -> TopicsSeen:
    """One look."""
    return look(admin, Where(cluster.kafka.bootstrap, topics), LIMIT_S)


def faults(found: TopicsSeen) -> set[tuple[str, Fault]]:
    """What is wrong, by topic."""
    return {(each.topic, each.fault) for each in found.faults}


def test_a_look_makes_no_topic_and_one_of_ours_has_no_fault(cluster: Cluster, admin: AdminClient) -> None:
    """All are missing, still after the second look, though this broker makes topics; then they are made."""
    topics = Topics(f"{fresh('look')}.")
    for _ in range(2):
        assert faults(seen(cluster, admin, topics)) == {(name, Fault.MISSING) for name in topics.all()}
    ensure_topics(Where(cluster.kafka.bootstrap, topics), partitions=2)
    found = seen(cluster, admin, topics)
    assert (found.faults, set(found.ids)) == ((), set(topics.all()))
    assert len(set(found.ids.values())) == 5


def test_topics_that_a_client_made_are_told_apart(cluster: Cluster, admin: AdminClient) -> None:
    """What the broker makes of a record that comes: wrong, or right by chance, and never taken for ours."""
    topics = Topics(f"{fresh('made')}.")
    for name in topics.all():
        put(cluster.kafka.bootstrap, name, b"x")
    found = seen(cluster, admin, topics)
    assert faults(found) == {
        (topics.requests, Fault.TIMESTAMPS), (topics.usage, Fault.TIMESTAMPS),
        (topics.policies, Fault.TIMESTAMPS), (topics.policies, Fault.CLEANUP),
        (topics.policies, Fault.PARTITIONS),
        (topics.decisions, Fault.NOT_OURS), (topics.deadletter, Fault.NOT_OURS),
    }  # fmt: skip
    where = Where(bootstrap=cluster.kafka.bootstrap, topics=topics, client={})
    for refused in (lambda: ensure_topics(where), lambda: check_topics(where)):
        with pytest.raises(WeirError, match=r"policies has 3 partitions; Weir needs 1.*kafka-topics"):
            refused()


def test_the_commands_that_are_told_mend_it(cluster: Cluster, admin: AdminClient) -> None:
    """What --add-config says, set on a topic that a client made, leaves nothing wrong with it."""
    topics = Topics(f"{fresh('mend')}.")
    made = admin.create_topics([NewTopic(name, 1) for name in topics.all()])
    assert all(future.result(LIMIT_S) is None for future in made.values())
    found = seen(cluster, admin, topics)
    assert len(found.faults) == 6
    settings = topic_settings(topics)
    for each in found.faults:
        add = ",".join(f"{key}={value}" for key, value in settings[each.topic].items())
        assert each.text.endswith(f"--entity-name {each.topic} --add-config {add}")
    for name, wanted in settings.items():
        alter(admin, name, wanted).result(LIMIT_S)
    # The broker answers before it shows what it has changed.
    until(lambda: seen(cluster, admin, topics).faults == (), what="topics as they must be")


def test_topics_that_forget_too_soon(cluster: Cluster, admin: AdminClient) -> None:
    """What parts read back stops a start, what is only shorter than it is to be is said."""
    topics = Topics(f"{fresh('forgets')}.")
    where = Where(cluster.kafka.bootstrap, topics, topics_kept_ms=4_000_000)
    ensure_topics(where)
    alter(admin, topics.usage, {"retention.bytes": 1000000}).result(LIMIT_S)
    alter(admin, topics.requests, {"retention.ms": 3999999}).result(LIMIT_S)
    said = {(topics.usage, Fault.KEEPS_LESS), (topics.requests, Fault.KEEPS_LESS)}
    until(lambda: faults(look(admin, where, LIMIT_S)) == said, what="topics that hold less")
    assert ensure_topics(where) == []
    check_topics(where)
    alter(admin, topics.decisions, {"retention.ms": 60000}).result(LIMIT_S)
    until(lambda: (topics.decisions, Fault.FORGETS) in faults(look(admin, where, LIMIT_S)))
    for refused in (lambda: ensure_topics(where), lambda: check_topics(where)):
        with pytest.raises(WeirError, match=r"decisions exists with retention.ms=60000; Weir needs 600000"):
            refused()


def test_an_absent_cluster_keeps_nobody_from_starting(admin: AdminClient) -> None:
    """Whoever waits for it may start; a look itself says that nobody answers."""
    check_topics(Where(bootstrap="127.0.0.1:1", topics=Topics(), client={}), limit_s=1)
    with pytest.raises(WeirError, match="does not answer"):
        look(AdminClient({"bootstrap.servers": "127.0.0.1:1"}), Where("127.0.0.1:1"), 1)
