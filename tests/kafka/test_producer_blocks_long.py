"""Blocked producers: blocks that come and go under load, Java's clients, a proxy that is killed."""

import time
from contextlib import closing
from pathlib import Path

import pytest
from backlog_kit import EXCEPTION, counted, full, now_ms, until_blocked
from blocked_world import IDEMPOTENT, World, Writer
from confluent_kafka import KafkaError, Producer
from consuming_kit import confluent
from kafka import KafkaProducer
from process_kit import Command
from proxy_kit import until
from stack_kit import run_java
from threaded import Threaded

from weir.stack.kafka import free_port

pytestmark = pytest.mark.soak


class Flapping(Threaded):
    """Puts a topic beyond its quota and inside again, until it is left."""

    def __init__(self, world: World, topic: str, period_s: float) -> None:
        super().__init__(self._run)
        self._world, self._topic, self._period_s = world, topic, period_s

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._world.writer.say(full(self._topic), 0)

    def _run(self) -> None:
        size = 10_240
        while not self._stopping.wait(self._period_s):
            self._world.writer.say(full(self._topic), size)
            size = 10_240 - size


@pytest.mark.parametrize("in_flight", ["1", "5"])
def test_nothing_is_lost_or_twice_while_blocks_come_and_go(world: World, in_flight: str) -> None:
    """Idempotent producers write in order, whatever is held, answered with 7 or let go in between."""
    proxy, topic = world.proxy(), world.topic()
    world.block(proxy, topic)
    writers = [Writer(proxy, **IDEMPOTENT, **{"max.in.flight": in_flight}) for _ in range(3)]
    with Flapping(world, topic, 0.4):
        for number in range(400):
            for name, writer in enumerate(writers):
                writer.write(topic, [f"{name}:{number}"])
            time.sleep(0.015)
    for writer in writers:
        assert set(writer.done(90).values()) == {None}
    written = world.read(topic)
    for name in range(3):
        assert [value for value in written if value.startswith(f"{name}:")] == [
            f"{name}:{number}" for number in range(400)
        ]
    assert counted(proxy, "held") > 5 and counted(proxy, "passed") > 0


def test_kafka_python_waits_and_goes_on_in_order(world: World) -> None:
    """Its records to another topic do not wait; after the lift all are there once."""
    proxy, topic, other = world.proxy(), world.topic(), world.topic()
    world.block(proxy, topic)
    with closing(KafkaProducer(bootstrap_servers=proxy.bootstrap)) as python:
        held = [python.send(topic, b"v%d" % number) for number in range(10)]
        until(lambda: counted(proxy, "held") > 0, what="a held request")
        for _ in range(5):
            python.send(other, b"free").get(20)
        assert world.read(topic) == []
        world.lift(proxy, topic)
        for future in held:
            future.get(40)
    assert world.read(topic) == [f"v{number}" for number in range(10)]
    assert len(world.read(other)) == 5


def test_one_request_on_its_way_holds_up_others_but_for_a_second(world: World) -> None:
    """A client that sends no more than one cannot be seen to wait: at first once for all of the time."""
    proxy, topic, other = world.proxy(backlog_hold_ms=5_000), world.topic(), world.topic()
    world.block(proxy, topic)
    writer = Writer(proxy, **IDEMPOTENT, **{"max.in.flight": "1"})
    writer.write(topic, [f"v{number}" for number in range(20)])
    until(lambda: counted(proxy, "held") > 0, what="a held request")
    for number in range(8):
        writer.write(other, [f"o{number}"])
        until(lambda value=f"o{number}": writer.arrived(value), 20.0, f"o{number}")
    world.lift(proxy, topic)
    assert set(writer.done().values()) == {None}
    assert world.read(topic) == [f"v{number}" for number in range(20)]


