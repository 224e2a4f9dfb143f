"""Lines sorted on disk: a dump is larger than memory, and what was applied late may lie anywhere in it."""

import heapq
import pickle
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, Final, Self

from weir.logs.dump_lines import Line

RUN_BYTES: Final = 64 * 2**20
"""Texts that are sorted in memory at once."""
RUNS_MAX: Final = 256
"""Runs that are then merged to one: a process may have only so many files open, often 1,024."""
_LINE_BYTES: Final = 300
"""What a line takes beside its text."""


class SortedLines:
    """Takes lines in any order and gives them in theirs; keeps its files in the folder for temporary ones."""

    def __init__(self) -> None:
        self._run: list[Line] = []
        self._size = 0
        self._runs: list[IO[bytes]] = []
        self._merged: list[IO[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in (*self._runs, *self._merged):
            file.close()

    def add(self, line: Line) -> None:
        """Take a line.

        Raises:
            OSError: there is no room for it.
        """
        self._run.append(line)
        self._size += len(line.text) + _LINE_BYTES
        if self._size > RUN_BYTES:
            self._run.sort()
            self._runs.append(_written(self._run))
            self._run, self._size = [], 0
        if len(self._runs) == RUNS_MAX:
            self._merged.append(_written(heapq.merge(*map(_read, self._runs))))
            while self._runs:
                self._runs.pop().close()

    def __iter__(self) -> Iterator[Line]:
        self._run.sort()
        return heapq.merge(*map(_read, self._runs + self._merged), self._run)


def _written(run: Iterable[Line]) -> IO[bytes]:
    file = tempfile.TemporaryFile()  # noqa: SIM115  # closed by whoever gave the run
    for line in run:
        pickle.dump(tuple(line), file)
    return file


def _read(file: IO[bytes]) -> Iterator[Line]:
    file.seek(0)
    while True:
        try:
            yield Line(*pickle.load(file))
        except EOFError:
            return
