"""What a relay does to what passes (tests/soak)."""

import errno
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from proxy_kit import until
from soak_links import Link

HOST = "127.0.0.1"


def echo(listener: socket.socket) -> None:
    """Says again what each client says."""

    def answer(one: socket.socket) -> None:
        with one:
            while data := one.recv(100):
                one.sendall(data)

    try:
        while True:
            threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()
    except OSError:
        return


@pytest.fixture
def link() -> Iterator[Link]:
    """A relay before a server that says all again."""
    with socket.create_server((HOST, 0)) as server:
        serving = threading.Thread(target=echo, args=(server,), daemon=True)
        serving.start()
        with Link((HOST, 0), server.getsockname()) as relay:
            yield relay
        server.shutdown(socket.SHUT_RDWR)
        serving.join(10)


def client(link: Link) -> socket.socket:
    """Somebody who has been answered once."""
    one = socket.create_connection(link.listens, 10)
    one.sendall(b"here")
    assert one.recv(100) == b"here"
    return one


def test_what_is_cut_comes_when_it_is_mended(link: Link) -> None:
    """Nothing is lost, and nobody new gets through meanwhile."""
    with client(link) as one:
        link.make("cut")
        one.sendall(b"later")
        with socket.create_connection(link.listens, 10) as other:
            assert other.recv(100) == b""
        one.settimeout(0.2)
        with pytest.raises(TimeoutError):
            one.recv(100)
        link.mend()
        one.settimeout(10)
        assert one.recv(100) == b"later"


def test_a_delay_changes_nothing_else(link: Link) -> None:
    """It comes all the same."""
    link.make("delay")
    with client(link):
        pass


def test_half_of_a_message_comes_then_the_end(link: Link) -> None:
    """Of the one on its way there; the next connection is whole again once it is mended."""
    with client(link) as one:
        link.make("halve")
        one.sendall(b"12345678")
        rest = b""
        while part := one.recv(100):
            rest += part
        assert rest in (b"", b"12", b"1234")
        link.mend()
        client(link).close()


def test_a_reset_ends_all_and_nothing_is_kept_of_them(link: Link) -> None:
    """Sockets of connections that have ended are closed: an hour has very many."""
    many = [client(link) for _ in range(5)]
    link.make("reset")
    assert [one.recv(100) for one in many] == [b""] * 5
    for one in many:
        one.close()
    until(lambda: len(link._open) == 1, what="nothing but the listener")
    client(link).close()


def test_a_relay_lives_on_without_descriptors() -> None:
    """Until there are some."""

    class Full:
        def __init__(self, listener: socket.socket) -> None:
            self._listener, self._fails = listener, [errno.EMFILE, errno.ENFILE]

        def accept(self) -> Any:
            if self._fails:
                raise OSError(self._fails.pop(), "too many open files")
            return self._listener.accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._listener, name)

    with socket.create_server((HOST, 0)) as server:
        relay = Link((HOST, 0), server.getsockname())
        relay._listener = Full(relay._listener)  # type: ignore[assignment]  # what is asked of it
        with relay, socket.create_connection(relay.listens, 10) as one:
            one.sendall(b"here")
            server.settimeout(10)
            with server.accept()[0] as other:
                assert other.recv(100) == b"here"
