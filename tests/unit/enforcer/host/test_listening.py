"""Listening sockets: kept for several processes, or for one alone."""

import socket

import pytest

from enforcer.host.doors.listening import listen_at, reserve
from streaming.contract.errors import WeirError

HERE = "127.0.0.1"


def test_a_port_is_kept_for_those_who_share_it() -> None:
    """Others find it taken, from before the first of them listens until the last is gone."""
    with reserve((HERE, 0)) as kept:
        address = kept.getsockname()
        refused(address)
        with listen_at(address, shared=True), listen_at(address, shared=True):
            refused(address)
        refused(address)
    reserve(address).close()
    listen_at(address).close()


def refused(address: tuple[str, int]) -> None:
    """Nobody else gets it, alone or to share."""
    for take in (listen_at, reserve):
        with pytest.raises(WeirError, match="cannot listen on 127"):
            take(address)


@pytest.mark.parametrize("both", [True, False])
def test_addresses_of_ipv4_beside_those_of_ipv6(both: bool) -> None:
    """As the machine has it, or not."""
    with listen_at(("::", 0), both=both) as listener:
        alone = listener.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
        assert alone or both
