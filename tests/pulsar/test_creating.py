"""Topics that real clients create under a quota on partition mutations, on a real broker."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pulsar as client_library
import pytest
from creation_proxy_kit import Limited
from proxy_kit import until
from pulsar_kit import CLIENTS_LOG, Admin, fresh
from pulsar_proxy_kit import PulsarThread
from pulsar_tools import java_says

from weir.stack.pulsar import LocalPulsar

LONG = {"controller_mutation_rate": 0.01, "controller_mutation_burst": 1}
"""After two mutations the wait is longer than any that is waited."""


@pytest.fixture
def proxy(deciding: PulsarThread) -> Limited:
    """It, and a user who has done nothing yet."""
    return Limited(deciding)


def test_over_the_quota_it_fails_at_once_and_is_not_there(
    proxy: Limited, pulsar: LocalPulsar, admin: Admin
) -> None:
    """The client says which quota, in its log; what exists costs nothing, and other clients nothing."""
    topics = [fresh("over") for _ in range(4)]
    admin.topic(topics[3])
    proxy.limit(**LONG)
    with proxy.client() as connected:
        for topic in topics[:2]:
            connected.create_producer(topic).send(b"x")
        for attach in (connected.create_producer, lambda topic: connected.subscribe(topic, "s")):
            begun = time.monotonic()
            with pytest.raises(client_library.NotAllowedError):
                attach(topics[2])
            assert time.monotonic() - begun < 2
        said = CLIENTS_LOG.read_text().splitlines()
        line = next(line for line in said if "Failed to create producer" in line and topics[2] in line)
        for part in (topics[2], f"user={proxy.user}", "0.01 per second", "burst 1", "retry after"):
            assert part in line
        assert not admin.exists(topics[2])
        before = proxy.balance()
        for topic in (topics[0], topics[3]):
            connected.create_producer(topic).send(b"y")
            connected.subscribe(topic, "s")
        assert before <= proxy.balance() < before + 1
    proxy.limit()
    with proxy.client() as connected:
        connected.create_producer(topics[2]).send(b"z")
    assert admin.exists(topics[2])


def test_a_short_wait_is_waited_and_the_connection_works_on(proxy: Limited, admin: Admin) -> None:
    """Three at once, a second apart, while another producer sends."""
    names = [fresh("wait") for _ in range(4)]
    admin.topic(names[3])
    proxy.limit(controller_mutation_rate=2, controller_mutation_burst=1)
    with proxy.client() as connected, ThreadPoolExecutor(3) as pool:
        busy = connected.create_producer(names[3])
        begun = time.monotonic()
        making = [pool.submit(connected.create_producer, name) for name in names[:3]]
        slowest = 0.0
        while not all(made.done() for made in making):
            sent = time.monotonic()
            busy.send(b"x")
            slowest = max(slowest, time.monotonic() - sent)
            time.sleep(0.02)
        assert all(made.result() for made in making)
        assert 0.2 < time.monotonic() - begun < 5 and slowest < 0.4
    assert proxy.requests("PRODUCER", "allow") >= 3 and all(map(admin.exists, names))


def test_topics_created_with_partitions_cost_those(proxy: Limited, admin: Admin) -> None:
    """The first question of a namespace is charged by what came of it, the partitions nothing more."""
    namespace = admin.namespace(f"public/{fresh('parts')}")
    policy = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 4}
    admin.do("POST", f"namespaces/{namespace}/autoTopicCreation", policy)
    proxy.limit(controller_mutation_rate=0.05, controller_mutation_burst=5)
    with proxy.client() as connected:
        for number in range(2):
            connected.create_producer(f"persistent://{namespace}/t{number}").send(b"x")
        assert -3 <= proxy.balance() < -2.5
        with pytest.raises(client_library.NotAllowedError):
            connected.subscribe(f"persistent://{namespace}/t3", "s")
        connected.subscribe(f"persistent://{namespace}/t1", "s")
        assert -3 <= proxy.balance() < -2
    assert admin.partitions(f"persistent://{namespace}/t1") == 4
    assert admin.partitions(f"persistent://{namespace}/t3") == 0


def test_what_the_broker_forbids_costs_nothing(proxy: Limited, admin: Admin) -> None:
    """The client gets the broker's own error."""
    namespace = admin.namespace(f"public/{fresh('closed')}")
    admin.do("POST", f"namespaces/{namespace}/autoTopicCreation", {"allowAutoTopicCreation": False})
    proxy.limit(controller_mutation_rate=0.05, controller_mutation_burst=5)
    with proxy.client() as connected:
        for number in range(3):
            with pytest.raises(client_library.TopicNotFound):
                connected.create_producer(f"persistent://{namespace}/t{number}")
    assert proxy.balance() == 5


