"""The lines of log files, as one goes on: what cannot be read is a line with a reason, and no end of all."""

import gzip
import os
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import IO, Final, NamedTuple

from streaming.log.reading import LINE_MAX

_SAY_EVERY_S: Final = 2.0
_LOOK_EVERY: Final = 1_000
"""Lines between two looks at the clock."""
_HEAD_LINES: Final = 1_000
"""Lines that are looked at for the time at which a file begins."""

_PIECES_MAX: Final = 16
"""A line of more pieces of LINE_MAX has no end: it comes from a device."""


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
    """Log files, read once and in the order of their times: how a shell sorts them says nothing of that.

    Args:
        files: their paths; names that end with `.gz` are unpacked.
        say: takes lines for people, one every two seconds.
        time_of: the time of a line, None if it has none.
    """

    def __init__(
        self, files: Sequence[str], say: Callable[[str], None], time_of: Callable[[bytes], int | None]
    ) -> None:
        self._say = say
        self._files = sorted(files, key=lambda file: _begin(file, time_of))
        self._sizes = [os.path.getsize(file) for file in self._files]
        self._begun_s = self._told_s = time.monotonic()

    def lines(self) -> Iterator[LogLine]:
        """All of them. A file that cannot be read any further ends with a line that says so."""
        seen: dict[str, int] = {}
        total = sum(self._sizes)
        before = count = 0
        for file, size in zip(self._files, self._sizes, strict=True):
            base = os.path.basename(file)
            seen[base] = seen.get(base, 0) + 1
            name = base if seen[base] == 1 else f"{base}#{seen[base]}"
            with open(file, "rb") as raw:
                for number, (value, trouble) in enumerate(_read(raw, packed=file.endswith(".gz")), start=1):
                    count += 1
                    if count % _LOOK_EVERY == 0:
                        self._tell(name, count, before + raw.tell() if raw.seekable() else 0, total)
                    yield LogLine(name, number, value, trouble)
            before += size

    def _tell(self, name: str, count: int, done: int, total: int) -> None:
        now_s = time.monotonic()
        if now_s - self._told_s < _SAY_EVERY_S:
            return
        self._told_s, passed_s = now_s, now_s - self._begun_s
        left = ""
        if 0 < done <= total:
            left = f", {done / total:.0%}, {(total - done) / done * passed_s:.0f} s left"
        self._say(f"{name}: {count:,} lines, {count / passed_s:,.0f} a second{left}")


def _begin(file: str, time_of: Callable[[bytes], int | None]) -> int:
    """When a file begins, ms; 0 if its first lines do not tell, or for a pipe, which is read but once."""
    if not os.path.isfile(file):
        return 0
    with open(file, "rb") as raw:
        for (value, _), _ in zip(_read(raw, packed=file.endswith(".gz")), range(_HEAD_LINES), strict=False):
            # A time that is none is said of its line.
            with suppress(ValueError, OverflowError):
                if (found := time_of(value)) is not None:
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
