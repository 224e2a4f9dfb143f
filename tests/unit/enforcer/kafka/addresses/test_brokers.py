"""A port per broker: stable, followed, bounded, or not to be had. None is ever connected to."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from enforcer.host.doors.listening import listen_at
from enforcer.kafka.addresses.brokers import Broker, Brokers, TooManyBrokers
from streaming.contract.errors import WeirError


class Served:
    """Brokers and the sockets they opened."""

    def __init__(self, listen_host: str = "127.0.0.1", port_base: int = 0, **more: Any) -> None:
        self.open: list[tuple[socket.socket, Broker]] = []
        self.brokers = Brokers(
            listen_host=listen_host, advertise="proxy.example", port_base=port_base, brokers_max=3,
            serve=lambda listener, broker: self.open.append((listener, broker)), **more,
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


@pytest.mark.parametrize("port_base", [0, 19_093])
def test_who_can_have_no_port_is_told_as_what_an_operator_can_mend(port_base: int) -> None:
    """As where descriptors run short: it was taken for a mistake of ours, and kept others from theirs."""
    brokers = Served(listen_host="192.0.2.1", port_base=port_base).brokers
    with pytest.raises(WeirError, match=r"cannot listen on 192\.0\.2\.1:0: "):
        brokers.address(1, "kafka", 9092)
    assert not brokers.ports


def test_an_address_is_its_newest_brokers() -> None:
    """As after a change of all ids: by the former one what it delivers, and its slots, were counted apart."""
    brokers = Served(domain="kafka.example", domain_port=9_093).brokers
    for node_id, host in ((1, "kafka-1"), (101, "kafka-1"), (102, "kafka-2")):
        brokers.address(node_id, host, 9_092)
    found = [brokers.partition_at((host, 9_092)) for host in ("kafka-1", "kafka-2", "kafka")]
    assert found == ["broker-101", "broker-102", None]


def test_addresses_of_ipv6_are_told_with_brackets(caplog: pytest.LogCaptureFixture) -> None:
    """`::1:9092` is an address by itself."""
    caplog.set_level("INFO")
    brokers = Served(domain="kafka.example", domain_port=9_093).brokers
    for host in ("::1", "::2"):
        brokers.address(1, host, 9_092)
    assert "broker 1 moved from [::1]:9092 to [::2]:9092" in caplog.text
