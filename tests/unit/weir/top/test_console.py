"""Where tables go."""

import sys
from io import StringIO

import pytest

from weir.top.console import PIPED, TableConsole


class Gone(StringIO):
    """What nobody reads any more."""

    def write(self, text: str) -> int:
        """As to a pipe without a reader."""
        raise BrokenPipeError


def test_who_stops_reading_ends_it_as_any_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """`weir top --watch | head`: rich ended it with status 1 and no word."""
    monkeypatch.setattr(sys, "stdout", Gone())
    console = TableConsole()
    assert console.width == PIPED
    with pytest.raises(BrokenPipeError):
        console.print("a row")
