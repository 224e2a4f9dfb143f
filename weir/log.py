"""Logs of the commands: on stderr, and nothing in them that a terminal would obey."""

import contextlib
import logging
import sys
from collections.abc import Callable, Sequence
from types import TracebackType

from streaming.contract.printable import printable, printable_lines


class PrintableFormatter(logging.Formatter):
    """A record is one line, a traceback indented lines below it: what a name holds forges neither."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, escaped as a whole."""
        return printable(super().formatMessage(record))

    def formatException(
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        """A traceback keeps its lines; the text of an error in it may have some of its own."""
        return f"  {printable_lines(super().formatException(ei))}"

    def formatStack(self, stack_info: str) -> str:
        """As a traceback."""
        return f"  {printable_lines(stack_info)}"


def log_to_stderr(part: str, level: int = logging.WARNING, times: str | None = None) -> None:
    """Send the log of this process to stderr, Weir's own from INFO on.

    Args:
        part: what each line begins with, behind its time.
        level: of libraries.
        times: form of the times; None: with the day.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PrintableFormatter(f"%(asctime)s {part}: %(message)s", times))
    logging.basicConfig(handlers=[handler], level=level)
    logging.getLogger("weir").setLevel(logging.INFO)


def unusable(count: int, file: str | None) -> str:
    """How many lines could not be used, and where they were written to."""
    where = file or "nowhere; name a file with --dead-letters to see them"
    return f"{count:,} lines could not be used, written to {where}"


def teller(who: str, *, stdout: bool = False) -> Callable[[str], None]:
    """What prints lines for people, on stderr unless `stdout`; each begins with `who`.

    One that nobody takes is lost, and ends nothing: of `weir up 2>&1 | tee log` Ctrl-C ends tee first.
    """

    def say(text: str) -> None:
        file = sys.stdout if stdout else sys.stderr
        with contextlib.suppress(OSError):
            print(printable_lines(f"{who}: {text}"), file=file, flush=True)

    return say


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of a table for people, a line each: the first column to the left, the others to the right.

    >>> aligned([("tenant", "bytes"), ("acme", "1,024")])
    ['tenant  bytes', 'acme    1,024']
    """
    first, *widths = (max(map(len, column)) for column in zip(*rows, strict=True))
    others = (map(str.rjust, row[1:], widths) for row in rows)
    return ["  ".join((row[0].ljust(first), *cells)) for row, cells in zip(rows, others, strict=True)]
