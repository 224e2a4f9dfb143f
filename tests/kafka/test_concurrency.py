"""Concurrency limits before a real broker; a relay behind the proxy counts what is in flight."""

import os
import signal
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import orjson
import pytest
from cluster_kit import Cluster, fresh
from confluent_kafka import Consumer
from kafka.protocol.producer import ProduceResponse
from limited_broker import FIXED, LIMIT, PATIENCE_S, Load, Start, World, partition, worlds
from proxy_kit import ProxyThread, until
from stack_kit import put, read_all
from tls_kit import Way
from wire_client import WireClient, errors

from enforcer.core import bounds
from streaming.contract.topics import Topics

PRODUCERS = 64
HEARTBEAT = struct.pack(">hhih", 12, 0, 99, -1) + struct.pack(">h1sih1s", 1, b"g", 0, 1, b"m")


def metric(proxy: ProxyThread, name: str, **labels: str) -> float:
    """One of the broker's metrics."""
    (name_of,) = proxy.proxy.concurrency.partitions.known
    return proxy.sample(name, partition=name_of, **labels)


@pytest.fixture
def start(cluster: Cluster, topics: Topics, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """See `worlds`."""
    with worlds(cluster, topics, monkeypatch) as make:
        yield make


def loaded(world: World, count: int, producers: int = PRODUCERS) -> Load:
    """All producers write so many records each."""
    return Load(world.client, world.topic, count, producers)


@pytest.mark.soak
def test_a_limit_holds_under_many_producers(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 producers, a limit of 8: never more at the broker, every record once, nothing left in the end."""
    # Nothing is given up because the machine is busy.
    monkeypatch.setattr(bounds, "SLOT_DEADLINE_MS", 600_000)
    world = start(inflight_wait_ms=600_000)
    world.limit(FIXED)
    world.relay.delay_s = 0.005
    records = 20
    with loaded(world, records) as failed:
        until(lambda: world.relay.most == LIMIT, PATIENCE_S, what="all slots taken")
    assert failed == []
    assert world.relay.most == LIMIT
    written = read_all(world.cluster.kafka.bootstrap, world.topic)
    assert sorted(map(int, written)) == list(range(PRODUCERS * records))
    found = partition(world.proxy)
    until(lambda: found.limiter.in_flight == 0, what="all slots free")
    assert (found.limiter.waiting, found.limiter.dropped) == (0, 0)
    # It has less while it does not hear of itself, as a broker without a processor tells nobody.
    until(lambda: metric(world.proxy, "zeebe_backpressure_requests_limit") == LIMIT, what="its whole limit")
    assert metric(world.proxy, "zeebe_stream_processor_latency_sum") > 0.0


@pytest.mark.parametrize("way", ["tls"], indirect=True)
def test_a_limit_holds_over_tls(start: Start, way: Way) -> None:
    """Clients that log in wait for slots, and lose nothing."""
    world = start(way=way)
    world.limit(FIXED)
    world.relay.open.clear()
    with loaded(world, 2, 2 * LIMIT) as failed:
        until(lambda: world.relay.in_flight == LIMIT, what="all slots taken")
        until(lambda: partition(world.proxy).limiter.waiting, what="others wait")
        world.relay.open.set()
    assert failed == [] and world.relay.most == LIMIT


def test_while_all_slots_are_taken(start: Start) -> None:
    """Mutations get 89, heartbeats pass, all else waits; what waits too long fails by protocol."""
    world = start(inflight_wait_ms=1_500)
    world.limit(FIXED)
    world.relay.open.clear()
    with ExitStack() as stack:
        clients = [stack.enter_context(WireClient(world.proxy.bootstrap)) for _ in range(LIMIT + 1)]
        for client in clients[:LIMIT]:
            world.produce(client)
        until(lambda: world.relay.in_flight == LIMIT, what="all slots taken")
        with WireClient(world.proxy.bootstrap) as admin:
            told = admin.create({fresh("never"): 1})
            assert [*errors(told).values()] == [89]
            assert 0 < told.throttle_time_ms <= 100
        with WireClient(world.proxy.bootstrap) as member:
            member.send_frame(HEARTBEAT)
            assert member.receive_frame()[:4] == (99).to_bytes(4, "big")
        with WireClient(world.proxy.bootstrap) as other:
            world.produce(clients[LIMIT])
            other.send_frame(struct.pack(">hhih", 16, 0, 5, -1))
            late = clients[LIMIT].receive(ProduceResponse, 9)
            assert late.responses[0].partition_responses[0].error_code == 7
            assert other.closed_within(20)
        assert world.relay.most == LIMIT
        world.relay.open.set()
        for client in clients[:LIMIT]:
            done = client.receive(ProduceResponse, 9)
            assert done.responses[0].partition_responses[0].error_code == 0
        # A connection whose Produce failed goes on.
        world.produce(clients[LIMIT])
        done = clients[LIMIT].receive(ProduceResponse, 9)
        assert done.responses[0].partition_responses[0].error_code == 0
    assert metric(world.proxy, "zeebe_dropped_request_count_total") == 3
    assert metric(world.proxy, "weir_concurrency_exempt_requests_total", **{"class": "heartbeat"}) == 1


def test_killed_connections_leak_nothing(start: Start) -> None:
    """Clients that vanish in the middle, and a broker connection that does: all slots come back."""
    world = start()
    world.limit(FIXED)
    found = partition(world.proxy)
    for _ in range(3):
        world.relay.open.clear()
        clients = [WireClient(world.proxy.bootstrap) for _ in range(3 * LIMIT)]
        for client in clients:
            world.produce(client)
        until(lambda: world.relay.in_flight == LIMIT, what="all slots taken")
        until(lambda: found.limiter.waiting > 0, what="a line")
        for client in clients:
            # At once, by a reset.
            client.socket.setsockopt(1, 13, struct.pack("ii", 1, 0))
            client.socket.close()
        world.relay.open.set()
        until(lambda: found.limiter.in_flight == found.limiter.waiting == 0, what="all slots free")
    assert world.relay.most == LIMIT
    world.relay.open.clear()
    with WireClient(world.proxy.bootstrap) as client:
        world.produce(client)
        until(lambda: world.relay.in_flight == 1, what="one slot taken")
        world.relay.cut()
        assert client.closed_within(20)
        until(lambda: found.limiter.in_flight == 0, what="its slot is free")
    world.relay.open.set()


@pytest.mark.soak
def test_the_brain_away_and_back(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a job the law goes on here, by our own samples; a decision takes the limit back."""
    monkeypatch.setattr(bounds, "BRAIN_AWAY_MS", 1_000)
    world = start()
    aimd = {"algorithm": "aimd", "useWindowed": False, "aimd": {"initialLimit": 4}}
    world.limit(aimd)
    found = partition(world.proxy)
    assert found.limiter.limit == 4
    # As fast as they come: half the limit is in use, and the limit grows by one a sample.
    with loaded(world, 20) as failed:
        until(lambda: found.in_force.local, what="the limit learned here")
        assert metric(world.proxy, "weir_concurrency_local") == 1
        until(lambda: found.limiter.limit > 6, what="a limit that grows")
    assert failed == []
    assert metric(world.proxy, "weir_concurrency_limit_change_total", reason="increase") > 0
    (name,) = world.proxy.proxy.concurrency.partitions.known  # type: ignore[union-attr]
    decided = {
        "type": "limit", "id": "l1", "ts": time.time_ns() // 1_000_000, "partition": name,
        "algorithm": "aimd", "limit": 3, "estimated_limit": 3.0,
    }  # fmt: skip
    put(world.cluster.kafka.bootstrap, world.topics.decisions, decided, key=name)
    until(lambda: found.limiter.limit == 3, what="the job's limit")
    assert metric(world.proxy, "weir_concurrency_local") == 0
    assert metric(world.proxy, "weir_concurrency_samples_total", what="sent") > 0


@pytest.mark.soak
def test_a_job_that_has_nothing_to_say_is_not_away(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for a sign; the limit stays the job's for as long as it answers."""
    monkeypatch.setattr(bounds, "BRAIN_AWAY_MS", 15_000)
    world = start(job=True)
    world.limit(FIXED)
    found = partition(world.proxy)
    measuring = world.proxy.proxy.concurrency  # type: ignore[union-attr]
    clock = world.proxy.proxy.enforcement.context.clock  # type: ignore[union-attr]
    with WireClient(world.proxy.bootstrap) as client:

        def unheard_ms() -> float:
            world.produce(client)
            client.receive_frame()
            return float(found.in_force.unheard_ms(clock.steady_ms()))

        until(lambda: unheard_ms() >= 0 and measuring._asked_ms > 0, what="a question")
        # Asked after a third of the time; only an answer makes it less again.
        until(lambda: unheard_ms() < 15_000 / 3, what="an answer")
    assert not found.in_force.local


def test_samples_reach_the_topic(start: Start) -> None:
    """As `latency` events of the broker's partition, with the brokers' time."""
    world = start()
    world.limit(FIXED)
    reader = Consumer(
        {"bootstrap.servers": world.cluster.kafka.bootstrap, "group.id": fresh("reader"),
         "auto.offset.reset": "earliest", "log_level": "0"}
    )  # fmt: skip
    reader.subscribe([world.topics.usage])
    with WireClient(world.proxy.bootstrap) as client:
        world.produce(client)
        client.receive_frame()

    def told() -> dict[str, Any] | None:
        for message in reader.consume(100, 1.0):
            if message.error() is None and b'"latency"' in message.value():
                assert message.key().decode() == orjson.loads(message.value())["partition"]
                return orjson.loads(message.value())  # type: ignore[no-any-return]
        return None

    event = until(told, what="samples")
    reader.close()
    assert event["partition"].startswith("broker-")
    now_ms = time.time_ns() // 1_000_000
    for start_ns, rtt_ns, inflight, did_drop in event["samples"]:
        assert abs(start_ns // 1_000_000 - now_ms) < 60_000
        assert rtt_ns > 0 and inflight >= 1 and did_drop is False


def test_two_proxies_divide_a_limit(start: Start) -> None:
    """Nobody has a share, so those alive have the same part each: together never more than the limit."""
    world, second = start(), start()
    for each in (world, second):
        each.limit(FIXED)
        until(lambda each=each: partition(each.proxy).limiter.limit == LIMIT // 2, what="half of it each")
    world.relay.delay_s = 0.01
    # Few of them: a client takes as much of a processor as what it asks for.
    with loaded(world, 20, 2 * LIMIT) as failed, loaded(second, 20, 2 * LIMIT) as failed_too:
        until(lambda: world.relay.in_flight == LIMIT, what="all slots taken")
    assert failed == failed_too == []
    assert world.relay.most == LIMIT


@pytest.mark.soak
def test_a_broker_that_runs_a_tenth_of_the_time(
    start: Start, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process stopped and continued in short turns: the limit falls, and rises again afterwards."""
    monkeypatch.setattr(bounds, "BRAIN_AWAY_MS", 500)
    world = start()
    world.limit(
        {"algorithm": "aimd", "useWindowed": False,
         "aimd": {"initialLimit": 64, "maxLimit": 64, "requestTimeout": "150ms"}}
    )  # fmt: skip
    found = partition(world.proxy)
    done = threading.Event()

    def traffic(number: int) -> None:
        with WireClient(world.proxy.bootstrap, f"load-{number}") as client:
            while not done.is_set():
                world.produce(client)
                client.receive_frame(60)

    threads = [threading.Thread(target=traffic, args=(number,)) for number in range(PRODUCERS)]
    for thread in threads:
        thread.start()
    until(lambda: found.in_force.local, what="the limit learned here")
    (pid,) = cluster.kafka.pids
    lowest = found.limiter.limit
    try:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.45)
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.05)
            lowest = min(lowest, found.limiter.limit)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert lowest < 32
    until(lambda: found.limiter.limit > lowest, what="a limit that rises again")
    done.set()
    for thread in threads:
        thread.join()
    until(lambda: found.limiter.in_flight == 0, what="all slots free")
