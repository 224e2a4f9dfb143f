"""What a relay says was in flight at a broker (tests/soak)."""

import socket
import struct
from collections.abc import Iterator

import pytest
from proxy_kit import until
from soak_flights import CountedLink, Flights, Heads

PRODUCE, FETCH, METADATA = 0, 1, 3


def request(key: int, client: bytes = b"hold", body: bytes = bytes(100)) -> bytes:
    """One with its length."""
    frame = struct.pack(">hhih", key, 12, 7, len(client)) + client + body
    return struct.pack(">i", len(frame)) + frame


ANSWER = struct.pack(">iii", 8, 7, 0)


def test_heads_are_found_in_pieces_of_any_size() -> None:
    """Of whole frames, or as soon as it is known whose answer it is."""
    stream = request(FETCH) + request(PRODUCE, b"") + request(METADATA)
    for step in (1, 3, 50, len(stream)):
        pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
        for whole in (True, False):
            heads = Heads(whole)
            found = [head for piece in pieces for head in heads.of(piece)]
            assert [head[:2] for head in found] == [b"\0\1", b"\0\0", b"\0\3"]
    assert list(Heads(whole=True).of(ANSWER[:-1])) == []
    assert list(Heads(whole=False).of(ANSWER[:8])) == [ANSWER[4:8]]


@pytest.fixture
def noted() -> list[bool]:
    """Whether each ended with its connection."""
    return []


def test_what_counts_and_has_gone_is_in_flight(noted: list[bool]) -> None:
    """Answers end them in order, the connection all others. Weir's own, and what is exempt, are none."""
    flights = Flights(lambda begun, ended, over: noted.append(over))
    own = request(PRODUCE, b"rdkafka")
    stream = [request(FETCH), request(METADATA), own, request(PRODUCE), request(FETCH)]
    for flight in [flight for one in stream for flight in flights.ask(one)][:4]:
        flight.begun = 1

    flights.answer(3 * ANSWER)
    assert noted == [False]
    flights.end()
    # The last one never went on.
    assert noted == [False, True]
    flights.answer(ANSWER)
    assert noted == [False, True]


@pytest.fixture
def pair(noted: list[bool]) -> Iterator[tuple[CountedLink, socket.socket, socket.socket]]:
    """A link, who asks, and who answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        to = server.getsockname()
        made = CountedLink(("127.0.0.1", 0), to, lambda begun, ended, over: noted.append(over))
        with made as link, socket.create_connection(link.listens, 10) as client, server.accept()[0] as broker:
            yield link, client, broker


def test_a_link_counts(pair: tuple[CountedLink, socket.socket, socket.socket], noted: list[bool]) -> None:
    """What passes it, until it is answered, or over."""
    _, client, broker = pair
    client.sendall(request(FETCH) + request(FETCH))
    assert broker.recv(1_000)
    broker.sendall(ANSWER)
    assert client.recv(100) == ANSWER
    assert noted == [False]
    broker.close()
    until(lambda: noted == [False, True], what="its end is seen")


def test_what_a_cut_link_holds_back_is_not_in_flight(
    pair: tuple[CountedLink, socket.socket, socket.socket], noted: list[bool]
) -> None:
    """The broker has never seen it."""
    link, client, broker = pair
    link.make("cut")
    client.sendall(request(FETCH))
    until(lambda: any(link._going.values()), what="it has come")
    broker.close()
    until(lambda: len(link._flights) == 1, what="its end is seen")
    assert noted == []
