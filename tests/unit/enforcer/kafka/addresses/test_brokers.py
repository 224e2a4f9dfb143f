"""Ports of brokers that cannot be had; tests/kafka/test_broker_ports.py has those that can."""

import pytest

from enforcer.kafka.addresses.brokers import Brokers
from streaming.contract.errors import WeirError


@pytest.mark.parametrize("port_base", [0, 19_093])
def test_who_can_have_no_port_is_told_as_what_an_operator_can_mend(port_base: int) -> None:
    """As where descriptors run short: it was taken for a mistake of ours, and kept others from theirs."""
    brokers = Brokers(
        listen_host="192.0.2.1", advertise="", port_base=port_base, brokers_max=1,
        serve=lambda _socket, _broker: None,
    )  # fmt: skip
    with pytest.raises(WeirError, match=r"cannot listen on 192\.0\.2\.1:0: "):
        brokers.address(1, "kafka", 9092)
    assert not brokers.ports


def test_an_address_is_its_newest_brokers() -> None:
    """As after a change of all ids: by the former one what it delivers, and its slots, were counted apart."""
    brokers = Brokers(
        listen_host="", advertise="", port_base=0, brokers_max=3, serve=lambda _socket, _broker: None,
        domain="kafka.example", domain_port=9_093,
    )  # fmt: skip
    for node_id, host in ((1, "kafka-1"), (101, "kafka-1"), (102, "kafka-2")):
        brokers.address(node_id, host, 9_092)
    found = [brokers.partition_at((host, 9_092)) for host in ("kafka-1", "kafka-2", "kafka")]
    assert found == ["broker-101", "broker-102", None]


def test_addresses_of_ipv6_are_told_with_brackets(caplog: pytest.LogCaptureFixture) -> None:
    """`::1:9092` is an address by itself."""
    caplog.set_level("INFO")
    brokers = Brokers(
        listen_host="", advertise="", port_base=0, brokers_max=3, serve=lambda _socket, _broker: None,
        domain="kafka.example", domain_port=9_093,
    )  # fmt: skip
    for host in ("::1", "::2"):
        brokers.address(1, host, 9_092)
    assert "broker 1 moved from [::1]:9092 to [::2]:9092" in caplog.text
