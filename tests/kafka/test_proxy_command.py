"""`weir proxy` as a process: ready file, metrics, stop (docs/contract.md 4)."""

import signal
import time
import urllib.request
from pathlib import Path

import pytest
from cluster_kit import Cluster, address
from process_kit import Command
from proxy_kit import until
from wire_client import WireClient

from weir.stack.kafka import free_port


def test_it_gets_ready_serves_and_stops(cluster: Cluster, tmp_path: Path) -> None:
    """The ready file tells addresses that work; SIGTERM ends it with status 0 and clients are closed."""
    port = free_port()
    options = ["--kafka", cluster.kafka.bootstrap, "--listen", f"127.0.0.1:{port}"]
    options += ["--metrics", "127.0.0.1:0", "--id", "command"]
    with Command(tmp_path / "proxy", "proxy", *options) as command:
        ready, process = command.ready(20.0), command.process
        assert ready["pid"] == process.pid and address(ready["listen"]) == ("127.0.0.1", port)
        # The port of a broker follows from its id, so a restarted proxy has it again.
        assert ready["brokers"] == {"1": f"127.0.0.1:{port + 2}"}
        with WireClient(ready["listen"]) as client, WireClient(ready["brokers"]["1"]) as direct:
            assert client.metadata([]).brokers[0].port == port + 2
            assert direct.metadata([]).brokers[0].port == port + 2
            with urllib.request.urlopen(ready["metrics"], timeout=5) as page:
                text = page.read().decode()
            assert "weir_proxy_connections 2.0" in text and "python_gc" not in text
            process.send_signal(signal.SIGTERM)
            assert client.closed_within(8)
        assert process.wait(8) == 0


@pytest.mark.soak
def test_it_stops_while_kafka_is_away(tmp_path: Path) -> None:
    """SIGTERM ends it within 10 s when there is no Kafka at all."""
    away = f"127.0.0.1:{free_port()}"
    options = ["--kafka", away, "--listen", f"127.0.0.1:{free_port()}"]
    with Command(tmp_path / "proxy", "proxy", *options) as command:
        process = command.process
        # Not a time: on a busy machine the first imports alone may take longer than any.
        until(lambda: _catches(process.pid, signal.SIGTERM), what="a handler of SIGTERM")
        time.sleep(1)
        assert process.poll() is None
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert time.monotonic() - begun < 9


@pytest.mark.soak
def test_a_taken_port_is_said_in_one_line(cluster: Cluster, tmp_path: Path) -> None:
    """A listen address that cannot be had: status 1 and one line."""
    taken = cluster.kafka.bootstrap
    with Command(tmp_path / "proxy", "proxy", "--kafka", taken, "--listen", taken) as command:
        assert command.process.wait(20) == 1
    (line,) = [line for line in command.log.read_text().splitlines() if line]
    assert taken in line


def _catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler of its own for a signal (proc(5), SigCgt)."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    (mask,) = [line.split()[1] for line in status if line.startswith("SigCgt:")]
    return bool(int(mask, 16) >> (number - 1) & 1)
