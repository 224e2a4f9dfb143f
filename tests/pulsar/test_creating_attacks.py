"""Ways round the quota on partition mutations over Pulsar's binary protocol, tried on a real broker.

Each user has burst 2 at a rate of next to nothing: balance 2, so three topics are created (the last one into
debt) and not one more.
"""

import time
from contextlib import ExitStack

import pytest
from creation_proxy_kit import Limited
from proxy_kit import until
from pulsar_kit import Admin, fresh
from pulsar_proxy_kit import PulsarThread
from raw_pulsar import RawPulsar

from enforcer.wire.pulsar import frames
from enforcer.wire.pulsar.commands import ServerError, command

pytestmark = pytest.mark.soak

CREATED = 3
"""Topics that the quota allows."""


@pytest.fixture
def proxy(deciding: PulsarThread) -> Limited:
    """It, and a user under a quota."""
    limited = Limited(deciding)
    limited.limit(controller_mutation_rate=0.0001, controller_mutation_burst=2)
    return limited


def served(proxy: Limited, namespace: str) -> None:
    """All bundles of the namespace are served, so that no PRODUCER is refused for want of a lookup."""
    with RawPulsar(proxy.service, "somebody") as raw:
        raw.send(
            *(
                command(frames.LOOKUP, topic=f"persistent://{namespace}/t{number}", request_id=number)
                for number in range(60)
            )
        )
        raw.answers(60)


@pytest.fixture
def namespace(proxy: Limited, admin: Admin) -> str:
    """An empty namespace, served by the broker."""
    name = admin.namespace(f"public/{fresh('attack')}")
    served(proxy, name)
    return name


def producer(name: str, number: int, request_id: int | None = None) -> bytes:
    """A PRODUCER; its request id is the producer's unless said otherwise."""
    request_id = number if request_id is None else request_id
    return command(frames.PRODUCER, topic=name, producer_id=number, request_id=request_id)


def spend(proxy: Limited, namespace: str) -> None:
    """Use up by new topics what an attack has left of the quota, until one is refused for it."""
    with RawPulsar(proxy.service, proxy.user) as raw:
        for number in range(CREATED + 1):
            raw.send(producer(f"persistent://{namespace}/last{number}", number))
            kind, body = raw.receive()
    assert kind == frames.ERROR and body.error == ServerError.NOT_ALLOWED


def test_all_at_once(proxy: Limited, namespace: str, admin: Admin) -> None:
    """Many names in one go, from several connections, as producers and consumers."""
    with ExitStack() as stack:
        raws = [stack.enter_context(RawPulsar(proxy.service, proxy.user)) for _ in range(3)]
        for place, raw in enumerate(raws):
            names = [f"persistent://{namespace}/t{place * 20 + number}" for number in range(20)]
            raw.send(
                *(producer(name, number) for number, name in enumerate(names[:10])),
                *(
                    command(
                        frames.SUBSCRIBE, topic=name, subscription="s", consumer_id=number, request_id=number
                    )
                    for number, name in enumerate(names[10:], 10)
                ),
            )
        answers = [answer for raw in raws for answer in raw.answers(20)]
    refused = [body for kind, body in answers if kind == frames.ERROR]
    assert len(refused) == 60 - CREATED and {body.error for body in refused} == {22}
    assert len(admin.topics(namespace)) == CREATED


def test_refusals_that_are_forged(proxy: Limited, namespace: str, admin: Admin) -> None:
    """Another request fails under the id of a PRODUCER, before the topic is there."""
    with ExitStack() as stack:
        for number in range(8):
            # Another part of the connection may end it for that.
            raw = stack.enter_context(RawPulsar(proxy.service, proxy.user))
            raw.send(producer(f"persistent://{namespace}/t{number}", number, 7))
            time.sleep(0.002 * number)
            raw.send(command(frames.UNSUBSCRIBE, consumer_id=99, request_id=7))
            assert raw.receive()[0] in (frames.ERROR, frames.PRODUCER_SUCCESS)
        time.sleep(1.5)
        assert len(admin.topics(namespace)) == CREATED
    assert -1 <= proxy.balance() < 0


