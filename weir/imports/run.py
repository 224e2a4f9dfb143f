"""One import: logs of a kind in, a file of events out, and a word on what became of each line."""

import shlex
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, ClassVar, Final

import orjson

from streaming.contract.decisions import dead_letter
from streaming.contract.errors import BadEvent, WeirError
from streaming.log.reading import is_parquet
from streaming.log.writing import opened, write_lines
from weir.imports.reading import LogFiles, LogLine
from weir.log import unusable
from weir.paths import check_readable, named

_KEPT: Final = 4_096
"""Bytes of a line that its dead letter holds."""
Event = dict[str, Any]


class Source(ABC):
    """A log of requests, read line by line.

    Attributes:
        counted: how many lines became what; for people.
        lacking: how often the log did not say what had to be known.
    """

    what: ClassVar[str]
    """What its lines are, as people call them."""
    expected: ClassVar[str]
    """How one looks."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()
        self.lacking: Counter[str] = Counter()

    @abstractmethod
    def is_one(self, value: bytes) -> bool:
        """Whether a line is one of such a log: others may stand between them."""

    @abstractmethod
    def time_of(self, value: bytes, file: str) -> int | None:
        """The time of a line of a file, ms since the epoch; None: it has none."""

    @abstractmethod
    def events(self, line: LogLine) -> Iterator[Event]:
        """What a line becomes.

        Raises:
            BadEvent: it cannot be used, and why.
            KeyError, TypeError, ValueError, OverflowError, AttributeError: it has not the form that it
                should have.
        """

    def rest(self) -> Iterable[Event]:
        """What is left when all lines were read."""
        return ()

    def notes(self) -> Iterable[str]:
        """What people have to know of what the log did not say."""
        return ()


def run_import(
    source: Source, files: Sequence[str], out: str, dead_letters: str | None, say: Callable[[str], None]
) -> None:
    """Turn log files into a file of events, whole or not at all.

    Args:
        source: the kind of log.
        files: in any order.
        out: as of `write_lines`.
        dead_letters: file for lines that cannot be used; None: they are only counted.
        say: takes lines for people.

    Raises:
        WeirError: a file cannot be read or written, or none of them is such a log.
    """
    for file in files:
        check_readable(file)
    # Lines of such a log, `others`, those that are `dead`, and events by their types.
    totals = Counter[str]()
    lines = _named_lines(LogFiles(files, say, source.time_of), files)
    with _letters(dead_letters) as letters:
        write_lines(out, _events(source, lines, totals, letters, files))
    _report(source, totals, out, dead_letters, say)


@contextmanager
def _letters(file: str | None) -> Iterator[IO[bytes] | None]:
    """Where dead letters go; None: nowhere."""
    if file is None:
        yield None
        return
    if is_parquet(file):
        raise WeirError(f"{file}: cannot be written: dead letters of an import are lines; expected .jsonl")
    # Also what fails in the midst: what is still to be written fails once more at the end.
    with named(file, "written"), opened(file) as letters:
        yield letters


def _named_lines(log: LogFiles, files: Sequence[str]) -> Iterator[LogLine]:
    with named(", ".join(files), "read"):
        yield from log.lines()


def _events(
    source: Source, lines: Iterator[LogLine], totals: Counter[str], letters: IO[bytes] | None,
    files: Sequence[str],
) -> Iterator[bytes]:  # fmt: skip
    first = ""
    for line in lines:
        if not line.trouble and not source.is_one(line.value):
            totals["others"] += bool(line.value)
            continue
        totals["lines"] += 1
        try:
            if line.trouble:
                raise BadEvent(line.trouble)
            for event in source.events(line):
                yield _written(event, totals)
        except (BadEvent, KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            totals["dead"] += 1
            reason = _reason(error)
            first = first or f"; {line.name}: {reason}"
            if letters is not None:
                letters.write(_letter(line, reason) + b"\n")
    for event in source.rest():
        yield _written(event, totals)
    if totals["lines"] == totals["dead"]:
        raise WeirError(
            f"no line of {', '.join(files)} is one of {source.what}{first};"
            f" such were expected: {source.expected}"
        )


def _written(event: Event, totals: Counter[str]) -> bytes:
    totals[event["type"]] += 1
    return orjson.dumps(event)


def _reason(error: Exception) -> str:
    if isinstance(error, BadEvent):
        return str(error)
    return f"{type(error).__name__}: {error}; another form was expected"


def _letter(line: LogLine, reason: str) -> bytes:
    return dead_letter(
        reason=reason, topic=line.file, partition=0, offset=line.number, ts=None, value=line.value[:_KEPT]
    )


def _report(
    source: Source, totals: Counter[str], out: str, dead_letters: str | None, say: Callable[[str], None]
) -> None:
    counted = ", ".join(f"{count:,} {what}" for what, count in source.counted.items() if count)
    say(f"{totals['lines']:,} lines of {source.what}: {counted}, {totals['dead']:,} unusable")
    if totals["others"]:
        say(f"{totals['others']:,} other lines passed over")
    for note in source.notes():
        say(note)
    if totals["dead"]:
        say(unusable(totals["dead"], dead_letters))
    requests, reports = totals["request"], totals["group_usage"]
    say(f"wrote {requests:,} requests and {reports:,} reports of bytes to {out}; decide them:")
    say(f"weir replay --policies FILE --events {shlex.quote(out)} --out decisions.jsonl")
