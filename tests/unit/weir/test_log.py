"""What stands in a command's log."""

import logging
import sys
from io import StringIO

import pytest

from weir.log import PrintableFormatter, log_to_stderr, teller

NAME = "a\n2026-11-22 proxy: forged\x1b[2K\u202e"
SHOWN = "a\\n2026-11-22 proxy: forged\\x1b[2K\\u202e"


def record(message: str, *arguments: object, failed: bool = False) -> logging.LogRecord:
    """As a logger makes it."""
    return logging.LogRecord(
        "weir", logging.WARNING, "f.py", 1, message, arguments, sys.exc_info() if failed else None
    )


def test_a_record_is_one_line() -> None:
    """Whatever names it holds."""
    formatter = PrintableFormatter("proxy: %(message)s")
    assert formatter.format(record("refused: %s", NAME)) == f"proxy: refused: {SHOWN}"


def test_a_traceback_keeps_its_lines_and_forges_none() -> None:
    """All below the record's line are indented, those of the error's own text too."""
    try:
        raise ValueError(NAME)
    except ValueError:
        lines = PrintableFormatter("proxy: %(message)s").format(record("failed", failed=True)).split("\n")
    assert lines[0] == "proxy: failed"
    assert lines[1] == "  Traceback (most recent call last):"
    assert lines[-2:] == ["  ValueError: a", "  2026-11-22 proxy: forged\\x1b[2K\\u202e"]
    assert all(line.startswith("  ") for line in lines[1:])


def test_a_stack_is_indented_too() -> None:
    """As of `stack_info=True`."""
    made = record("here")
    made.stack_info = "Stack:\nproxy: forged\x07"
    assert (
        PrintableFormatter("proxy: %(message)s").format(made) == "proxy: here\n  Stack:\n  proxy: forged\\x07"
    )


def test_ours_from_info_on_and_libraries_from_their_level(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, with the part's name."""
    for logger in (logging.getLogger(), logging.getLogger("weir")):
        # As at the start of a process, and put back afterwards.
        monkeypatch.setattr(logger, "handlers", [])
        monkeypatch.setattr(logger, "level", logger.level)
    log_to_stderr("admin")
    logging.getLogger("weir.admin").info("ready for %s", NAME)
    logging.getLogger("library").info("not shown")
    logging.getLogger("library").warning("shown")
    lines = [line.split(" admin: ")[1] for line in capsys.readouterr().err.splitlines()]
    assert lines == [f"ready for {SHOWN}", "shown"]


class Gone(StringIO):
    """What nobody reads any more."""

    def flush(self) -> None:
        """As a pipe without a reader."""
        raise BrokenPipeError


def test_a_line_that_nobody_takes_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """`weir up 2>&1 | tee log`: Ctrl-C ended tee, and the line about it the stop in order."""
    monkeypatch.setattr(sys, "stderr", Gone())
    teller("weir")("stopping ...")