def test_java_transactions_while_blocks_come_and_go(world: World) -> None:
    """Java's producer, with topic ids and transactions: all records are there once."""
    proxy, topic = world.proxy(), world.topic(1)
    world.block(proxy, topic)
    with Flapping(world, topic, 0.7):
        done = run_java(
            "org.apache.kafka.tools.ProducerPerformance",
            "--topic", topic, "--num-records", "6000", "--record-size", "100", "--throughput", "1000",
            "--transactional-id", topic, "--transaction-duration-ms", "200",
            "--command-property", f"bootstrap.servers={proxy.bootstrap}", limit_s=120,
        )  # fmt: skip
    assert done.returncode == 0 and "6000 records sent" in done.stdout, done.stdout + done.stderr
    assert len(world.read(topic)) == 6_000
    # A reader of what is committed: the last transaction was ended too.
    assert len(confluent(world.cluster.kafka.bootstrap, topic, topic, 6_000)) == 6_000
    assert counted(proxy, "held") > 2


def test_java_sees_the_text_of_an_exception(world: World) -> None:
    """The console producer prints it and fails at once."""
    proxy, topic = world.proxy(), world.topic()
    world.block(proxy, topic, EXCEPTION)
    begun = time.monotonic()
    words = ("--bootstrap-server", proxy.bootstrap, "--topic", topic)
    done = run_java("org.apache.kafka.tools.ConsoleProducer", *words, stdin="one\n")
    assert "exceeds the quota destination_storage of 5,000 bytes" in done.stdout + done.stderr
    assert time.monotonic() - begun < 30
    assert world.read(topic) == []


def test_a_statement_that_is_too_old(world: World) -> None:
    """Producers go on, or not, as the settings say; the job repeats it all the same."""
    going, kept = world.proxy(), world.proxy(backlog_stale="keep")
    topic = world.topic()
    world.block(going, topic)
    until_blocked(kept, full(topic))
    world.writer.policies.put("broker", {"backlogQuotaCheckIntervalInSeconds": 1})
    world.writer.say(full(topic), 10_240, ts=now_ms() - 56_000)
    # An older one says nothing.
    time.sleep(1)
    until_blocked(going, full(topic))
    other = world.topic()
    world.writer.limit(other)
    for proxy in (going, kept):
        until(lambda proxy=proxy: world.knows(proxy, other), what="the policy")
    world.writer.say(full(other), 10_240, ts=now_ms() - 55_000)
    until_blocked(going, full(other))
    writer = Writer(going)
    writer.write(other, ["waits"])
    assert writer.done(20) == {"waits": None}
    until_blocked(kept, full(other))


def test_a_proxy_that_is_killed_comes_back_with_its_blocks(world: World, tmp_path: Path) -> None:
    """Read back before the first client is let in; what was held in the old one is not lost, nor twice."""
    topic, listen = world.topic(), f"127.0.0.1:{free_port()}"
    world.writer.limit(topic)
    words = ("proxy", "--kafka", world.cluster.kafka.bootstrap, "--listen", listen)
    own = {"topic_prefix": world.topics.prefix}
    blocked_id = world.writer.say(full(topic), 10_240)
    producer_errors: dict[str, KafkaError | None] = {}
    producer = Producer({"bootstrap.servers": listen, "linger.ms": "0", "log_level": "0", **IDEMPOTENT})

    def begun() -> list[str]:
        return [said["id"] for said in world.writer.actions(full(topic)) if said["step"] == "begun"]

    def note(error: KafkaError | None, message: object) -> None:
        producer_errors[message.value().decode()] = error  # type: ignore[attr-defined]

    with Command(tmp_path / "one", *words, kafka=own) as first_proxy:
        for number in range(3):
            producer.produce(topic, f"v{number}", partition=0, on_delivery=note)
        until(lambda: (producer.poll(0), begun())[1], 60, "a held request")
        first_proxy.process.kill()
        first_proxy.process.wait(10)
    with Command(tmp_path / "two", *words, kafka=own):
        until(lambda: (producer.poll(0), len(begun()) == 2)[1], 60, "a held request at the second")
        assert world.read(topic) == [] and not producer_errors
        world.writer.say(full(topic), 0)
        assert producer.flush(40) == 0
    first, second = begun()
    assert first != second and first.startswith(f"{blocked_id}/size/")
    assert world.read(topic) == ["v0", "v1", "v2"]
    assert set(producer_errors.values()) == {None}
