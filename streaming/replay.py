"""Replay: event files through the laws, without Spark or Kafka (docs/contract.md 4).

The reader, the policies' timeline, the order of the output and the summary serve the Spark engine too
(streaming/job/replay.py), so that both write the same bytes.
"""

import gzip
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns.records import Named, Records
from streaming.contract.decisions import DECISIONS
from streaming.contract.errors import BadEvent, WeirError
from streaming.contract.events import PolicyChange, parse
from streaming.laws.law import StepContext
from streaming.laws.registry import LAWS
from streaming.laws.shard import replay_all
from streaming.policy.files import check_entry, load_policies
from streaming.policy.timeline import PolicyTimeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of an event file.

    Attributes:
        file: number of the file, in the order given.
        base: its base name as given.
        number: line number from 1, empty lines counted.
        value: its bytes without the newline.
    """

    file: int
    base: str
    number: int
    value: bytes

    @property
    def name(self) -> str:
        """Id of an event that names none itself."""
        return f"{self.base}:{self.number}"


@dataclass(slots=True)
class Replayed:
    """What a replay wrote, in its final order.

    Attributes:
        decisions: one JSON object each, by (ts, type, id).
        dead_letters: one JSON object each, in the order of the input.
    """

    decisions: list[bytes] = field(default_factory=list)
    dead_letters: list[bytes] = field(default_factory=list)


def read_lines(files: Sequence[str]) -> Iterator[Line]:
    """Every line that is not empty, file by file; `.gz` files are unpacked.

    Raises:
        WeirError: a file cannot be read.
    """
    for number, file in enumerate(files):
        base = os.path.basename(file)
        for position, value in _read(file):
            yield Line(file=number, base=base, number=position, value=value)


def _read(file: str) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of every line of a file that is not empty."""
    try:
        with _open(file, "r") as stream:
            for position, line in enumerate(stream, start=1):
                value = line.removesuffix(b"\n")
                if value and not value.isspace():
                    yield position, value
    except (OSError, EOFError) as error:
        raise WeirError(f"{file}: cannot be read: {error}") from error


def read_timeline(initial: Mapping[str, Any], lines: Iterable[Line]) -> PolicyTimeline:
    """The policies over time that a log means: `initial` as version 1, one more with each policy event.

    Events that cannot be used are passed over here; the step that meets them again buries them.
    """
    timeline = PolicyTimeline(initial)
    for line in lines:
        if b"policy" not in line.value:
            continue
        try:
            event = parse(line.value, default_id=line.name, default_ts=None)
            if isinstance(event, PolicyChange):
                check_entry(event.path, event.value)
                timeline.apply(event.path, event.value, event.ts, event.version)
        except BadEvent:
            continue
    return timeline


def replay_local(policies: str, files: Sequence[str]) -> Replayed:
    """Replay files in this process; one shard holds all subjects, which changes no decision.

    Raises:
        ConfigError: the policies are wrong.
        WeirError: a file cannot be read.
    """
    initial = load_policies(policies)
    records = read_records(files)
    context = StepContext(initial=initial, replay=True, fail_fast=True)
    written = replay_all(records, context)
    source = written.column("source").to_numpy()
    file, line, _ = (column[source] for column in records.arrivals())
    columns = {name: written.column(name) for name in ("sink", "value", "ts", "type", "id")}
    return ordered(pa.table(columns | {"file": file, "line": line}))


def read_records(files: Sequence[str]) -> Records:
    """All lines of files as one shard's records.

    Raises:
        WeirError: a file cannot be read.
    """
    lines = [(number, *line) for number, file in enumerate(files) for line in _read(file)]
    number, position = (np.array([line[place] for line in lines], dtype=np.int64) for place in (0, 1))
    return Records(
        topic=Named([os.path.basename(file) for file in files], number),
        partition=np.zeros(len(lines), dtype=np.int64), offset=position, ts=[None] * len(lines),
        value=[value for _, _, value in lines], file=number,
    )  # fmt: skip


def ordered(written: pa.Table) -> Replayed:
    """Sort what was written as docs/contract.md 4 says.

    Args:
        written: decisions and dead letters in any order: sink, value, ts, type, id, and file and line of the
            event that each answers.
    """
    decided = pc.equal(written["sink"], DECISIONS)
    # Stable, and text by its bytes in UTF-8, which is the order of code points.
    decisions, dead_letters = (
        part.take(pc.sort_indices(part, sort_keys=[(name, "ascending") for name in names]))["value"]
        for part, names in (
            (written.filter(decided), ("ts", "type", "id", "file", "line")),
            (written.filter(pc.invert(decided)), ("file", "line")),
        )
    )
    return Replayed(decisions=decisions.to_numpy().tolist(), dead_letters=dead_letters.to_numpy().tolist())


def write_lines(file: str, lines: Iterable[bytes]) -> None:
    """Write JSON lines, whole or not at all; packed if the name ends with `.gz`.

    Raises:
        WeirError: the file cannot be written.
    """
    partial = f"{file}.partial{'.gz' if file.endswith('.gz') else ''}"
    try:
        with _open(partial, "w") as stream:
            stream.writelines(line + b"\n" for line in lines)
        os.replace(partial, file)
    except OSError as error:
        raise WeirError(f"{file}: cannot be written: {error}") from error


def summarise(decisions: Iterable[bytes]) -> dict[str, Any]:
    """Totals per subject (docs/contract.md 4, `--summary`): events, and what its law adds up."""
    subjects: dict[str, dict[str, Any]] = {}
    for line in decisions:
        decision = orjson.loads(line)
        totals = subjects.setdefault(LAWS.subject_of(decision), {"events": 0})
        totals["events"] += 1
        LAWS.by_decision[decision["type"]].total(totals, decision)
    return {"subjects": {subject: subjects[subject] for subject in sorted(subjects)}}


def _open(file: str, mode: str) -> IO[bytes]:
    if file.endswith(".gz"):
        # mtime 0: the same lines give the same file.
        return gzip.GzipFile(file, f"{mode}b", mtime=0)  # type: ignore[return-value]
    return Path(file).open(f"{mode}b")
