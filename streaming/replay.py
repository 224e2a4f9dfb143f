"""Replay: event files through the laws, without Spark or Kafka (docs/contract.md 4).

The reader, the policies' timeline, the order of the output and the summary serve the Spark engine too
(streaming/job/replay.py), so that both write the same bytes.
"""

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming.columns.byte_strings import Integers, bytes_in
from streaming.columns.json_columns import Unlike, columns_of
from streaming.columns.json_rows import objects
from streaming.columns.outputs import Outputs
from streaming.columns.packed import check_type, plain_form
from streaming.columns.records import NameColumn, Records
from streaming.contract.decisions import DECISIONS
from streaming.contract.errors import BadEvent, WeirError
from streaming.contract.events import PolicyChange, load_object, parse
from streaming.laws.law import StepContext
from streaming.laws.registry import LAWS
from streaming.laws.shard import replay_all
from streaming.policy.files import check_entry, load_policies
from streaming.policy.timeline import PolicyTimeline

READ_AT_ONCE: Final = 16 * 2**20
"""Bytes of a file that are cut into lines at once, unless a line is longer."""
LINE_MAX: Final = 64 * 2**20
"""No record is as long; what is endless, such as a device, must not fill the memory."""
_ROWS_AT_ONCE: Final = 65_536


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
class ReplayResult:
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
    """Number and bytes of every line of a file that is not empty; of a Parquet file, of its rows' objects."""
    if is_parquet(file):
        yield from _rows(file)
        return
    try:
        with _open(file, "r", packed=file.endswith(".gz")) as stream:
            for position, line in enumerate(iter(lambda: _line(stream), b""), start=1):
                value = line.removesuffix(b"\n")
                if value and not value.isspace():
                    yield position, value
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise WeirError(f"{file}: cannot be read: {error}") from error


def _line(stream: IO[bytes]) -> bytes:
    line = stream.readline(LINE_MAX)
    if len(line) == LINE_MAX and not line.endswith(b"\n"):
        raise ValueError(f"a line is longer than {LINE_MAX} bytes")
    return line


def is_parquet(file: str) -> bool:
    """Whether a file holds columns, by its name."""
    return file.endswith(".parquet")


def _rows(file: str) -> Iterator[tuple[int, bytes]]:
    """Number and JSON object of every row of a Parquet file."""
    try:
        with pq.ParquetFile(file) as parquet:
            first = 1
            for field in parquet.schema_arrow:
                check_type(field.type, field.name)
            for batch in parquet.iter_batches(_ROWS_AT_ONCE):
                columns = [plain_form(column) for column in batch.columns]
                rows = pa.RecordBatch.from_arrays(columns, batch.schema.names)
                yield from enumerate(_objects(rows), start=first)
                first += len(rows)
    except (OSError, ValueError, pa.ArrowException, BadEvent) as error:
        raise WeirError(f"{file}: cannot be read: {error}") from error


def _objects(rows: pa.RecordBatch) -> list[bytes]:
    """The JSON objects of rows of mixed types; which nulls are written depends on a row's type."""
    if "type" not in rows.schema.names:
        return [bytes(value) for value in objects(None, rows).to_pylist()]
    types, others = rows["type"], rows.drop_columns("type")
    written: list[bytes] = [b""] * len(rows)
    for type in types.unique().to_pylist():
        of_type = pc.is_null(types) if type is None else pc.equal(types, type)
        name = type if isinstance(type, str) else None
        # What is no type stays a field: the parser says so.
        some = (rows if name is None else others).filter(of_type.fill_null(False))
        values = objects(name, some).to_pylist()
        for place, value in zip(np.flatnonzero(of_type.fill_null(False)), values, strict=True):
            written[place] = value
    return written


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


def replay_local(policies: str, files: Sequence[str], *, as_decided: bool = False) -> ReplayResult:
    """Replay files in this process; one shard holds all subjects, which changes no decision.

    Args:
        policies: file with the policies in force at the start.
        files: event files, in order.
        as_decided: what proxies have decided stands, as in the live job; False: it is decided anew.

    Raises:
        ConfigError: the policies are wrong.
        WeirError: a file cannot be read.
    """
    initial = load_policies(policies)
    records = read_records(files)
    context = StepContext(initial=initial, replay=True, fail_fast=True, as_decided=as_decided)
    return in_order(records, replay_all(records, context))


def in_order(records: Records, written: Outputs) -> ReplayResult:
    """What was written of a log, as the files of a replay hold it."""
    source = written.column("source").to_numpy()
    file, line, _ = (column[source] for column in records.arrivals())
    columns = {name: written.column(name) for name in ("sink", "value", "ts", "type", "id")}
    return ordered(pa.table(columns | {"file": file, "line": line}))


