"""Listening sockets: kept for several processes, or for one alone."""

import socket

import pytest

from enforcer.host.doors.listening import listen_at, listen_on, reserve
from streaming.contract.errors import WeirError

HERE = "127.0.0.1"


def test_a_port_is_kept_for_those_who_share_it() -> None:
    """Others find it taken; it is not kept where somebody listens already."""
    with reserve((HERE, 0)) as kept:
        address = kept.getsockname()
        with listen_on(*address, shared=True), listen_on(*address, shared=True):
            with pytest.raises(WeirError, match="cannot listen on 127"):
                listen_at(address)
            with pytest.raises(WeirError, match="cannot listen on 127"):
                reserve(address)
        reserve(address).close()


@pytest.mark.parametrize("both", [True, False])
def test_addresses_of_ipv4_beside_those_of_ipv6(both: bool) -> None:
    """As the machine has it, or not."""
    with listen_on("::", 0, both=both) as listener:
        alone = listener.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
        assert alone or both
