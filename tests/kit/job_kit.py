"""A `weir job` process under test."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

START_S, STOP_S = 150.0, 15.0


class Job:
    """A `weir job` process; its output goes to a file.

    Args:
        folder: for checkpoint, logs and ready file.
        kafka: the broker.
        words: further options.
        settings: text of its weir.yaml; empty: it has none.
        checkpoint: where it is; None: in the folder.
        prefix: words before the command, such as another program that runs it.
    """

    def __init__(
        self,
        folder: Path,
        kafka: str,
        *words: str,
        settings: str = "",
        checkpoint: Path | str | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self._folder, self._words = folder, words
        self._kafka = kafka
        self._checkpoint = checkpoint or folder / "checkpoint"
        self._prefix = prefix
        if settings:
            (folder / "weir.yaml").write_text(settings)
            self._words += "--settings", str(folder / "weir.yaml")
        self.log = folder / "job.log"
        self._ready = folder / "ready.json"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> dict[str, Any]:
        """Start it and wait until it works; returns its ready file."""
        self.launch()
        assert self._process is not None
        deadline = time.monotonic() + START_S
        while not self._ready.exists():
            assert self._process.poll() is None and time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.1)
        note: dict[str, Any] = json.loads(self._ready.read_text())
        assert note["pid"] == self._process.pid
        return note

    def launch(self) -> None:
        """Start it; it may end before it is ready."""
        self._ready.unlink(missing_ok=True)
        command = [*self._prefix, sys.executable, "-m", "weir", "job", "--kafka", self._kafka]
        command += ["--metrics", "127.0.0.1:0"]
        routes = ["--checkpoint", self._checkpoint, "--log-dir", self._folder / "log"]
        command += self._words
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *map(str, routes), "--ready-file", str(self._ready)], stdout=log, stderr=log
            )

    def end(self, number: signal.Signals) -> int:
        """Send a signal and wait for the end; returns the exit status."""
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(STOP_S)

    def status(self) -> int | None:
        """Its exit status, None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def ended(self, limit_s: float) -> int:
        """Its exit status, when it ends by itself."""
        assert self._process is not None
        return self._process.wait(limit_s)

    def close(self) -> None:
        """Leave nothing behind; the JVM ends when its parent has."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(STOP_S)
