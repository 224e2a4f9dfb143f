"""The events of a stretch of time as a file that replays by itself (docs/contract.md 4)."""

import heapq
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Final, Self

from streaming.contract.errors import BadEvent, WeirError
from streaming.contract.events import MAX_AHEAD_MS, load_object
from streaming.contract.topics import Cluster
from streaming.kafka_io.reader import Reader, Span
from streaming.log.reading import is_parquet
from streaming.log.writing import write_lines
from streaming.replay import room_near
from weir.foreground import interruptible, unless_interrupted
from weir.logs.dump_lines import Annotator, DumpSummary, History, Line, sent_once
from weir.logs.times import BEGINNING_MS
from weir.logs.topic_reader import TopicReader, records_of

_PROGRESS_EVERY = 50_000
RUN_BYTES: Final = 64 * 2**20
"""Texts that are sorted in memory at once."""
RUNS_MAX: Final = 256
"""Runs that are then merged to one: a process may have only so many files open, often 1,024."""
_LINE_BYTES: Final = 300
"""What a line takes beside its text."""


def dump(
    cluster: Cluster, from_ms: int, to_ms: int, out: Path, *, progress: Callable[[str], None],
    max_ahead_ms: int = MAX_AHEAD_MS,
) -> DumpSummary:  # fmt: skip
    """Write the events of [from_ms, to_ms) by record time, and all policies before `to_ms`.

    Args:
        cluster: where the topics are.
        from_ms: ms since the epoch.
        to_ms: ms since the epoch, not included.
        out: the file; its name's end `.gz` asks for compression, `.parquet` for columns.
        progress: takes lines for people.
        max_ahead_ms: the job's setting: it has buried events beyond, so the dump leaves them out.

    Raises:
        WeirError: the cluster does not answer, or the file cannot be written.
    """
    topics, counts = cluster.topics, DumpSummary()
    history = History(max_ahead_ms, topics.requests, to_ms)
    reader = TopicReader(cluster.bootstrap, cluster.client)
    # Of policies the job, too, takes what is committed alone.
    committed = Reader(cluster.bootstrap, cluster.client)

    def asked() -> list[Span]:
        return [s for topic in (topics.requests, topics.usage) for s in reader.spans(topic, from_ms, to_ms)]

    with unless_interrupted(reader.close), unless_interrupted(committed.close):
        spans = interruptible(asked)
        for span in spans:
            if span.topic == topics.requests:
                sent = sent_once(reader.messages(span), DumpSummary())
                history.look_for_own(record for message in sent for record in records_of(message))
        progress(f"reading {topics.decisions} for those that were applied late or at another time")
        # To the topic's end: a decision comes after its request.
        for span in reader.spans(topics.decisions, from_ms, None):
            history.read_decisions(record.value for record in reader.read(span))
        history.place_others()
        policies = committed.spans(topics.policies, BEGINNING_MS, to_ms)
        try:
            with SortedLines(room_near(str(out))) as lines:
                for each, by, is_policy in ((policies, committed, True), (spans, reader, False)):
                    annotator = Annotator(history, counts, is_policy=is_policy)
                    messages = (message for span in each for message in sent_once(by.messages(span), counts))
                    for line in (annotator.line(one) for message in messages for one in records_of(message)):
                        if line is not None:
                            lines.add(line)
                texts = _objects(lines, counts) if is_parquet(out.name) else _told(lines, progress)
                write_lines(str(out), texts)
        except OSError as failure:
            raise WeirError(f"the dump could not be sorted: {failure.strerror}") from failure
    return counts


def _objects(lines: Iterable[Line], counts: DumpSummary) -> Iterator[bytes]:
    """The lines that columns can hold: JSON objects."""
    for line in lines:
        try:
            load_object(line.text)
        except BadEvent:
            counts.left_out += 1
        else:
            yield line.text


def _told(lines: Iterable[Line], progress: Callable[[str], None]) -> Iterator[bytes]:
    """All of them."""
    for number, line in enumerate(lines, 1):
        yield line.text
        if number % _PROGRESS_EVERY == 0:
            progress(f"{number} lines")


class SortedLines:
    """Takes lines in any order and gives them in theirs, by files.

    A dump is larger than memory, and what was applied late may lie anywhere in it.

    Args:
        folder: of the files; None: the one for temporary ones.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
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
            self._runs.append(self._written(self._run))
            self._run, self._size = [], 0
        if len(self._runs) == RUNS_MAX:
            self._merged.append(self._written(heapq.merge(*map(_read, self._runs))))
            while self._runs:
                self._runs.pop().close()

    def __iter__(self) -> Iterator[Line]:
        self._run.sort()
        return heapq.merge(*map(_read, self._runs + self._merged), self._run)

    def _written(self, run: Iterable[Line]) -> IO[bytes]:
        file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  # closed at the end
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