def test_many_clients_create_one_topic_and_pay_once(proxy: Limited, admin: Admin) -> None:
    """All of them get it."""
    topic = fresh("once")
    proxy.limit(controller_mutation_rate=0.05, controller_mutation_burst=5)

    def attach(number: int) -> None:
        with proxy.client() as connected:
            if number % 2:
                connected.subscribe(topic, f"s{number}")
            else:
                connected.create_producer(topic).send(b"x")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(attach, range(8)))
    assert 4 <= proxy.balance() < 4.5


@pytest.mark.soak
def test_a_wait_within_the_bound_creates_normally(proxy: Limited, admin: Admin) -> None:
    """Of about eleven seconds, as the client's own time-outs allow."""
    topics = [fresh("bound") for _ in range(2)]
    proxy.limit(controller_mutation_rate=1, controller_mutation_burst=11)
    proxy.owe(11)
    with proxy.client() as connected:
        begun = time.monotonic()
        connected.create_producer(topics[0]).send(b"x")
        assert 9 < time.monotonic() - begun < 14
        proxy.owe(11)
        begun = time.monotonic()
        connected.subscribe(topics[1], "s")
        assert 9 < time.monotonic() - begun < 14


@pytest.mark.soak
def test_a_client_that_gives_up_while_it_waits_pays_nothing(proxy: Limited, admin: Admin) -> None:
    """It closes what it has not got, and stays; its topics are not created."""
    topics = fresh("gone"), fresh("gone")
    proxy.limit(controller_mutation_rate=1, controller_mutation_burst=11)
    with proxy.client(operation_timeout_seconds=1) as connected:
        # From here on it is known that no partitions come of the question before.
        connected.create_producer(fresh("first"))
        proxy.owe(5)
        with pytest.raises(client_library.Timeout):
            connected.create_producer(topics[0])
        with pytest.raises(client_library.Timeout):
            connected.subscribe(topics[1], "s")
        until(lambda: proxy.count("held") == 0)
        before = proxy.balance()
        time.sleep(6)
        assert not any(map(admin.exists, topics)) and proxy.balance() >= before


@pytest.mark.soak
def test_javas_client_shows_the_quota_at_once(proxy: Limited, admin: Admin) -> None:
    """And waits where the wait is short."""
    names = [fresh("java") for _ in range(3)]
    proxy.limit(**LONG)
    for attach in ("producer", "consumer"):
        lines = _java(proxy, attach, *names)
        assert [line[2] for line in lines[:2]] == ["ok", "ok"]
        name, took, *said = lines[2]
        assert name == names[2] and int(took) < 2_000 and said[0] == "NotAllowedException"
        assert "0.01 per second" in " ".join(said) and not admin.exists(names[2])
    proxy.limit(controller_mutation_rate=1, controller_mutation_burst=11)
    proxy.owe(11)
    # It takes some seconds until Java runs.
    ((_, took, said),) = _java(proxy, "producer", names[2])
    assert said == "ok" and 1_000 < int(took) < 12_000


def _java(proxy: Limited, *args: str) -> list[list[str]]:
    lines = java_says(Path(__file__).with_name("CreateTopic.java"), proxy.service, proxy.user, *args)
    return [line for line in lines if line[0] in args[1:]]
