"""Bytes that are no Kafka: that connection ends, a counter says why, the others notice nothing."""

import struct
import time
from collections.abc import Callable

import pytest
from cluster_kit import Cluster, fresh
from kafka.protocol.metadata import api_versions
from kafka_kit import build
from proxy_kit import ProxyThread, until
from wire_client import WireClient, create_request, errors

from enforcer.core import bounds

Connect = Callable[..., WireClient]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">i", -1), "negative_length"),
        (struct.pack(">i", 2**31 - 1), "too_large"),
        (b"GET / HTTP/1.1\r\n\r\n", "too_large"),
        (struct.pack(">i", 3) + b"abc", "truncated_header"),
        (struct.pack(">ihhih", 10, 3, 9, 1, 500), "truncated_header"),
        (struct.pack(">ihhih", 10, 19, 4, 1, -1), "truncated_body"),
        (struct.pack(">ihhihi", 14, 19, 4, 1, -1, 2**31 - 1), "truncated_body"),
        (struct.pack(">ihhih", 10, 0, 8, 1, -1), "truncated_body"),
    ],
)
def test_bad_bytes_end_their_connection(proxy: ProxyThread, wire: Connect, data: bytes, reason: str) -> None:
    """Absurd or negative lengths, garbage and truncated bodies: closed and counted; a neighbour goes on."""
    before = proxy.metric("bad_frames_total", reason=reason)
    neighbour = wire("neighbour")
    bad = wire("bad")
    bad.socket.sendall(data)
    assert bad.closed_within(3)
    until(lambda: proxy.metric("bad_frames_total", reason=reason) == before + 1)
    assert neighbour.metadata([]).brokers


def test_unknown_apis_and_versions_are_closed_as_by_a_broker(proxy: ProxyThread, wire: Connect) -> None:
    """An API that nobody knows and a version that is too new end the connection."""
    before = proxy.metric("closed_connections_total", reason="unsupported_version")
    for key, version in ((999, 0), (3, 99), (19, 99), (-5, 0)):
        client = wire("new")
        client.socket.sendall(struct.pack(">ihhih", 11, key, version, 1, -1) + b"\0")
        assert client.closed_within(3)
    assert proxy.metric("closed_connections_total", reason="unsupported_version") == before + 4


def test_too_new_api_versions_is_answered(wire: Connect) -> None:
    """ApiVersions above what we know gets error 35 in version 0, so that the client can ask again."""
    client = wire("new")
    client.socket.sendall(struct.pack(">ihhih", 11, 18, 99, 77, -1) + b"\0")
    frame = client.receive_frame(3)
    assert struct.unpack(">ih", frame[:6]) == (77, 35)
    answer = client.answer_to(build(api_versions.ApiVersionsRequest, 2))
    ranges = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert ranges[17] == (1, 1) and ranges[0][0] == 0 and not ranges.keys() & {83, 85}


def test_a_slow_sender_is_ended(
    cluster: Cluster, proxy_with: Callable[..., ProxyThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that never gets complete ends its connection after the time limit."""
    monkeypatch.setattr(bounds, "PARTIAL_FRAME_TIMEOUT_MS", 500)
    proxy = proxy_with()
    with WireClient(proxy.bootstrap) as slow, WireClient(proxy.bootstrap) as idle:
        slow.socket.sendall(struct.pack(">i", 100) + b"\0\3")
        assert slow.closed_within(4)
        assert idle.metadata([]).brokers
    assert proxy.metric("closed_connections_total", reason="slow_sender") == 1


def test_a_request_in_single_bytes_works(wire: Connect) -> None:
    """A frame may arrive one byte at a time."""
    client = wire("drip")
    for byte in struct.pack(">ihhihi", 14, 3, 1, 5, -1, -1):
        client.socket.sendall(bytes([byte]))
        time.sleep(0.002)
    assert client.receive_frame()[:4] == struct.pack(">i", 5)


def test_too_many_connections_are_closed(cluster: Cluster, proxy_with: Callable[..., ProxyThread]) -> None:
    """Above connections_max a client is closed at once; those that are in go on."""
    proxy = proxy_with(connections_max=2)
    with WireClient(proxy.bootstrap) as one, WireClient(proxy.bootstrap) as two:
        assert one.metadata([]).brokers and two.metadata([]).brokers
        with WireClient(proxy.bootstrap) as three:
            assert three.closed_within(3)
        assert one.metadata([]).brokers
    assert proxy.metric("closed_connections_total", reason="too_many_connections") == 1


def test_a_client_that_vanishes_frees_everything(
    cluster: Cluster, proxy_with: Callable[..., ProxyThread]
) -> None:
    """A client gone while its request waits: nothing is forwarded, and what was charged is given back."""
    proxy = proxy_with(decide="strict")
    name = fresh("vanish")
    cluster.limit(proxy, name, controller_mutation_rate=1)
    with cluster.decider.paused():
        with WireClient(proxy.bootstrap, name) as client:
            client.send(create_request({f"{name}-a": 8}))
            until(lambda: proxy.waiting(name))
        until(lambda: not proxy.waiting(name))
        until(lambda: proxy.metric("connections") == 0)
    refund = cluster.event_of(name, type="refund")
    assert refund["items"] == [{"name": f"{name}-a", "mutations": 8}]
    with WireClient(proxy.bootstrap, name) as client:
        assert errors(client.create({f"{name}-a": 11})) == {f"{name}-a": 0}


def test_held_requests_are_bounded(
    cluster: Cluster, proxy_with: Callable[..., ProxyThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a request that waits, reading stops at HELD_FRAMES_MAX; all are answered in the end."""
    monkeypatch.setattr(bounds, "HELD_FRAMES_MAX", 10)
    proxy = proxy_with(decide="strict", decision_timeout_ms=1_500)
    name = fresh("held")
    cluster.limit(proxy, name, controller_mutation_rate=100)
    with cluster.decider.paused(), WireClient(proxy.bootstrap, name) as client:
        client.send(create_request({f"{name}-a": 1}), correlation_id=1)
        time.sleep(0.2)
        one = struct.pack(">ihhihi", 14, 3, 1, 2, -1, 0)
        for _ in range(100):
            client.socket.sendall(one)
            time.sleep(0.001)
        until(lambda: proxy.metric("held_frames") >= 10, 3)
        assert proxy.metric("held_frames") < 100
        answers = [client.receive_frame() for _ in range(101)]
        assert [int.from_bytes(answer[:4], "big") for answer in answers] == [1] + [2] * 100
