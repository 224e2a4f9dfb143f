"""One line on stderr that says how far a benchmark is."""

import sys
import threading
import time
from types import TracebackType
from typing import Final, Self, TextIO

WIDTH: Final = 24
_REDRAW_S: Final = 1.0
_PLAIN_S: Final = 10.0


class Progress:
    """The progress line of one benchmark; a context manager, which keeps the seconds running in long waits.

    On a terminal one line is drawn over and over; elsewhere (a log) a line is written for every new step
    and one every ten seconds.

    Args:
        total_s: stated duration of the whole.
        name: what the line begins with.
        stream: where it goes.
    """

    def __init__(self, total_s: float, *, name: str = "", stream: TextIO | None = None) -> None:
        self._total_s = total_s
        self._name = name
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._begun = time.monotonic()
        self._what, self._fraction = "starting", 0.0
        self._said, self._said_what = 0.0, ""
        self._drawing = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def step(self, what: str, fraction: float) -> None:
        """Say what is being done and how much of the whole benchmark lies behind, 0 to 1."""
        with self._drawing:
            self._what, self._fraction = what, min(1.0, max(0.0, fraction))
            self._draw()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(5.0)
        if self._terminal:
            self._stream.write("\n")
            self._stream.flush()

    def _run(self) -> None:
        while not self._ended.wait(_REDRAW_S):
            with self._drawing:
                self._draw()

    def _draw(self) -> None:
        now = time.monotonic()
        if not self._terminal and self._what == self._said_what and now - self._said < _PLAIN_S:
            return
        self._said, self._said_what = now, self._what
        full = round(self._fraction * WIDTH)
        line = (
            f"{self._name:<10} [{'#' * full}{'.' * (WIDTH - full)}] "
            f"{now - self._begun:4.0f} of about {self._total_s:.0f} s  {self._what}"
        )
        # Blanks wipe out what a longer line left behind.
        self._stream.write(f"\r{line:<110.110}" if self._terminal else f"{line.rstrip()}\n")
        self._stream.flush()
