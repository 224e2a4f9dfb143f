"""The events of a stretch of time as a file that replays by itself (docs/contract.md 4)."""

import gzip
import heapq
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from streaming.contract.errors import BadEvent, WeirError
from streaming.contract.events import MAX_AHEAD_MS, load_object
from streaming.contract.topics import Cluster
from streaming.replay import is_parquet, write_lines
from weir.logs.dump_lines import Annotator, Counts, History, Line
from weir.logs.reading import Span, TopicReader
from weir.logs.times import BEGINNING_MS

_PROGRESS_EVERY = 50_000


def dump(
    cluster: Cluster, from_ms: int, to_ms: int, out: Path, *, progress: Callable[[str], None],
    max_ahead_ms: int = MAX_AHEAD_MS,
) -> Counts:  # fmt: skip
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
    readers: list[TopicReader] = []

    def records(span: Span) -> Iterator[tuple[str, int, int, int, bytes]]:
        # A reader each: partitions are merged, so all are read at the same time.
        readers.append(TopicReader(cluster.bootstrap, cluster.client))
        for record in readers[-1].read(span):
            yield record.topic, record.partition, record.offset, record.ts, record.named()

    def lines(span: Span, annotator: Annotator) -> Iterator[Line]:
        return (line for line in map(annotator.line, records(span)) if line is not None)

    topics, counts, history = cluster.topics, Counts(), History(max_ahead_ms)
    try:
        main = TopicReader(cluster.bootstrap, cluster.client)
        readers.append(main)
        spans = [s for topic in (topics.requests, topics.usage) for s in main.spans(topic, from_ms, to_ms)]
        for span in spans:
            history.look_for_older(records(span))
        progress(f"reading {topics.decisions} for those that were applied late or later than they happened")
        # To the topic's end: a decision comes after its request.
        for span in main.spans(topics.decisions, from_ms, None):
            history.read_decisions(record[-1] for record in records(span))
        # Policies are few and in force later than they were written, so they alone are sorted.
        policies = sorted(
            line
            for span in main.spans(topics.policies, BEGINNING_MS, to_ms)
            for line in lines(span, Annotator(history, counts, is_policy=True))
        )
        events = [lines(span, Annotator(history, counts)) for span in spans]
        merged = heapq.merge(policies, *events)
        if is_parquet(out.name):
            write_lines(str(out), _objects(merged, counts))
        else:
            _write(out, merged, progress)
    finally:
        for reader in readers:
            reader.close()
    return counts


def _objects(lines: Iterable[Line], counts: Counts) -> Iterator[bytes]:
    """The lines that columns can hold: JSON objects."""
    for line in lines:
        try:
            load_object(line.text)
        except BadEvent:
            counts.left_out += 1
        else:
            yield line.text


def _write(out: Path, lines: Iterable[Line], progress: Callable[[str], None]) -> None:
    draft = out.with_name(out.name + ".part")
    try:
        with draft.open("wb") as raw:
            if out.suffix == ".gz":
                # No name and no time in it: the same dump twice gives the same bytes.
                with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
                    _write_lines(packed, lines, progress)
            else:
                _write_lines(raw, lines, progress)
        draft.replace(out)
    except OSError as failure:
        raise WeirError(f"{out} could not be written: {failure.strerror}") from failure
    finally:
        draft.unlink(missing_ok=True)


def _write_lines(
    file: "IO[bytes] | gzip.GzipFile", lines: Iterable[Line], progress: Callable[[str], None]
) -> None:
    for number, line in enumerate(lines, 1):
        file.write(line.text + b"\n")
        if number % _PROGRESS_EVERY == 0:
            progress(f"{number} lines")
