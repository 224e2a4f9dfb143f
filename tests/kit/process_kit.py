"""`weir proxy` as a process of its own, and what it looks like from outside: memory, metrics, addresses."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from cluster_kit import Cluster
from proxy_kit import until
from stack_kit import series_at
from wire_client import WireClient

from streaming.contract.topics import Topics
from weir.stack.kafka import free_port

MIB = 1 << 20


class ProxyProcess:
    """A proxy that runs as a command.

    Attributes:
        bootstrap: where clients connect to.
    """

    def __init__(self, process: subprocess.Popen[bytes], listen: str, metrics: str, log: Path) -> None:
        self.process = process
        self.bootstrap = listen
        self.log = log
        self._metrics = f"http://{metrics}/metrics"

    @property
    def resident(self) -> int:
        """Its memory now, bytes."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the process is gone")

    def metrics(self) -> dict[str, float]:
        """Every series, by its name with labels."""
        return series_at(self._metrics)

    def serves(self) -> bool:
        """Whether clients get answers."""
        try:
            with WireClient(self.bootstrap) as client:
                return bool(client.metadata([]).brokers)
        except OSError:
            return False

    def metric(self, series: str) -> float:
        """One of them, 0 if it was never touched."""
        return self.metrics().get(f"weir_proxy_{series}", 0.0)

    def held_up(self, above_s: float) -> float:
        """How often the loop was later than so much; the bounds of its histogram only."""
        seen = self.metrics()
        name = "weir_proxy_loop_delay_seconds"
        return seen[f"{name}_count"] - seen[f'{name}_bucket{{le="{above_s}"}}']


@contextmanager
def proxy_process(
    cluster: Cluster, folder: Path, topics: Topics, name: str = "process", **settings: Any
) -> Iterator[ProxyProcess]:
    """Run one before a cluster; clients are let in when this is entered. It says when it leaves."""
    log, listen, metrics = folder / "proxy.log", *(f"127.0.0.1:{free_port()}" for _ in range(2))
    given = folder / "weir.yaml"
    given.write_text(yaml.safe_dump({"kafka": {"topic_prefix": topics.prefix}, "proxy": settings}))
    options = ["--kafka", cluster.kafka.bootstrap, "--settings", str(given)]
    options += ["--listen", listen, "--metrics", metrics, "--id", name]
    with weir_proxy(*options, log=log) as process:
        proxy = ProxyProcess(process, listen, metrics, log)
        try:
            until(proxy.serves, 60, what="a proxy that serves")
            yield proxy
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)


@contextmanager
def weir_proxy(*args: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run `weir proxy`; kill it in the end."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "weir", "proxy", *args], stdout=output, stderr=output
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait(5)
