"""Weir's commands as processes, and what a proxy looks like from outside: memory, metrics, addresses."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
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


class Program(AbstractContextManager[Any]):
    """A command that runs from its start until it is told to end, or its context is over; then again.

    Attributes:
        process: the newest; None: it was never started.
        log: takes what all of them say.

    Args:
        path: of its settings, log and ready file, but for their endings.
        words: the command.
        before: done by the process before it is the command.
        prefix: words before the command, such as another program that runs it.
        module: by which Python finds it.
        settings: sections of its settings.
    """

    process: Any = None

    def __init__(
        self, path: Path, *words: str, before: Callable[[], object] | None = None,
        prefix: Sequence[str] = (), module: Sequence[str] = ("-m", "weir"), **settings: Any,
    ) -> None:  # fmt: skip
        given, self.log, self.ready_file = (Path(f"{path}.{end}") for end in ("yaml", "log", "json"))
        given.write_text(yaml.safe_dump(settings))
        files = ("--settings", given, "--ready-file", self.ready_file)
        self._command = [*map(str, (*prefix, sys.executable, *module, *words, *files))]
        self._before = before

    def launch(self) -> None:
        """Start it, without waiting."""
        self.ready_file.unlink(missing_ok=True)
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self._command, stdout=output, stderr=output, preexec_fn=self._before
            )

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(15)

    def __exit__(self, *_: object) -> None:
        self.close()

    def ready(self, limit_s: float = 60.0) -> dict[str, Any]:
        """What it says of itself, once it does."""
        until(
            lambda: self.ready_file.exists() or self.process.poll() is not None,
            limit_s,
            f"a ready file; see {self.log}",
        )
        assert self.process.poll() is None, self.log.read_text()
        said: dict[str, Any] = json.loads(self.ready_file.read_text())
        return said


class Command(Program):
    """One that is started."""

    def __init__(self, path: Path, *words: str, **more: Any) -> None:
        super().__init__(path, *words, **more)
        self.launch()


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
        """One of them, 0 of one with labels that was never touched; one without is there at once."""
        seen, name = self.metrics(), f"weir_proxy_{series}"
        return seen.get(name, 0.0) if "{" in name else seen[name]

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
    listen, metrics = (f"127.0.0.1:{free_port()}" for _ in range(2))
    words = ["proxy", "--kafka", cluster.kafka.bootstrap, "--listen", listen, "--metrics", metrics]
    sections: dict[str, Any] = {"kafka": {"topic_prefix": topics.prefix}, "proxy": settings}
    with Command(folder / "proxy", *words, "--id", name, **sections) as command:
        proxy = ProxyProcess(command.process, listen, metrics, command.log)
        try:
            until(proxy.serves, 60, what="a proxy that serves")
            yield proxy
        finally:
            proxy.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                proxy.process.wait(10)