def read_records(files: Sequence[str]) -> Records:
    """All lines of files as one shard's records.

    Raises:
        WeirError: a file cannot be read.
    """
    pieces = [(number, *piece) for number, file in enumerate(files) for piece in _read_pieces(file)]
    none = np.empty(0, dtype=np.int64)
    number = np.concatenate([none, *(np.full(len(lines), file) for file, _, lines in pieces)])
    return Records(
        topic=NameColumn([os.path.basename(file) for file in files], number),
        partition=np.zeros(len(number), dtype=np.int64),
        offset=np.concatenate([none, *(position for _, position, _ in pieces)]), ts=[None] * len(number),
        value=pa.chunked_array([lines for _, _, lines in pieces], pa.large_binary()), file=number,
    )  # fmt: skip


def _read_pieces(file: str) -> Iterator[tuple[Integers, pa.Array]]:
    """Numbers and bytes of the lines of a file that are not empty, some at a time; as `_read`."""
    if is_parquet(file):
        rows = list(_rows(file))
        numbers = np.array([number for number, _ in rows], dtype=np.int64)
        yield numbers, pa.array([value for _, value in rows], pa.large_binary())
        return
    before = 0
    try:
        with _open(file, "r", packed=file.endswith(".gz")) as stream:
            while some := stream.read(READ_AT_ONCE) + _line(stream):
                one = pa.array([some.removesuffix(b"\n")], pa.large_binary())
                lines = pc.split_pattern(one, b"\n").values
                text, ends = bytes_in(lines)
                full = ends[1:] > ends[:-1]
                # A line that begins with white space may be nothing else.
                for place in np.flatnonzero(full)[text[ends[:-1][full]] <= ord(" ")].tolist():
                    full[place] = not lines[place].as_py().isspace()
                yield before + 1 + np.flatnonzero(full), lines.filter(pa.array(full))
                before += len(lines)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise WeirError(f"{file}: cannot be read: {error}") from error


def ordered(written: pa.Table) -> ReplayResult:
    """Sort what was written as docs/contract.md 4 says.

    Args:
        written: decisions and dead letters in any order: sink, value, ts, type, id, and file and line of the
            event that each answers.
    """
    decided = pc.equal(written["sink"], DECISIONS)
    # Stable, and text by its bytes in UTF-8, which is the order of code points.
    decisions, dead_letters = (
        part["value"].take(pc.sort_indices(part, sort_keys=[(name, "ascending") for name in names]))
        for part, names in (
            (_only(written, decided), ("ts", "type", "id", "file", "line")),
            (_only(written, pc.invert(decided)), ("file", "line")),
        )
    )
    return ReplayResult(
        decisions=decisions.to_numpy().tolist(), dead_letters=dead_letters.to_numpy().tolist()
    )


def _only(rows: pa.Table, wanted: pa.ChunkedArray) -> pa.Table:
    """The rows that are wanted; mostly that is all of them, and then nothing is copied."""
    return rows if pc.all(wanted).as_py() else rows.filter(wanted)


def write_lines(file: str, lines: Iterable[bytes]) -> None:
    """Write JSON lines, whole or not at all; packed if the name ends with `.gz`, as columns with `.parquet`.

    Raises:
        WeirError: the file cannot be written.
    """
    if is_parquet(file):
        _write_rows(file, lines)
        return
    try:
        with whole(file) as draft, _open(draft, "w", packed=file.endswith(".gz")) as stream:
            stream.writelines(line + b"\n" for line in lines)
    except (OSError, ValueError) as error:
        raise WeirError(f"{file}: cannot be written: {error}") from error


def _write_rows(file: str, lines: Iterable[bytes]) -> None:
    """Write JSON objects as a Parquet file, whole or not at all."""
    try:
        rows = columns_of([load_object(line) for line in lines])
        with whole(file) as draft:
            pq.write_table(pa.Table.from_batches([rows]), draft, compression="zstd")
    except (BadEvent, Unlike) as error:
        raise WeirError(f"{file}: cannot be written: no column holds {error}") from error
    except (OSError, ValueError, pa.ArrowException) as error:
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


@contextmanager
def whole(file: str) -> Iterator[str]:
    """Where to write a file that is to appear whole or not at all.

    A link stays, and what it leads to is written. A device or a pipe is written to as it is, never replaced.

    Raises:
        OSError: the file cannot be put in its place.
    """
    if os.path.exists(file) and not os.path.isfile(file):
        yield file
        return
    target = os.path.realpath(file)
    draft = f"{target}.partial"
    try:
        yield draft
        os.replace(draft, target)
    finally:
        with suppress(OSError):
            os.unlink(draft)


def _open(file: str, mode: str, *, packed: bool) -> IO[bytes]:
    if packed:
        # mtime 0: the same lines give the same file.
        return gzip.GzipFile(file, f"{mode}b", mtime=0)  # type: ignore[return-value]
    return Path(file).open(f"{mode}b")
