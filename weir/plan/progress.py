"""How far a long replay is, on stderr: a line that goes on from the third second on, or nothing in a log."""

import time
from threading import Timer
from typing import Final, Self

from rich import progress
from rich.console import Console

QUIET_S: Final = 2.0


class Progress:
    """The line; a context manager.

    Args:
        steps: how often `step` will be called; 1 for whoever calls `tell`.
    """

    def __init__(self, steps: int = 1) -> None:
        console = Console(stderr=True)
        self._bar = progress.Progress(
            progress.BarColumn(24), progress.TimeElapsedColumn(),
            progress.TextColumn("left"), progress.TimeRemainingColumn(compact=True),
            progress.TextColumn("{task.description}", markup=False),
            console=console, transient=True, disable=not console.is_interactive,
        )  # fmt: skip
        self._steps = steps
        self._task = self._bar.add_task("", total=steps)
        self._begun = time.monotonic()
        # By a clock of its own: a first replay compiles for seconds before it has anything to tell.
        self._start = Timer(QUIET_S, self._bar.start)

    def step(self, what: str) -> None:
        """Say what is done next; a short replay says nothing."""
        self._bar.update(self._task, description=what, advance=1)

    def tell(self, events: int, part: float) -> None:
        """Say how many events are done, at which rate, and which part of all steps that is."""
        rate = events / max(time.monotonic() - self._begun, 1e-3)
        said = f"{events:,} events, {rate:,.0f}/s"
        self._bar.update(self._task, description=said, completed=part * self._steps)

    def __enter__(self) -> Self:
        self._start.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._start.cancel()
        self._start.join()
        self._bar.stop()
