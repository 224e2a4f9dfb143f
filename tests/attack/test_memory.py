"""Clients that try to fill the proxy's memory: each attack alone adds less than 64 MiB to the process."""

import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from cluster_kit import Cluster
from kafka_kit import framed
from process_kit import MIB, ProxyProcess, proxy_process
from proxy_kit import until
from traffic_kit import batch, produce
from wire_client import WireClient

from enforcer.wire.kafka import frames

GROWTH_MAX = 64 * MIB
METERED = "memory"
"""The client id whose traffic is metered."""


@pytest.fixture(scope="module")
def attacked(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """A proxy in a process of its own that meters one client's traffic."""
    path = f"quotas[user=ANONYMOUS,client-id={METERED}]"
    cluster.policies.put(path, {"producer_byte_rate": 10**9, "consumer_byte_rate": 10**9})
    with proxy_process(cluster, tmp_path_factory.mktemp("memory"), cluster.topics) as running:
        yield running
    cluster.policies.put(path, None)


class Growth:
    """How much a process grows from now on, at most."""

    def __init__(self, proxy: ProxyProcess) -> None:
        self._proxy = proxy
        self._before = self._most = proxy.resident

    def look(self, seconds: float = 0.0) -> int:
        """Look for so long; the most so far, bytes."""
        deadline = time.monotonic() + seconds
        while True:
            self._most = max(self._most, self._proxy.resident)
            if time.monotonic() >= deadline:
                return self._most - self._before
            time.sleep(0.02)


def begun(key: int, version: int, length: int, client_id: bytes = b"x") -> bytes:
    """The length and header of a request, whose body is all zeros."""
    return struct.pack(">ihhih", length, key, version, 7, len(client_id)) + client_id


@pytest.mark.soak
def test_idle_connections_keep_nothing(attacked: ProxyProcess) -> None:
    """300 connections that sent a Produce of 0.9 MB each, metered, and then say nothing."""
    frame, _ = produce(9, {"no.such.topic": [batch(1, size=900_000)]}, client_id=METERED)
    growth = Growth(attacked)
    with ExitStack() as stack:
        for _ in range(300):
            client = stack.enter_context(WireClient(attacked.bootstrap, METERED))
            client.send_frame(frame)
            client.receive_frame()
        assert growth.look(0.2) < GROWTH_MAX


@pytest.mark.parametrize(
    ("key", "version", "client_id"),
    [
        (19, 7, b"x"),  # CreateTopics
        (0, 9, b"x"),  # Produce
        (0, 9, b"x" * 30_000),
        (3, 12, b"x"),  # Metadata
        (17, 1, b"x"),  # SaslHandshake
        (999, 0, b"x"),
    ],
)
def test_unfinished_requests(attacked: ProxyProcess, key: int, version: int, client_id: bytes) -> None:
    """Eight requests of 64 MB of which 12 come, the first bytes apart."""
    length, growth = 64 * MIB, Growth(attacked)
    with ExitStack() as stack:
        for _ in range(8):
            client = stack.enter_context(WireClient(attacked.bootstrap))
            head = begun(key, version, length, client_id)
            left = 12 * MIB
            try:
                client.socket.sendall(head[:14])
                time.sleep(0.02)
                client.socket.sendall(head[14:])
                time.sleep(0.02)
                while left:
                    left -= client.socket.send(bytes(min(left, MIB)))
                    growth.look()
            except OSError:
                pass
        assert growth.look(0.1) < GROWTH_MAX


def test_a_client_that_does_not_read(attacked: ProxyProcess) -> None:
    """Eight clients that ask for answers of 200 kB each, ours or the broker's, and take none."""
    name = frames.string("t", True)
    rows = (name + struct.pack(">ih", 1, 1) + b"\1\1\0") * 2_001
    refused = struct.pack(">hhih", 19, 7, 7, -1) + b"\0" + frames.uvarint(2_002) + rows + bytes(6)
    everything = struct.pack(">hhihi", 3, 1, 7, -1, -1)
    growth = Growth(attacked)
    for asked in (framed(refused), framed(everything) * 2_000):
        with ExitStack() as stack:
            clients = [stack.enter_context(WireClient(attacked.bootstrap)) for _ in range(8)]
            for client in clients:
                client.socket.setblocking(False)
            deadline = time.monotonic() + 3
            left = {client: b"" for client in clients}
            while time.monotonic() < deadline:
                for client in clients:
                    data = left[client] or asked
                    with suppress(BlockingIOError):
                        left[client] = data[client.socket.send(data) :]
                growth.look(0.005)
        assert growth.look() < GROWTH_MAX


@pytest.mark.soak
def test_many_large_admin_requests_under_way(attacked: ProxyProcess) -> None:
    """Requests for mutations that are read and not answered are bounded for each connection."""
    names = [frames.string(f"absent-{number}-{'x' * 230}", True) for number in range(2_000)]
    rows = b"".join(name + bytes(16) + b"\0" for name in names)
    deletion = framed(
        struct.pack(">hhih", 20, 6, 7, -1)
        + b"\0"
        + frames.uvarint(2_001)
        + rows
        + struct.pack(">i", 100)
        + b"\0"
    )
    growth = Growth(attacked)
    with WireClient(attacked.bootstrap) as client:
        client.socket.setblocking(False)
        data, sent, deadline = deletion * 100, 0, time.monotonic() + 3
        while time.monotonic() < deadline and sent < len(data):
            try:
                sent += client.socket.send(data[sent : sent + MIB])
            except BlockingIOError:
                growth.look(0.01)
        assert growth.look(0.2) < GROWTH_MAX


def test_unfinished_metered_requests_take_turns(attacked: ProxyProcess) -> None:
    """Eight metered Produces of 40 MB: one is gathered at a time, and a small one passes all of them."""
    growth = Growth(attacked)
    small, _ = produce(9, {"no.such.topic": [batch(1)]}, client_id=METERED)
    with ExitStack() as stack:
        for _ in range(8):
            client = stack.enter_context(WireClient(attacked.bootstrap, METERED))
            client.socket.settimeout(0.3)
            with suppress(OSError):
                client.socket.sendall(begun(0, 9, 40 * MIB, METERED.encode()) + bytes(30 * MIB))
            growth.look()
        bystander = stack.enter_context(WireClient(attacked.bootstrap, METERED))
        bystander.send_frame(small)
        assert bystander.receive_frame()
        assert growth.look(0.2) < GROWTH_MAX


def test_the_greediest_goes_first(
    cluster: Cluster, attacked: ProxyProcess, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Above half of the bound who holds most is ended, counted and logged; the others are served."""
    with (
        proxy_process(
            cluster, tmp_path_factory.mktemp("budget"), cluster.topics, "budget", memory_mb=128
        ) as proxy,
        ExitStack() as stack,
    ):
        bystander = stack.enter_context(WireClient(proxy.bootstrap))
        assert bystander.metadata([]).brokers
        before = proxy.resident
        for _ in range(300):
            client = stack.enter_context(WireClient(proxy.bootstrap, METERED))
            with suppress(OSError):
                client.socket.sendall(begun(0, 9, 1_000_000, METERED.encode()) + bytes(900_000))
        until(lambda: proxy.metric('closed_connections_total{reason="memory"}') > 0)
        assert proxy.resident - before < 170 * MIB
        assert bystander.metadata([]).brokers
        assert "it holds" in proxy.log.read_text()
