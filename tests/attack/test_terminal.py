"""Names that clients choose, on their way to an operator's terminal."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import orjson
import pytest
from cluster_kit import Cluster, fresh
from proxy_kit import ProxyThread, until
from wire_client import WireClient

from streaming.contract.printable import is_printable

FORGED = "\n09:24:28.375  allow     alice\x1b[1A\x1b[2K\r\x9b\u2028\u202e"


@contextmanager
def tail(cluster: Cluster, *words: str) -> Iterator[list[str]]:
    """`weir tail` from ten minutes ago on; its lines, growing."""
    command = [sys.executable, "-m", "weir", "tail", "--kafka", cluster.kafka.bootstrap]
    command += ["--from", "-10m", *words]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONUTF8": "1"})
    lines: list[str] = []

    def read() -> None:
        assert running.stdout is not None
        for line in running.stdout:
            lines.append(line.decode().removesuffix("\n"))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield lines
    finally:
        running.terminate()
        running.wait(20)
        reader.join(20)
        assert running.stdout is not None
        running.stdout.close()


@pytest.mark.parametrize(
    "words", [pytest.param((), marks=pytest.mark.soak), ("--json",)], ids=["lines", "json"]
)
def test_a_client_id_forges_no_line_of_weir_tail(
    cluster: Cluster, proxy: ProxyThread, wire: Callable[..., WireClient], words: tuple[str, ...]
) -> None:
    """One decision is one line, and the terminal gets nothing that it would obey."""
    stem = fresh("forger")
    client_id = f"{stem}{FORGED}"
    cluster.limit(proxy, client_id, controller_mutation_rate=1)
    wire(client_id).create({fresh("forged"): 1})
    with tail(cluster, *words) as lines:
        until(lambda: any(stem in line for line in lines), what="the decision")
        assert all(map(is_printable, lines))
        (line,) = [line for line in lines if stem in line]
        if words:
            assert orjson.loads(line)["subject"].endswith("\u202e")


@pytest.mark.soak
def test_a_client_named_as_a_probe_hides_nothing(
    cluster: Cluster, proxy: ProxyThread, wire: Callable[..., WireClient]
) -> None:
    """The proxy's own probes are left out unless asked for; what a client does is shown, dry runs too."""
    cluster.limit(proxy, "weir-probe", controller_mutation_rate=100)
    client = wire("weir-probe")
    client.create({fresh("hidden"): 3})
    client.create({fresh("hidden"): 0})
    event = cluster.event_of("weir-probe", validate_only=False)
    with tail(cluster) as lines, tail(cluster, "--probes") as all_lines:
        until(lambda: any(event["id"] in line for line in lines), what="the attacker's decision")
        until(lambda: any("-probe]" in line for line in all_lines), what="the probes")
        assert not any("-probe]" in line for line in lines)
        assert sum("client-id=weir-probe" in line for line in lines) >= 1
