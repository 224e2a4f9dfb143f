"""Which connections are counted, and by whose limiter."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from concurrency_kit import FIXED_2, decided
from mutation_kit import Desk

from benchmarks.kit.lone_proxy import enforce
from enforcer.kafka.addresses.brokers import Brokers
from enforcer.laws.concurrency.limiter import Limiter
from enforcer.laws.concurrency.limits import ConcurrencyLimits
from enforcer.laws.shares.meter import Meter


class Client:
    """A connection that notes where it counts."""

    def __init__(self, host: str, port: int) -> None:
        self.address = host, port
        self.limiter: Limiter | None = None

    def count_by(self, limiter: Limiter | None) -> None:
        """Note it (limits.Counted)."""
        self.limiter = limiter

    @property
    def partition(self) -> str:
        """Of the limiter."""
        return "" if self.limiter is None else self.limiter.partition


class World:
    """What stands around it, without a job and without clients."""

    def __init__(self) -> None:
        desk = Desk()
        self.brokers = Brokers(
            listen_host="", advertise="", port_base=0, brokers_max=9, serve=lambda _socket, _broker: None,
            domain="kafka.example", domain_port=9_093,
        )  # fmt: skip
        self.clients: list[Client] = []
        self.sent: list[str] = []
        self.signs: list[float] = []
        self.desk = desk
        self.policies = desk.coordinator.policies
        ends = replace(
            desk.context, send_usage=lambda _event, key: self.sent.append(key),
            send_usage_pack=lambda _value, key: self.sent.append(key),
            ask_for_a_sign=lambda: self.signs.append(desk.now_ms), upstreams=self.brokers,
            connections=lambda: self.clients,
        )
        self.limits = ConcurrencyLimits(ends, Meter(desk.settings, ends.clock))

    def put(self, ts: int, name: str, value: Mapping[str, Any] | None) -> None:
        """An entry of `backpressure.partitions` from then on."""
        enforce(self.policies, ts, {f"backpressure.partitions.{name}": value})

    def adapts(self) -> Limiter:
        """The limiter of one client of one broker, whose limit adapts."""
        self.clients = [Client("kafka-1", 9092)]
        self.brokers.address(1, "kafka-1", 9092)
        self.put(1, "*", {"algorithm": "aimd"})
        self.limits.look()
        limiter = self.clients[0].limiter
        assert limiter is not None
        return limiter

    def decided(self, limit: int) -> None:
        """The job says so."""
        self.limits.take([decided(limit, ts=1)])

    def counted(self) -> list[str]:
        """Where the clients count."""
        return [client.partition for client in self.clients]


def test_connections_follow_policies_and_brokers() -> None:
    """By the address that leads to a broker; where nobody knows whose it is, nothing counts."""
    world = World()
    world.clients = [Client("kafka-1", 9092), Client("kafka-2", 9092)]
    world.limits.look()
    assert world.counted() == ["", ""]
    # Of one broker alone any address would be its own.
    world.brokers.address(3, "kafka-3", 9092)
    world.brokers.address(1, "kafka-1", 9092)
    world.put(1, "*", FIXED_2)
    world.limits.look()
    assert world.counted() == ["broker-1", ""]
    late = Client("kafka-1", 9092)
    world.limits.came(late)
    assert late.limiter is world.clients[0].limiter
    # The cluster tells of the other one, as its first answers do.
    world.brokers.address(2, "kafka-2", 9092)
    world.limits.look()
    assert world.counted() == ["broker-1", "broker-2"]
    world.put(2, "*", None)
    world.put(3, "broker-2", FIXED_2)
    world.limits.look()
    assert world.counted() == ["", "broker-2"]


def test_a_mistake_at_one_connection_leaves_the_others_to_the_next_look() -> None:
    """They counted nowhere until policies or brokers changed again."""

    class Stumbling(Client):
        def count_by(self, limiter: Limiter | None) -> None:
            stumbled, self.limiter = self.limiter is None, limiter
            if stumbled:
                raise ValueError

    world = World()
    world.clients = [Stumbling("kafka-1", 9092), Client("kafka-1", 9092)]
    world.brokers.address(1, "kafka-1", 9092)
    world.put(1, "*", FIXED_2)
    with pytest.raises(ValueError):
        world.limits.look()
    world.limits.look()
    assert world.counted() == ["broker-1", "broker-1"]


def test_limits_and_samples_go_through_it() -> None:
    """What the job decides is in force at the next look, and what was measured leaves."""
    world = World()
    limiter = world.adapts()
    assert limiter.limit == 100
    limiter.end(limiter.begin("produce"))
    world.decided(7)
    world.limits.look()
    assert (limiter.limit, world.sent) == (7, ["broker-1"])


def test_a_silent_job_is_asked_before_it_counts_as_away() -> None:
    """A limit that does not change is not said; whatever it says shows that it is there."""
    world = World()
    limiter = world.adapts()
    found = world.limits.partitions.known["broker-1"]

    def traffic(ms: int) -> None:
        for _ in range(ms // 100):
            limiter.end(limiter.begin("produce"))
            world.desk.now_ms += 100
            world.limits.look()

    traffic(6_000)
    assert found.in_force.local
    assert world.signs == [1_800, 3_500, 5_200]
    world.decided(7)
    world.signs.clear()
    for _ in range(5):
        traffic(2_000)
        world.limits.take([])
    assert not found.in_force.local
    assert len(world.signs) == 5
    world.signs.clear()
    world.desk.now_ms += 10_000
    world.limits.look()
    assert world.signs == []
