"""A `weir job` process under test."""

import signal
from pathlib import Path
from typing import Any

import yaml
from process_kit import Program

START_S, STOP_S = 150.0, 15.0


class Job(Program):
    """A `weir job` process, which is not started yet; the JVM ends when its parent has.

    Args:
        folder: for checkpoint, logs and ready file.
        kafka: the broker.
        words: further options.
        settings: text of its settings.
        checkpoint: where it is; None: in the folder.
        more: see Program.
    """

    def __init__(
        self, folder: Path, kafka: str, *words: str, settings: str = "{}",
        checkpoint: Path | str | None = None, **more: Any,
    ) -> None:  # fmt: skip
        options = ("--kafka", kafka, "--metrics", "127.0.0.1:0", *words, "--log-dir", str(folder / "log"))
        options += ("--checkpoint", str(checkpoint or folder / "checkpoint"))
        super().__init__(folder / "job", "job", *options, **more, **yaml.safe_load(settings))

    def start(self) -> dict[str, Any]:
        """Start it and wait until it works; returns its ready file."""
        self.launch()
        said = self.ready(START_S)
        assert said["pid"] == self.process.pid
        return said

    def end(self, number: signal.Signals) -> int:
        """Send a signal and wait for the end; returns the exit status."""
        self.process.send_signal(number)
        return self.ended(STOP_S)

    def status(self) -> int | None:
        """Its exit status, None while it runs."""
        status: int | None = self.process.poll()
        return status

    def ended(self, limit_s: float) -> int:
        """Its exit status, when it ends by itself."""
        status: int = self.process.wait(limit_s)
        return status
