"""Where tables for people go: a terminal, or a pipe, which is as wide as it likes."""

import sys
from typing import Final

from rich.console import Console

PIPED: Final = 200
"""Columns of what is no terminal."""


class TableConsole(Console):
    """Standard output, of a terminal's width if it is one."""

    def __init__(self) -> None:
        super().__init__(highlight=False, width=None if sys.stdout.isatty() else PIPED)

    def on_broken_pipe(self) -> None:
        """As any output whose reader went away: rich would end the command, with status 1 and no word."""
        raise BrokenPipeError
