"""Where tables for people go: a terminal, or a pipe, which is as wide as it likes."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from streaming.contract.printable import printable

PIPED: Final = 200
"""Columns of what is no terminal."""


class TableConsole(Console):
    """Standard output, of a terminal's width if it is one."""

    def __init__(self) -> None:
        super().__init__(highlight=False, width=None if sys.stdout.isatty() else PIPED)

    def on_broken_pipe(self) -> None:
        """As any output whose reader went away: rich would end the command, with status 1 and no word."""
        raise BrokenPipeError


def table_of(
    columns: Sequence[str], texts: Mapping[str, int], rows: Iterable[tuple[Mapping[str, str], str]]
) -> Table:
    """A table with a head.

    Args:
        columns: their names.
        texts: which of them hold words, and how narrow they may get; the others hold numbers.
        rows: of each what stands in all columns that there may be, and its style.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    for name in columns:
        if name in texts:
            table.add_column(name, overflow="fold", min_width=texts[name])
        else:
            table.add_column(name, justify="right", no_wrap=" " not in name)
    for cells, style in rows:
        table.add_row(*(Text(printable(cells[name]), style=style) for name in columns))
    return table