def test_other_ways_to_write_a_name(proxy: Limited, namespace: str, admin: Admin) -> None:
    """Each is one topic, and paid."""
    names = [
        f"{start}{namespace}/{name}"
        for start in ("persistent://", "", "Persistent://", "PERSISTENT://")
        for name in ("x", "x%2Fy", "x-partition-0", "x-partition-01", "__y", "y\u2028z")
    ]
    with RawPulsar(proxy.service, proxy.user) as raw:
        for number, name in enumerate(names):
            raw.send(producer(name, number))
            raw.receive()
    assert 0 < len(admin.topics(namespace)) <= CREATED


def test_partitions_that_their_topic_has_not(proxy: Limited, namespace: str, admin: Admin) -> None:
    """The partitioned topic's own name, and partitions beyond."""
    for number in range(4):
        admin.topic(f"persistent://{namespace}/p{number}", 1)
    before = len(admin.topics(namespace))
    with RawPulsar(proxy.service, proxy.user) as raw:
        raw.send(
            *(
                producer(f"persistent://{namespace}/p{number % 4}{end}", number)
                for number, end in enumerate(["", "", "", "", *["-partition-7"] * 4])
            )
        )
        raw.answers(8)
    spend(proxy, namespace)
    assert len(admin.topics(namespace)) - before <= CREATED


def test_partitioned_topics_all_at_once(proxy: Limited, namespace: str, admin: Admin) -> None:
    """A question creates several partitions; the next one waits for the debt."""
    policy = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 5}
    admin.do("POST", f"namespaces/{namespace}/autoTopicCreation", policy)
    with RawPulsar(proxy.service, proxy.user) as raw:
        for domain in ("persistent", "non-persistent"):
            names = [f"{domain}://{namespace}/t{number}" for number in range(30)]
            raw.send(
                *(
                    command(frames.PARTITIONED_METADATA, topic=name, request_id=number)
                    for number, name in enumerate(names)
                )
            )
            raw.answers(30)
    made = [
        name
        for domain in ("persistent", "non-persistent")
        for name in admin.do("GET", f"{domain}/{namespace}/partitioned")
    ]
    # One is charged until it is known what comes of it, so as many as the balance has are under way.
    assert 1 <= len(made) <= CREATED
    assert proxy.balance() < 2 - 5 * len(made) + 0.1


def test_a_client_that_closes_or_leaves_at_once(proxy: Limited, namespace: str, admin: Admin) -> None:
    """What was created is paid, however soon it goes."""
    for number in range(10):
        with RawPulsar(proxy.service, proxy.user) as raw:
            name = f"persistent://{namespace}/t{number}"
            if number % 2:
                raw.send(producer(name, 1), command(frames.CLOSE_PRODUCER, producer_id=1, request_id=2))
            else:
                raw.send(producer(name, 1))
            time.sleep(0.01 * (number % 5))
    until(lambda: proxy.count("held") == 0)
    time.sleep(0.5)
    spend(proxy, namespace)
    assert len(admin.topics(namespace)) <= CREATED
    assert proxy.balance() <= 2 - len(admin.topics(namespace)) + 0.1


def test_the_same_producer_for_many_topics(proxy: Limited, namespace: str, admin: Admin) -> None:
    """The broker has a producer under this number already, and says yes to whatever it is asked for."""
    for same in (True, False):
        with RawPulsar(proxy.service, proxy.user) as raw:
            for number in range(6):
                raw.send(producer(f"persistent://{namespace}/t{number}", 1 if same else number, number))
                raw.receive()
    assert 0 < len(admin.topics(namespace)) <= CREATED


def test_request_ids_twice(proxy: Limited, namespace: str, admin: Admin) -> None:
    """The connection ends; those that follow pay on."""
    for number in range(0, 8, 2):
        with RawPulsar(proxy.service, proxy.user) as raw:
            raw.send(
                producer(f"persistent://{namespace}/t{number}", 1, 1),
                producer(f"persistent://{namespace}/t{number + 1}", 2, 1),
            )
            assert raw.receive()[0] in (0, frames.PRODUCER_SUCCESS)
    time.sleep(0.5)
    spend(proxy, namespace)
    assert len(admin.topics(namespace)) <= CREATED
