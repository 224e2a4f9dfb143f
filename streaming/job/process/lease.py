"""One job at a time on a checkpoint, although the JVM of a killed job lives on for a while.

Two queries on one checkpoint would each commit batches that the other does not know.
"""

import fcntl
import json
import logging
import os
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from streaming.contract.errors import WeirError

_LOG = logging.getLogger("weir.job")
_POLL_S = 0.1
_PS_LIMIT_S = 5.0


class Lease:
    """The right to use a checkpoint; a context manager.

    Args:
        checkpoint: local path of the checkpoint; the note about its user stands beside it.
        timeout_s: how long to wait for the last user to be gone.

    Attributes:
        restarts: how often a job was started on this checkpoint before.
    """

    def __init__(self, checkpoint: Path, timeout_s: float) -> None:
        self._path = checkpoint.parent / f"{checkpoint.name}.pid"
        self._timeout_s = timeout_s
        self._file: IO[str] | None = None
        self.restarts = 0

    def __enter__(self) -> Self:
        """Take it; raises WeirError if the last user is still there after `timeout_s`."""
        deadline = time.monotonic() + self._timeout_s
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+", encoding="utf-8")
        try:
            self._lock(file, deadline)
            note = _read(file)
            self._wait_for_jvm(int(note.get("jvm_pid", 0)), deadline)
        except BaseException:
            file.close()
            raise
        self.restarts = int(note.get("starts", 0))
        self._file = file
        return self

    def record(self, jvm_pid: int) -> None:
        """Note which JVM uses the checkpoint from now on."""
        if self._file is None:
            raise WeirError(f"{self._path} is not held")
        self._file.seek(0)
        self._file.truncate()
        json.dump({"pid": os.getpid(), "jvm_pid": jvm_pid, "starts": self.restarts + 1}, self._file)
        self._file.flush()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _lock(self, file: IO[str], deadline: float) -> None:
        # The kernel drops the lock with the process, so a kill -9 leaves none behind.
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError as held:
                if time.monotonic() > deadline:
                    pid = _read(file).get("pid")
                    raise WeirError(
                        f"another job (pid {pid}) uses the checkpoint; see {self._path}"
                    ) from held
                time.sleep(_POLL_S)

    def _wait_for_jvm(self, pid: int, deadline: float) -> None:
        if not _is_spark(pid):
            return
        _LOG.info("waiting for the JVM of the last job (pid %d) to be gone", pid)
        while _is_spark(pid):
            if time.monotonic() > deadline:
                raise WeirError(f"the JVM of the last job (pid {pid}) still runs; stop it and start again")
            time.sleep(_POLL_S)


def _read(file: IO[str]) -> dict[str, int]:
    """What the last user noted; empty if there was none or it died while it wrote."""
    file.seek(0)
    try:
        note = json.loads(file.read())
    except ValueError:
        return {}
    return note if isinstance(note, dict) else {}


def _is_spark(pid: int) -> bool:
    """Whether that process is a living Spark driver: after a reboot the id may belong to anyone."""
    if not pid:
        return False
    shown = subprocess.run(
        ["ps", "-ww", "-o", "stat=,args=", "-p", str(pid)],
        capture_output=True, text=True, check=False, timeout=_PS_LIMIT_S,
    ).stdout  # fmt: skip
    return "org.apache.spark.deploy.SparkSubmit" in shown and not shown.startswith("Z")
