"""Producers of topics beyond their backlog quota, with real clients: held, refused, and let go on."""

import re
import time
from contextlib import closing

import pytest
from backlog_kit import EXCEPTION, counted, full, until_blocked
from blocked_world import IDEMPOTENT, World, Writer
from confluent_kafka import KafkaError
from kafka import KafkaProducer
from kafka.errors import PolicyViolationError
from kafka.protocol.producer import ProduceResponse
from proxy_kit import until
from tls_kit import Way
from traffic_kit import batch, produce
from wire_client import WireClient


def test_exception_is_told_at_once_with_the_figures(world: World, way: Way) -> None:
    """Both clients fail, one shows the text; others go on; once inside, this one does; it is logged."""
    proxy, topic, other = world.proxy(**way.settings), world.topic(), world.topic()
    world.block(proxy, topic, EXCEPTION)
    text = f"Cannot produce to {full(topic)}: its backlog of 10,240 bytes exceeds the quota"
    writer = Writer(proxy, **IDEMPOTENT, **way.rdkafka)
    writer.write(topic, ["refused"])
    writer.write(other, ["free"])
    errors = writer.done()
    assert errors["free"] is None
    refused = errors["refused"]
    assert refused is not None and refused.code() == KafkaError.POLICY_VIOLATION
    with (
        closing(KafkaProducer(bootstrap_servers=proxy.bootstrap, **way.python)) as python,
        pytest.raises(PolicyViolationError, match=re.escape(text)),
    ):
        python.send(topic, b"refused too").get(20)
    world.lift(proxy, topic)
    writer.write(topic, ["one"])
    # Idempotent, as by default, kafka-python takes an error that is not to be retried for its end.
    with closing(KafkaProducer(bootstrap_servers=proxy.bootstrap, **way.python)) as python:
        assert python.send(topic, b"two").get(20).offset >= 0
    writer.done()
    assert sorted(world.read(topic)) == ["one", "two"]
    until(lambda: len(world.writer.actions(full(topic))) == 2, what="both steps")
    begun, ended = world.writer.actions(full(topic))
    assert (begun["step"], begun["how"], ended["step"], ended["reason"]) == (
        "begun", "refuse", "ended", "inside",
    )  # fmt: skip
    assert begun["id"].removesuffix("/begun") == ended["id"].removesuffix("/ended")
    assert counted(proxy, "refused", EXCEPTION) >= 2


def test_held_records_go_on_in_order(world: World, way: Way) -> None:
    """They wait, others of the same producer do not, and after the lift all are there once."""
    proxy, topic, other = world.proxy(**way.settings), world.topic(), world.topic()
    world.block(proxy, topic)
    writer = Writer(proxy, **IDEMPOTENT, **way.rdkafka)
    values = [f"v{number}" for number in range(20)]
    writer.write(topic, values)
    until(lambda: counted(proxy, "held") > 0, what="a held request")
    for number in range(10):
        writer.write(other, [f"o{number}"])
        until(lambda value=f"o{number}": writer.arrived(value), 5.0, f"o{number}")
    assert world.read(topic) == []
    world.lift(proxy, topic)
    assert set(writer.done().values()) == {None}
    assert world.read(topic) == values


@pytest.mark.soak
def test_what_stays_beyond_fails_by_the_clients_own_timeout(world: World) -> None:
    """message.timeout.ms ends it; nothing of it is written, not even after the lift."""
    proxy, topic = world.proxy(), world.topic()
    world.block(proxy, topic)
    writer = Writer(proxy, **{"message.timeout.ms": "3000", "request.timeout.ms": "1000"})
    writer.write(topic, ["late"])
    begun = time.monotonic()
    late = writer.done()["late"]
    assert late is not None and late.code() == KafkaError._MSG_TIMED_OUT
    assert 2 < time.monotonic() - begun < 20
    # Held to 900 ms each time, then answered: the client never cut the connection.
    assert counted(proxy, "failed") >= 2
    world.lift(proxy, topic)
    assert world.read(topic) == []


@pytest.mark.soak
def test_a_policy_that_is_removed_lifts_at_once(world: World) -> None:
    """No new decision is needed."""
    proxy, topic = world.proxy(), world.topic()
    world.block(proxy, topic)
    writer = Writer(proxy)
    writer.write(topic, ["waits"])
    until(lambda: counted(proxy, "held") == 1, what="a held request")
    world.writer.policies.put(f"topics.{full(topic)}", None)
    assert writer.done(15) == {"waits": None}
    assert world.read(topic) == ["waits"]
    until(lambda: len(world.writer.actions(full(topic))) == 2, what="both steps")
    assert world.writer.actions(full(topic))[1]["reason"] == "policy"


@pytest.mark.soak
def test_without_acks_the_connection_ends(world: World) -> None:
    """Nobody can be told of the error, so the client is to notice that; nothing is written."""
    proxy, topic = world.proxy(), world.topic()
    world.block(proxy, topic, EXCEPTION)
    with WireClient(proxy.bootstrap) as client:
        client.send_frame(produce(9, {topic: [batch(1)]}, 0)[0])
        assert client.closed_within(20)
    assert proxy.metric("closed_connections_total", reason="blocked_without_acks") == 1
    assert counted(proxy, "dropped", EXCEPTION) == 1
    assert world.read(topic) == []


@pytest.mark.soak
@pytest.mark.parametrize("version", [3, 7, 8, 9, 12])
def test_free_partitions_of_a_request_are_written(world: World, version: int) -> None:
    """Held ones are answered with error 7 beside them."""
    proxy, topic = world.proxy(), world.topic(3)
    world.writer.limit(topic)
    until(lambda: world.knows(proxy, topic), what="the policy")
    # A new topic's leaders are not there at once, and a bare connection does not try again.
    first = Writer(proxy)
    for number in range(3):
        first.write(topic, [f"first{number}"], number)
    assert set(first.done().values()) == {None}
    part = f"{full(topic)}-partition-1"
    world.writer.say(part, 10_240)
    until_blocked(proxy, part)
    with WireClient(proxy.bootstrap) as client:
        client.send_frame(produce(version, {topic: [batch(1)] * 3}, -1)[0])
        answer = client.receive(ProduceResponse, version)
    (said,) = answer.responses
    assert {one.index: one.error_code for one in said.partition_responses} == {0: 0, 1: 7, 2: 0}
    assert [len(world.read(topic, number)) for number in range(3)] == [2, 1, 2]
    assert counted(proxy, "split") == 1
