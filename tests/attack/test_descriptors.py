"""File descriptors: a flood of connections leaves the proxy some, and those who left give theirs back."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cluster_kit import Cluster, address, fresh
from endings_kit import End, creation, reset
from process_kit import Command
from proxy_kit import ProxyThread, until
from stack_kit import series_at
from wire_client import WireClient

from enforcer.core import bounds

LIMIT = 400
RESERVE = bounds.DESCRIPTORS_RESERVE
OWN_SLACK = 16
"""Of its own clients some need no socket to where they begin, since a broker is there."""


@contextmanager
def proxy_process(cluster: Cluster, tmp_path: Path, hard: int) -> Iterator[tuple[dict[str, Any], Path]]:
    """A proxy in a process that may have so many descriptors, and may open half of them at its start."""
    words = ("--kafka", cluster.kafka.bootstrap, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
    limits = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (hard // 2, hard))
    own = {"stop_timeout_ms": 500}
    with Command(tmp_path / "proxy", "proxy", *words, before=limits, proxy=own) as running:
        yield {**running.ready(), "pid": running.process.pid}, running.log
        running.process.terminate()
        assert running.process.wait(10) == 0


def spent_s(pid: int) -> float:
    """Processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def descriptors(pid: int) -> int:
    """How many file descriptors a process has."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@pytest.mark.soak
def test_a_flood_leaves_descriptors(cluster: Cluster, tmp_path: Path) -> None:
    """Fewer are let in than connections_max says, which is said; who is in goes on, and so do metrics."""
    with proxy_process(cluster, tmp_path, LIMIT) as (ready, log), ExitStack() as stack:
        until(lambda: series_at(ready["metrics"], 5.0)["weir_proxy_brokers"] == 1, what="the broker")
        room = int(series_at(ready["metrics"], 5.0)["weir_proxy_connections_max"])
        assert 20 < room < (LIMIT - RESERVE) // 2
        # What it keeps for its own clients is what they take.
        own = LIMIT - RESERVE - 2 * room
        until(lambda: own - OWN_SLACK <= descriptors(ready["pid"]) <= own, what=f"{own} of its own")
        assert "not for the 10000 of proxy.connections_max" in log.read_text()
        first = stack.enter_context(WireClient(ready["listen"], "first"))
        assert first.metadata([]).brokers
        flood = [socket.create_connection(address(ready["listen"])) for _ in range(3 * LIMIT)]
        for client in flood:
            stack.callback(client.close)
        until(lambda: series_at(ready["metrics"], 5.0)["weir_proxy_connections"] == room)
        before = spent_s(ready["pid"])
        time.sleep(1)
        assert spent_s(ready["pid"]) - before < 0.3
        assert first.metadata([]).brokers
        assert descriptors(ready["pid"]) < LIMIT - RESERVE // 3
        for client in flood:
            client.close()
        until(lambda: series_at(ready["metrics"], 5.0)["weir_proxy_connections"] == 1)
        with WireClient(ready["listen"], "next") as late:
            assert late.metadata([]).brokers


@pytest.mark.parametrize("end", [socket.socket.close, reset])
def test_a_muted_client_that_left_gives_back(cluster: Cluster, proxy: ProxyThread, end: End) -> None:
    """Muted for minutes, and gone: its descriptors are free within seconds, though its socket is not read."""
    client_id = fresh("muted")
    cluster.limit(proxy, client_id, controller_mutation_rate=0.1, controller_mutation_burst=5)
    muted = proxy.metric("muted_connections")
    client = socket.create_connection(address(proxy.bootstrap))
    client.sendall(creation(client_id, client_id, 30, 4))
    until(lambda: proxy.metric("muted_connections") == muted + 1)
    time.sleep(0.3)
    assert proxy.metric("connections") == 1
    end(client)
    until(lambda: proxy.metric("connections") == 0, 4)
    assert proxy.metric("muted_connections") == muted
