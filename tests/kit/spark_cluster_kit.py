"""A Spark cluster under test, and the processes that its workers have started."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.kit.spark_cluster import SparkCluster
from weir.stack.kafka import HOST

EXECUTOR = "CoarseGrainedExecutorBackend"
"""What stands in the command line of an executor."""


class WatchedCluster(SparkCluster):
    """A cluster whose processes can be found, to be killed."""

    def executors(self, worker: int) -> list[int]:
        """Process ids of the executors that a worker has started."""
        mine = f"spark://Worker@{HOST}:{self.ports[worker]}"
        return [pid for pid, words in _processes() if EXECUTOR in words and mine in words]

    def python_workers(self, worker: int) -> list[int]:
        """Process ids of the Python workers of these executors, their daemons left out."""
        daemons = _children(self.executors(worker))
        return _children(daemons)


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
