"""Listening sockets: no other room makes them."""

import contextlib
import socket
from collections.abc import Iterator
from typing import Final

from enforcer.host.sockets import Address
from streaming.contract.errors import WeirError
from streaming.contract.topics import address_text

BACKLOG: Final = 512
"""Clients that may wait to be taken: all of a restarted proxy come at once, and who finds no room tries again
after a second."""


def listen_at(address: Address, shared: bool = False, *, both: bool = True) -> socket.socket:
    """A listening socket; port 0 takes any free one.

    Args:
        address: of this machine.
        shared: with other processes that say the same: the kernel gives each connection to one of them.
        both: every address of IPv6 stands for every one of IPv4 too, as the machine has it.

    Raises:
        WeirError: it cannot be had, for people.
    """
    with _for_people(address):
        return _bound(address, shared, both, BACKLOG)


def reserve(address: Address) -> socket.socket:
    """Keeps an address for processes that will share it; what does not listen gets no connections.

    Raises:
        WeirError: it cannot be had, for people.
    """
    with _for_people(address):
        if address[1]:
            # Whoever shares it with us would get some of our clients: nobody must be there.
            _bound(address, backlog=BACKLOG).close()
        kept = _bound(address, shared=True)
        # With it, the next one's look would pass until one of our processes listens, seconds later.
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        return kept


def _bound(address: Address, shared: bool = False, both: bool = True, backlog: int = 0) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if not both and made.family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        if backlog:
            made.listen(backlog)
    except OSError:
        made.close()
        raise
    made.setblocking(False)
    return made


@contextlib.contextmanager
def _for_people(address: Address) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WeirError(f"cannot listen on {address_text(*address)}: {error.strerror or error}") from error
