"""What a socket tells besides its bytes."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from connection_kit import FakeTransport
from endings_kit import reset

from enforcer.host.sockets import descriptor_of, ended, peer_of, unread

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two ends of a TCP connection, ours first."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        far = socket.create_connection(server.getsockname())
        near, _ = server.accept()
        with near, far:
            near.setblocking(False)
            yield near, far


def test_an_end_is_seen_behind_unread_bytes(pair: Pair) -> None:
    """A half-closed connection is news once, one that is gone always is; an open one never."""
    near, far = pair
    far.sendall(b"unread")
    here = near.fileno()
    assert ended({here: False}) == ended({here: True}) == ended({}) == set()
    far.shutdown(socket.SHUT_WR)
    assert ended({here: False}) == {here} and ended({here: True}) == set()
    reset(far)
    assert ended({here: False}) == ended({here: True}) == {here}


@pytest.mark.parametrize("end", [socket.socket.close, reset, lambda far: None])
def test_bytes_are_read_behind_an_end(pair: Pair, end: Any) -> None:
    """As many as are there, and no more than asked for."""
    near, far = pair
    far.sendall(bytes(100_000))
    end(far)
    transport: Any = FakeTransport()
    transport.socket = near
    assert sum(map(len, unread(transport, 70_000))) == 70_000
    assert sum(map(len, unread(transport, 70_000))) == 30_000
    assert list(unread(transport, 70_000)) == []


def test_a_transport_without_socket_has_nothing() -> None:
    """As one is that was closed already."""
    transport: Any = FakeTransport()
    assert descriptor_of(transport) == -1 and list(unread(transport, 10)) == []


def test_a_connection_that_is_gone_has_no_address_to_tell() -> None:
    """uvloop fails then; a message is written all the same (tests/attack/test_fuzz.py has it on sockets)."""

    class Gone(FakeTransport):
        def get_extra_info(self, name: str, default: Any = None) -> Any:
            raise ValueError("negative file descriptor")

    transport: Any = Gone()
    assert peer_of(transport) is None
