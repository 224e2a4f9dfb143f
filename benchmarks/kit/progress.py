"""How far a benchmark is, on stderr: one moving line on a terminal, plain lines elsewhere (a log)."""

import time
from typing import Final, Self, TextIO

from rich import progress
from rich.console import Console

WIDTH: Final = 24
_PLAIN_S: Final = 10.0


class Progress:
    """The progress line of one benchmark; a context manager, within which a terminal's seconds run on.

    In a log a line is written for every new step, and when one that goes on is said again after ten seconds.

    Args:
        total_s: stated duration of the whole.
        name: what the line begins with.
        stream: where it goes; None: stderr.
    """

    def __init__(self, total_s: float, *, name: str = "", stream: TextIO | None = None) -> None:
        self._console = Console(file=stream, stderr=True)
        self._name, self._about = f"{name:<10}", f"of about {total_s:.0f} s"
        self._bar = progress.Progress(
            self._name,
            progress.BarColumn(WIDTH),
            progress.TimeElapsedColumn(),
            self._about,
            progress.TextColumn("{task.description}", markup=False),
            console=self._console,
            disable=not self._console.is_interactive,
            refresh_per_second=1,  # more would be seen in what is measured beside it
        )
        self._task = self._bar.add_task("starting", total=1.0)
        self._begun, self._said, self._said_what = time.monotonic(), 0.0, ""

    def step(self, what: str, fraction: float) -> None:
        """Say what is being done and how much of the whole benchmark lies behind, 0 to 1."""
        self._bar.update(self._task, description=what, completed=min(1.0, fraction))
        now = time.monotonic()
        if self._console.is_interactive or (what == self._said_what and now - self._said < _PLAIN_S):
            return
        self._said, self._said_what = now, what
        line = f"{self._name} {min(1.0, fraction):4.0%} {now - self._begun:4.0f} s {self._about}  {what}"
        self._console.out(line, highlight=False)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
