"""`weir proxy --workers`: one port, several processes, none of which takes the others down."""

import os
import re
import signal
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import with_constant
from cluster_kit import Cluster
from process_kit import Command
from proxy_kit import until
from stack_kit import series_at
from wire_client import WireClient

from weir.stack.kafka import free_port

CLIENTS = 40


def clients_of(worker: dict[str, Any]) -> float:
    """How many connections a worker has, by its metrics."""
    return series_at(worker["metrics"])["weir_proxy_connections"]


@pytest.mark.soak
def test_workers_share_a_port(cluster: Cluster, tmp_path: Path) -> None:
    """Both serve clients; kill -9 of one ends its clients only, is said, and it comes back; TERM ends all."""
    port = free_port()
    options = ["--kafka", cluster.kafka.bootstrap, "--listen", f"127.0.0.1:{port}", "--workers", "2"]
    options += ["--metrics", "127.0.0.1:0", "--id", "shared"]
    with Command(tmp_path / "proxy", "proxy", *options) as command, ExitStack() as running:
        ready, process, log = command.ready(20.0), command.process, command.log
        first, second = ready["workers"]
        assert ready["pid"] == process.pid and ready["listen"] == f"127.0.0.1:{port}"
        assert first["brokers"] == second["brokers"] == {"1": f"127.0.0.1:{port + 2}"}
        clients = [running.enter_context(WireClient(ready["listen"])) for _ in range(CLIENTS)]
        for client in clients:
            assert client.metadata([]).brokers[0].port == port + 2
        counts = [clients_of(worker) for worker in ready["workers"]]
        assert sum(counts) == CLIENTS and min(counts) > 0
        os.kill(first["pid"], signal.SIGKILL)
        until(lambda: "ended with status -9" in log.read_text(), what="a word of the end")
        assert clients_of(second) == counts[1]
        for _ in range(CLIENTS):
            with WireClient(ready["listen"]) as client:
                assert client.metadata([]).brokers
        until(lambda: command.ready()["workers"][0]["pid"] != first["pid"], what="another one")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port), timeout=1.0)


@pytest.mark.soak
def test_a_port_of_somebody_else_is_not_shared(cluster: Cluster, tmp_path: Path) -> None:
    """Status 1 and one line, and a killed parent takes its workers along."""
    port = free_port()
    words = ["proxy", "--kafka", cluster.kafka.bootstrap, "--listen", f"127.0.0.1:{port}", "--workers", "2"]
    with Command(tmp_path / "other", *words) as other:
        until(lambda: answers(port), what="the port")
        with Command(tmp_path / "proxy", *words) as command:
            assert command.process.wait(20) == 1
        (line,) = [line for line in command.log.read_text().splitlines() if line]
        assert str(port) in line
        other.process.kill()
        until(lambda: not answers(port), what="the end of the workers")


def answers(port: int) -> bool:
    """Whether somebody listens."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.soak
def test_a_worker_that_cannot_live_ends_all(cluster: Cluster, tmp_path: Path) -> None:
    """Started again as often as may be, then the others are stopped and the command fails."""
    port, once = free_port(), with_constant.at("weir.stack.parts", "RESTARTS_MAX", 1)
    words = ["proxy", "--kafka", cluster.kafka.bootstrap, "--listen", f"127.0.0.1:{port}", "--workers", "2"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words += ["--metrics", f"127.0.0.1:{taken.getsockname()[1]}"]
        with Command(tmp_path / "proxy", *words, module=once) as command:
            assert command.process.wait(40) == 1
    lines = command.log.read_text().splitlines()
    # The port behind may be taken too, then it may be the other one.
    (worker,) = re.findall(r"worker \d", lines[-1])
    said = [line for line in lines if worker in line]
    assert len(said) == 4 and "restarting" in said[1] and "too often" in said[3]
    assert not answers(port)
