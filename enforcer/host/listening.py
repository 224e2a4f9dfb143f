"""Listening sockets."""

import socket

from streaming.contract.errors import WeirError

_BACKLOG = 512


def listen_at(address: tuple[str, int], shared: bool) -> socket.socket:
    """The listening socket of a proxy; see listen_on.

    Raises:
        WeirError: it cannot be had, for people.
    """
    host, port = address
    try:
        return listen_on(host, port, shared)
    except OSError as error:
        raise WeirError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


def listen_on(host: str, port: int, shared: bool = False) -> socket.socket:
    """A listening socket; port 0 takes any free one. Raises OSError if it cannot be had.

    Args:
        host: an address of this machine.
        port: which.
        shared: with other processes that say the same: the kernel gives each connection to one of them.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener
