"""A port per broker: stable, followed, bounded. Sockets are listened on, never connected."""

import socket
from collections.abc import Iterator

import pytest

from enforcer.host.doors.listening import listen_at
from enforcer.kafka.addresses.brokers import Broker, Brokers, TooManyBrokers


class Served:
    """Brokers and the sockets they opened."""

    def __init__(self, port_base: int = 0, brokers_max: int = 3) -> None:
        self.open: list[tuple[socket.socket, Broker]] = []
        self.brokers = Brokers(
            listen_host="127.0.0.1", advertise="proxy.example", port_base=port_base,
            brokers_max=brokers_max, serve=lambda listener, broker: self.open.append((listener, broker)),
        )  # fmt: skip


@pytest.fixture
def served() -> Iterator[Served]:
    """Brokers on any free ports."""
    made = Served()
    yield made
    for listener, _ in made.open:
        listener.close()


def test_one_port_per_broker(served: Served) -> None:
    """The same broker keeps its port, another one gets another, and both are told by our name."""
    first = served.brokers.address(1, "kafka-1", 9092)
    second = served.brokers.address(1001, "kafka-2", 9092)
    assert first[0] == second[0] == "proxy.example" and first[1] != second[1]
    assert served.brokers.address(1, "kafka-1", 9092) == first
    assert served.brokers.ports == {1: first[1], 1001: second[1]}
    assert [listener.getsockname()[1] for listener, _ in served.open] == [first[1], second[1]]


def test_a_broker_that_moves_is_followed(served: Served) -> None:
    """A new address behind the same id changes where our port leads, not the port."""
    first = served.brokers.address(1, "kafka-1", 9092)
    assert served.brokers.address(1, "kafka-9", 9093) == first
    (_, broker) = served.open[0]
    assert (broker.host, broker.port) == ("kafka-9", 9093)


def test_ports_follow_from_the_ids_where_they_are_free(caplog: pytest.LogCaptureFixture) -> None:
    """A wanted port that is taken, or beyond the last one, is replaced by a free one, with a warning."""
    with listen_at(("127.0.0.1", 0)) as taken:
        base = taken.getsockname()[1] - 1
        made = Served(port_base=base)
        _, port = made.brokers.address(1, "kafka-1", 9092)
        assert port != base + 1 and "is taken" in caplog.text
        _, far = made.brokers.address(70_000, "kafka-2", 9092)
        assert far <= 65_535
        for listener, _ in made.open:
            listener.close()


def test_brokers_are_bounded(served: Served) -> None:
    """One id too many is refused: its address must not reach a client."""
    for node_id in range(3):
        served.brokers.address(node_id, "kafka", 9092)
    with pytest.raises(TooManyBrokers, match="one more than 3 since the start"):
        served.brokers.address(3, "kafka", 9092)
