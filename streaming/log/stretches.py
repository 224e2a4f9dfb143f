"""A log in the order in which it is decided, some of it at a time: whatever its size, memory does not grow.

Mostly a log is in order, as `weir dump` writes it, and then it is read once, a stretch after the other. What
is not, such as several files of the same time, is first written to disk in runs that are, and read from
there: each stretch is then a time, and has whatever lies in it.
"""

import mmap
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple

import numpy as np
import pyarrow as pa

from streaming.columns.byte_strings import Integers
from streaming.columns.outputs import Outputs
from streaming.columns.packed import opened, stream
from streaming.columns.records import Pack, Records
from streaming.laws.shard import NEVER, BatchContent
from streaming.log.deciding import Replay
from streaming.log.reading import READ_AT_ONCE, ROWS_AT_ONCE, blocks, records_of, together

Bury = Callable[[Records, Outputs], None]
"""Takes the dead letters of some records."""
_PLACE: Final = ("weir.at", "weir.file", "weir.line")
"""Last columns of a run: when each row is applied, ms, and where it stands."""
_LINES: Final = ""
"""Type of a run of lines."""
SAMPLED: Final = 512
"""One row in so many says where a run's times lie."""


class Disorder(Exception):
    """The log is not in order."""


class Stretch(NamedTuple):
    """Some of a log.

    Attributes:
        records: its records.
        read: what they say.
        upto: ms; but for what is decided late, all that follows is at this time or later.
        part: of the log that lies behind it.
    """

    records: Records
    read: BatchContent
    upto: int
    part: float


Order = Callable[[Sequence[str], Replay, Bury, Path], Iterator[Stretch]]
"""(files, what reads them, what takes the dead letters, a folder with room) -> the stretches of the log."""


def as_it_comes(files: Sequence[str], replay: Replay, bury: Bury, _room: Path) -> Iterator[Stretch]:
    """The stretches of a log that is in order.

    Raises:
        Disorder: it is not; what was given is not to be used.
        WeirError: a file cannot be read.
    """
    decided = changed = NEVER
    for records, part in blocks(files):
        read = _read(records, replay, bury)
        times = read.times(len(records))
        oldest = int(times[times != NEVER].min(initial=decided))
        changes = [ts for ts, *_ in read.policies]
        # Whoever is decided at the time of a change is decided by it.
        if oldest < decided or min(changes, default=changed) < changed or decided in changes:
            raise Disorder
        decided = max(decided, read.newest, *(intake.newest for intake in read.intakes.values()))
        changed = max([changed, *changes])
        yield Stretch(records, read, decided, part)


def by_time(files: Sequence[str], replay: Replay, bury: Bury, room: Path) -> Iterator[Stretch]:
    """The stretches of a log in any order.

    Raises:
        WeirError: a file cannot be read.
        OSError: there is no room for its runs.
    """
    with tempfile.TemporaryFile(dir=room) as file:
        runs = _Runs(file)
        for records, _ in blocks(files):
            runs.add(records, _read(records, replay, bury).times(len(records)))
        for upto, records, part in runs.merged(files):
            # What cannot be used is buried already, but for the rest of an event of which some can.
            yield Stretch(records, replay.read(records, Outputs()), upto, part)


def _read(records: Records, replay: Replay, bury: Bury) -> BatchContent:
    letters = Outputs()
    read = replay.read(records, letters)
    if len(letters):
        bury(records, letters)
    return read


class _Run(NamedTuple):
    """Rows of one type in order of time, and where they stand in the file of all runs.

    Attributes:
        begin, size: bytes.
        rows: how many.
        sampled: when every row in so many is applied, ms, beginning with the first one.
        last: when the last one is.
    """

    begin: int
    size: int
    rows: int
    sampled: Integers
    last: int


class _Runs:
    """Runs in one file.

    Args:
        file: empty, ours alone.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._runs: list[_Run] = []

    def add(self, records: Records, at: Integers) -> None:
        """Write records down that are applied at these times; NEVER: not at all."""
        lines = pa.record_batch([records.value.combine_chunks()], ["value"])  # type: ignore[union-attr]
        place = at, np.asarray(records.file), np.asarray(records.offset)
        packs = ((pack.first, pack.type, pack.rows) for pack in records.packs)
        for first, type, rows in ((0, _LINES, lines), *packs):
            own = [column[first : first + len(rows)] for column in place]
            order = np.argsort(own[0], kind="stable")
            order = order[np.searchsorted(own[0][order], NEVER, side="right") :]
            if len(order):
                self._write(type, rows.take(pa.array(order)), [column[order] for column in own])

    def _write(self, type: str, rows: pa.RecordBatch, place: list[Integers]) -> None:
        for name, column in zip(_PLACE, place, strict=True):
            rows = rows.append_column(name, pa.array(column))
        begin, size = self._file.tell(), self._file.write(stream(type, rows))
        self._runs.append(_Run(begin, size, len(rows), place[0][::SAMPLED], int(place[0][-1])))

    def merged(self, files: Sequence[str]) -> Iterator[tuple[int, Records, float]]:
        """Times (ms) that ascend, what is applied before each, each record once, and which part that was."""
        if not self._runs:
            return
        self._file.flush()
        since = NEVER
        # Never closed here: columns look into it for as long as they live.
        mapped = pa.py_buffer(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ))
        bounds = self._bounds()
        for number, upto in enumerate(bounds, start=1):
            parts = [
                _records(files, *_between(mapped, run, since, upto))
                for run in self._runs if run.sampled[0] < upto and run.last >= since
            ]  # fmt: skip
            yield upto, together(files, parts), number / len(bounds)
            since = upto

    def _bounds(self) -> list[int]:
        """Times between which few enough rows lie, as far as times differ."""
        at = np.concatenate([run.sampled for run in self._runs])
        size = np.concatenate([np.full(len(run.sampled), run.size / run.rows) for run in self._runs])
        order = np.argsort(at, kind="stable")
        taken = np.cumsum(SAMPLED * np.maximum(size[order] / READ_AT_ONCE, 1 / ROWS_AT_ONCE)).astype(np.int64)
        found = np.unique(at[order][np.flatnonzero(np.diff(taken, prepend=0))])
        return [*found.tolist(), max(run.last for run in self._runs) + 1]


def _between(mapped: pa.Buffer, run: _Run, since: int, upto: int) -> tuple[str, pa.RecordBatch]:
    """The rows of a run from one time to before another, ms, with their type."""
    type, rows = opened(mapped.slice(run.begin, run.size))
    # By place: an event may have fields of these names, too.
    at = rows.column(rows.num_columns - len(_PLACE)).to_numpy()
    begin, end = np.searchsorted(at, (since, upto))
    return type, rows.slice(begin, end - begin)


def _records(files: Sequence[str], type: str, rows: pa.RecordBatch) -> Records:
    """Some rows of a run as records again."""
    file, line = (column.to_numpy().copy() for column in rows.columns[1 - len(_PLACE) :])
    own = rows.select(range(rows.num_columns - len(_PLACE)))
    none = pa.array([], pa.large_binary())
    if type == _LINES:
        return records_of(files, file, line, own["value"], [])
    return records_of(files, file, line, none, [Pack(0, type, own, line)] if len(own) else [])
