"""The lines of log files, as one goes on: what cannot be read is a line with a reason, and no end of all."""

import gzip
import os
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from typing import IO, Final, NamedTuple

from streaming.log.reading import LINE_MAX, base_name
from weir.logs.times import wall_ms

_SAY_EVERY_S: Final = 2.0
_LOOK_EVERY: Final = 1_000
"""Lines between two looks at the clock."""
_HEAD_LINES: Final = 1_000
"""Lines that are looked at for the time at which a file begins."""

_AHEAD_MS: Final = 86_400_000
"""A time so far from now is none, as of a clock that was set right since: what follows would be read last."""
_PIECES_MAX: Final = 16
"""A line of more pieces of LINE_MAX has no end: it comes from a device."""
TimeOf = Callable[[bytes, str], int | None]
"""(a line, its file) -> its time, ms since the epoch."""


class LogLine(NamedTuple):
    """A line of a log.

    Attributes:
        file: base name as given; of several files of one name the second is `NAME#2`.
        number: from 1.
        value: its bytes without the newline; the beginning of them if there is trouble.
        trouble: why it cannot be used; empty: it could be read.
    """

    file: str
    number: int
    value: bytes
    trouble: str = ""

    @property
    def name(self) -> str:
        """Id of the event that it becomes."""
        return f"{self.file}:{self.number}"


class LogFiles:
    """Log files, read once and together, in the order of their times: how a shell sorts them says nothing of
    that, and what one broker deletes another has created.

    Args:
        files: their paths; names that end with `.gz` are unpacked.
        say: takes lines for people, one every two seconds.
        time_of: the time of a line of a file, None if it has none.
    """

    def __init__(self, files: Sequence[str], say: Callable[[str], None], time_of: TimeOf) -> None:
        self._say, self._time_of = say, time_of
        self._files = sorted((_begin(file, time_of), number, file) for number, file in enumerate(files))
        self._total = sum(os.path.getsize(file) for file in files)
        self._open: list[IO[bytes]] = []
        self._done = self._count = 0
        self._begun_s = self._told_s = time.monotonic()

    def lines(self) -> Iterator[LogLine]:
        """All of them. A file that cannot be read any further ends with a line that says so."""
        coming, seen = deque(self._files), Counter[str]()
        heads: list[tuple[int, int, LogLine, Iterator[tuple[int, LogLine]]]] = []
        while coming or heads:
            # Not all at once: a process may have only so many files open.
            if coming and (not heads or coming[0][0] <= heads[0][0]):
                begin, number, file = coming.popleft()
                seen[base := base_name(file)] += 1
                rest = self._lines_of(file, base if seen[base] == 1 else f"{base}#{seen[base]}", begin)
            else:
                _, number, line, rest = heappop(heads)
                yield line
            if (head := next(rest, None)) is not None:
                heappush(heads, (head[0], number, head[1], rest))

    def _lines_of(self, file: str, name: str, at: int) -> Iterator[tuple[int, LogLine]]:
        """A file's lines, each with its time, or the one before it."""
        with open(file, "rb") as raw:
            self._open.append(raw)
            for number, (value, trouble) in enumerate(_read(raw, packed=file.endswith(".gz")), start=1):
                if len(self._files) > 1:
                    at = _time(value, name, self._time_of) or at
                self._count += 1
                if self._count % _LOOK_EVERY == 0:
                    self._tell(name)
                yield at, LogLine(name, number, value, trouble)
            self._open.remove(raw)
        self._done += os.path.getsize(file)

    def _tell(self, name: str) -> None:
        now_s = time.monotonic()
        if now_s - self._told_s < _SAY_EVERY_S:
            return
        self._told_s, passed_s = now_s, now_s - self._begun_s
        left, done = "", 0
        if all(raw.seekable() for raw in self._open):
            done = self._done + sum(raw.tell() for raw in self._open)
        if 0 < done <= self._total:
            left = f", {done / self._total:.0%}, {(self._total - done) / done * passed_s:.0f} s left"
        self._say(f"{name}: {self._count:,} lines, {self._count / passed_s:,.0f} a second{left}")


def _time(value: bytes, file: str, time_of: TimeOf) -> int | None:
    """The time of a line, ms; None: it has none, or one that is none, which is said of it, or to come."""
    with suppress(ValueError, OverflowError):
        found = time_of(value, file)
        return None if found is not None and found > wall_ms() + _AHEAD_MS else found
    return None


def _begin(file: str, time_of: TimeOf) -> int:
    """When a file begins, ms; 0 if its first lines do not tell, or for a pipe, which is read but once."""
    if not os.path.isfile(file):
        return 0
    with open(file, "rb") as raw:
        for (value, _), _ in zip(_read(raw, packed=file.endswith(".gz")), range(_HEAD_LINES), strict=False):
            if (found := _time(value, file, time_of)) is not None:
                return found
    return 0


def _read(raw: IO[bytes], *, packed: bool) -> Iterator[tuple[bytes, str]]:
    """Bytes of each line, and what is wrong with it."""
    stream: IO[bytes] = gzip.GzipFile(fileobj=raw) if packed else raw  # type: ignore[assignment]
    line = b""
    try:
        while line := stream.readline(LINE_MAX):
            if len(line) < LINE_MAX or line.endswith(b"\n"):
                yield line.rstrip(b"\r\n"), ""
                continue
            first, pieces = line, 1
            while line and not line.endswith(b"\n"):
                line, pieces = stream.readline(LINE_MAX), pieces + 1
                if pieces > _PIECES_MAX:
                    raise EOFError("a line without an end")
            yield first, f"the line is longer than {LINE_MAX} bytes"
    except (OSError, EOFError, zlib.error) as error:
        with suppress(OSError):
            raw.seek(0, os.SEEK_END)
        yield line, f"the file cannot be read any further: {error}"
