"""A Spark cluster of its own: a master and workers as processes on loopback, from pyspark's own jars."""

import json
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Self

import pyspark

from streaming.contract.errors import WeirError
from streaming.job.spark.java import find_java
from weir.stack.kafka import HOST, free_port
from weir.stack.process import Child

START_S: Final = 60.0
_SPARK: Final = Path(pyspark.__file__).parent
_POLL_S: Final = 0.05


class SparkCluster:
    """A master and workers of one core each; a context manager that leaves nothing behind.

    Args:
        folder: for logs and what executors work with.
        workers: how many there are at the start.
        options: of every Java of it, executors too.
    """

    def __init__(
        self, folder: Path, workers: int = 2, *, options: Sequence[str] = ("-XX:TieredStopAtLevel=1",)
    ) -> None:
        self._folder, self._first = folder, workers
        self._port, self._page = free_port(), free_port()
        # The last is what bin/spark-class finds out: without it a worker cannot start an executor.
        self._env = {"SPARK_HOME": str(_SPARK), "SPARK_LOCAL_IP": HOST, "SPARK_SCALA_VERSION": "2.13"}
        # Executors inherit it; in a test no run is long enough for Java's second compiler.
        self._env["JDK_JAVA_OPTIONS"] = " ".join(options)
        self._master = self._child(
            "master", "master.Master", "--port", self._port, "--webui-port", self._page
        )
        self.workers: list[Child] = []
        self.ports: list[int] = []

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

    def __exit__(self, *_: object) -> None:
        self.close()

    def add_worker(self) -> Child:
        """Start one more worker and wait until the master knows it; it ends with the thread that asks.

        Raises:
            WeirError: it does not come.
        """
        before = self.alive_workers()
        name, port = f"worker-{len(self.workers)}", free_port()
        own = ("--port", port, "--webui-port", free_port(), "--work-dir", self._folder / name)
        worker = self._child(name, "worker.Worker", *own, "--cores", 1, "--memory", "2g", self.url)
        self.ports.append(port)
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

    def close(self) -> None:
        """Kill all of it, whatever state it is in."""
        for child in (*self.workers, self._master):
            child.kill()

    def wait_for(self, look: Callable[[], bool], what: str) -> None:
        """Wait until `look` is true.

        Raises:
            WeirError: it did not come true in time, or the master is gone; with what was said last.
        """
        deadline = time.monotonic() + START_S
        while not look():
            if time.monotonic() > deadline or not self._master.alive():
                said = {child.name: child.last_lines(5) for child in (self._master, *self.workers)}
                raise WeirError(f"no {what} in a Spark cluster: {said}")
            time.sleep(_POLL_S)

    def _child(self, name: str, main: str, *words: object) -> Child:
        java = find_java() / "bin" / "java"
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{_SPARK}/jars/*"]
        command = [str(java), *options, f"org.apache.spark.deploy.{main}", "--host", HOST, *map(str, words)]
        return Child(name, command, log=self._folder / f"{name}.log", env=self._env)
