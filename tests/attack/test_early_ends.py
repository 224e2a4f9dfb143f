"""Clients that end early: what came before the end is delivered, as TCP promises and brokers do."""

import socket
import time
from collections.abc import Callable

import pytest
from cluster_kit import Cluster, address, fresh
from endings_kit import End, answers_until_end, arrived, created, produced, reset, settled
from kafka.protocol.admin.topics import CreateTopicsResponse
from proxy_kit import ProxyThread, until
from wire_client import WireClient, create_request, errors


@pytest.mark.parametrize(
    ("clients", "requests", "acks", "end"),
    [
        (200, 1, 0, socket.socket.close), (200, 1, 0, reset),
        (10, 20, 0, socket.socket.close), (10, 20, 1, socket.socket.close),
        *(pytest.param(10, 20, acks, reset, marks=pytest.mark.soak) for acks in (0, 1)),
    ],
)  # fmt: skip
def test_requests_then_gone(
    cluster: Cluster, proxy: ProxyThread, clients: int, requests: int, acks: int, end: End
) -> None:
    """One each, mostly before there is a broker's connection, or many, before any answer."""
    topic = created(cluster, fresh("early"))
    sent = produced(topic, acks) * requests
    for _ in range(clients):
        client = socket.create_connection(address(proxy.bootstrap))
        client.sendall(sent)
        end(client)
    assert settled(cluster, topic, 200) == 200
    until(lambda: proxy.metric("connections") == 0)


def test_a_large_request_then_gone(cluster: Cluster, proxy: ProxyThread) -> None:
    """It passes while it comes, and what has come of the next one is nothing."""
    topic = created(cluster, fresh("early"))
    client = socket.create_connection(address(proxy.bootstrap))
    whole = produced(topic, 1, size=900_000)
    client.sendall(whole * 4 + whole[:400_000])
    arrived(client)
    client.close()
    assert settled(cluster, topic, 4) == 4
    until(lambda: proxy.metric("connections") == 0)


def test_half_closed_connections_are_answered(cluster: Cluster, proxy: ProxyThread) -> None:
    """A client that sends no more gets all answers, then the end."""
    topic = created(cluster, fresh("half"))
    with WireClient(proxy.bootstrap, "half") as wire:
        wire.socket.sendall(produced(topic, 1) * 20)
        wire.socket.shutdown(socket.SHUT_WR)
        assert answers_until_end(wire) == 20
    assert settled(cluster, topic, 20) == 20
    until(lambda: proxy.metric("connections") == 0)


def test_a_half_closed_client_hears_its_decision(cluster: Cluster, proxy: ProxyThread) -> None:
    """One that listens on is told apart from one that has closed, though both send the same."""
    client_id = fresh("half")
    cluster.limit(proxy, client_id, controller_mutation_rate=1, controller_mutation_burst=5)
    with WireClient(proxy.bootstrap, client_id) as wire:
        for name in ("a", "b", "c"):
            wire.send(create_request({f"{client_id}-{name}": 3}))
        wire.socket.shutdown(socket.SHUT_WR)
        heard = [errors(wire.receive(CreateTopicsResponse, 7)) for _ in range(3)]
        assert [list(codes.values()) for codes in heard] == [[0], [0], [89]]
        assert wire.closed_within(5)


def test_a_brokers_end_comes_after_its_answers(
    cluster: Cluster, proxy_with: Callable[..., ProxyThread]
) -> None:
    """A broker that sends no more: what it has answered is delivered, then the client's connection ends."""
    with socket.create_server(("127.0.0.1", 0)) as broker:
        proxy = proxy_with(kafka="{}:{}".format(*broker.getsockname()))
        with WireClient(proxy.bootstrap, "half") as wire:
            wire.socket.sendall(b"\0\0\0\x0a\0\x10\0\0\0\0\0\7\xff\xff" * 2)
            upstream, _ = broker.accept()
            with upstream:
                upstream.recv(100)
                upstream.sendall(b"\0\0\0\4\0\0\0\7" * 2)
                upstream.shutdown(socket.SHUT_WR)
                assert answers_until_end(wire) == 2


def test_answers_to_nobody_are_not_read_for_ever(cluster: Cluster, proxy: ProxyThread) -> None:
    """A client that asks for much and resets: the broker connection ends with what nobody else waits for."""
    with WireClient(proxy.bootstrap, "early") as wire:
        wire.metadata([])
        fetch = b"\0\0\0\x2f\0\1\0\4\0\0\0\1\0\5early" + b"\xff\xff\xff\xff" + (25_000).to_bytes(4, "big")
        fetch += (1).to_bytes(4, "big") + (1 << 20).to_bytes(4, "big") + b"\0" + bytes(4)
        wire.socket.sendall((len(fetch) - 4).to_bytes(4, "big") + fetch[4:])
        time.sleep(0.2)
        reset(wire.socket)
        until(lambda: proxy.metric("connections") == 0, 3)
