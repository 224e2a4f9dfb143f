"""A Spark cluster of its own: a master and workers as processes on loopback, from pyspark's own jars."""

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark

from streaming.job.spark.session import find_java
from weir.stack.kafka import HOST, free_port
from weir.stack.process import Child

START_S = 60.0
EXECUTOR = "CoarseGrainedExecutorBackend"
"""What stands in the command line of an executor."""
_SPARK = Path(pyspark.__file__).parent
_POLL_S = 0.05


class SparkCluster:
    """A master and workers of one core each; a context manager that leaves nothing behind.

    Args:
        folder: for logs and what executors work with.
        workers: how many there are at the start.
        env: further variables of the workers, which executors inherit.
    """

    def __init__(self, folder: Path, workers: int = 2, env: dict[str, str] | None = None) -> None:
        self._folder, self._first = folder, workers
        self._port, self._page = free_port(), free_port()
        # The last is what bin/spark-class finds out: without it a worker cannot start an executor.
        own = {"SPARK_HOME": str(_SPARK), "SPARK_LOCAL_IP": HOST, "SPARK_SCALA_VERSION": "2.13"}
        # As in tests of one process: no test is long enough for the second compiler.
        own["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1"
        self._env = own | (env or {})
        self._master = self._child(
            "master", "master.Master", "--port", self._port, "--webui-port", self._page
        )
        self.workers: list[Child] = []
        self._ports: list[int] = []

    @property
    def url(self) -> str:
        """What `--master` takes."""
        return f"spark://{HOST}:{self._port}"

    def __enter__(self) -> Self:
        try:
            self._master.start()
            self.wait_for(lambda: self.state() is not None, "a master")
            for _ in range(self._first):
                self.add_worker()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add_worker(self) -> Child:
        """Start one more worker and wait until the master knows it."""
        before = self.alive_workers()
        name, port = f"worker-{len(self.workers)}", free_port()
        own = ("--port", port, "--webui-port", free_port(), "--work-dir", self._folder / name)
        worker = self._child(name, "worker.Worker", *own, "--cores", 1, "--memory", "2g", self.url)
        self._ports.append(port)
        self.workers.append(worker)
        worker.start()
        self.wait_for(lambda: self.alive_workers() > before, name)
        return worker

    def state(self) -> dict[str, Any] | None:
        """What the master says of itself; None: it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._page}/json/", timeout=5) as page:
                said: dict[str, Any] = json.load(page)
        except OSError:
            return None
        return said

    def alive_workers(self) -> int:
        """How many workers the master counts on."""
        return int((self.state() or {}).get("aliveworkers", 0))

    def executors(self, worker: int) -> list[int]:
        """Process ids of the executors that a worker has started."""
        mine = f"spark://Worker@{HOST}:{self._ports[worker]}"
        return [pid for pid, words in _processes() if EXECUTOR in words and mine in words]

    def python_workers(self, worker: int) -> list[int]:
        """Process ids of the Python workers of these executors, their daemons left out."""
        daemons = _children(self.executors(worker))
        return _children(daemons)

    def close(self) -> None:
        """Kill all of it, whatever state it is in."""
        for child in (*self.workers, self._master):
            child.kill()

    def wait_for(self, look: Callable[[], bool], what: str) -> None:
        """Wait until `look` is true; AssertionError with what the processes said last."""
        deadline = time.monotonic() + START_S
        while not look():
            said = {child.name: child.last_lines(5) for child in (self._master, *self.workers)}
            assert time.monotonic() < deadline, f"no {what}: {said}"
            assert self._master.alive(), said
            time.sleep(_POLL_S)

    def _child(self, name: str, main: str, *words: object) -> Child:
        java = find_java() / "bin" / "java"
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{_SPARK}/jars/*"]
        command = [str(java), *options, f"org.apache.spark.deploy.{main}", "--host", HOST, *map(str, words)]
        return Child(name, command, log=self._folder / f"{name}.log", env=self._env)


def _children(parents: list[int]) -> list[int]:
    return [pid for pid, _ in _processes() if _parent(pid) in parents]


def _parent(pid: int) -> int:
    try:
        # The name before the state stands in brackets and may hold any character.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _processes() -> Iterator[tuple[int, str]]:
    """Ids and command lines of everything that runs here."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
