"""Bytes that go from socket to socket: all of them, once, in order, whatever the other side does."""

import contextlib
import socket
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from connection_kit import FakeTransport

from enforcer.host.moving import MOVED_MAX_BYTES, Mover

PLENTY = 8 << 20


class Ends:
    """A broker and a client on two real connections of a proxy that never waits."""

    def __init__(self) -> None:
        self.broker, self.source = socket.socketpair()
        self.target, self.client = socket.socketpair()
        for end in (self.broker, self.source, self.target, self.client):
            end.setblocking(False)
        self.mover = Mover()

    def move(self, count: int = PLENTY) -> tuple[int, bytes]:
        """From the broker's connection to the client's."""
        return self.mover.move(self.source.fileno(), self.target.fileno(), count)

    def read(self) -> bytes:
        """What the client has."""
        got = b""
        while True:
            try:
                piece = self.client.recv(1 << 20)
            except BlockingIOError:
                return got
            if not piece:
                return got
            got += piece

    def close(self) -> None:
        """All of it."""
        self.mover.close()
        for end in (self.broker, self.source, self.target, self.client):
            end.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    """With nothing sent yet."""
    made = Ends()
    yield made
    made.close()


def test_no_more_than_wanted_moves(ends: Ends) -> None:
    """What is there, up to the count; the rest stays where it is."""
    assert ends.move() == (0, b"")
    ends.broker.send(b"0123456789")
    assert ends.move(4) == (4, b"") and ends.read() == b"0123"
    assert ends.move() == (6, b"") and ends.read() == b"456789"
    assert ends.move() == (0, b"")


def test_a_slow_client_gets_every_byte_in_order(ends: Ends) -> None:
    """What it has no room for comes back, and is what follows; the next move begins with an empty pipe."""
    sent, got, left = Random(1).randbytes(PLENTY), b"", b""
    gone, held_back = 0, 0
    while len(got) < len(sent):
        with contextlib.suppress(BlockingIOError):
            gone += ends.broker.send(sent[gone : gone + 300_000])
        if left:
            with contextlib.suppress(BlockingIOError):
                left = left[ends.target.send(left) :]
        else:
            _, left = ends.move()
            held_back += len(left)
        if left or gone == len(sent):
            got += ends.read()
    assert got == sent and held_back


def test_an_end_of_the_broker_is_left_to_be_read(ends: Ends) -> None:
    """What it sent before moves, and its end is still there."""
    ends.broker.send(b"last words")
    ends.broker.close()
    assert ends.move() == (10, b"") and ends.move() == (0, b"")
    assert ends.read() == b"last words" and ends.source.recv(1) == b""


def test_bytes_for_a_client_that_is_gone_come_back(ends: Ends) -> None:
    """Who writes them finds out; other connections get none of them."""
    ends.broker.send(b"for nobody")
    ends.client.close()
    assert ends.move() == (10, b"for nobody")
    others = Ends()
    others.mover.close()
    others.mover = ends.mover
    others.broker.send(b"mine")
    assert others.move() == (4, b"") and others.read() == b"mine"
    others.close()


def test_an_impossible_descriptor_moves_nothing(ends: Ends) -> None:
    """Then all is read as ever."""
    gone = socket.socket()
    number = gone.fileno()
    gone.close()
    assert ends.mover.move(number, ends.target.fileno(), 10) == (0, b"")


def relay(ends: Ends) -> tuple[Any, Any, Callable[[int], int]]:
    """A broker connection, its client's side of the loop, and what moves between them."""
    source: Any = SimpleNamespace(descriptor=ends.source.fileno(), secure=False)
    client: Any = FakeTransport()
    client.socket = ends.target
    return source, client, partial(ends.mover.relay, source, client)


def test_only_a_client_that_nothing_waits_for(ends: Ends) -> None:
    """Bytes must not overtake those that wait to be written, nor go to who is being closed or is not read."""
    source, client, moving = relay(ends)
    ends.broker.send(b"abc")
    waiting = 1
    client.get_write_buffer_size = lambda: waiting
    assert moving(3) == 0
    waiting, client.closed = 0, True
    assert moving(3) == 0
    client.closed, source.descriptor = False, -1
    assert moving(3) == 0
    source.descriptor, client.socket = ends.source.fileno(), None
    assert moving(3) == 0
    client.socket = ends.target
    assert moving(3) == 3 and ends.read() == b"abc" and client.data == b""


def test_one_connection_does_not_keep_the_others_waiting(ends: Ends) -> None:
    """There is a bound to what moves in one go, and what the client cannot take is written by the loop."""
    for end in (ends.broker, ends.target):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
    _, client, moving = relay(ends)
    moved = 0
    while not client.data:
        ends.broker.send(bytes(50_000))
        moved += (now := moving(PLENTY))
        assert now <= MOVED_MAX_BYTES
    assert len(ends.read()) + len(client.data) == moved
