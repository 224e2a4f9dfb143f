"""Event files, some of them at a time: JSON lines, packed or not, and Parquet (docs/contract.md 4)."""

import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming.columns.byte_strings import Integers, cut
from streaming.columns.json_rows import objects
from streaming.columns.packed import check_type, plain_form
from streaming.columns.records import NameColumn, Pack, Records
from streaming.contract.errors import BadEvent, WeirError
from streaming.laws.row_fields import is_text

READ_AT_ONCE: Final = 32 * 2**20
"""Bytes of a file that are read at once, unless a line is longer."""
LINE_MAX: Final = 64 * 2**20
"""No record is as long; what is endless, such as a device, must not fill the memory."""
ROWS_AT_ONCE: Final = 131_072
"""Rows of a Parquet file that are read at once; fewer where they are long."""
_ROWS_MIN: Final = 64
_Some = tuple[Integers, pa.Array, list[Pack]]
"""Numbers of lines, the bytes of those that stand alone, and the others as packs."""
_Read = Iterator[tuple[_Some, float]]
"""Lines, some at a time, and which part of their file lies behind them."""


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


def as_text(file: str) -> str:
    """A path as JSON may hold it: its bytes that are not UTF-8 are written as in messages."""
    return file.encode(errors="backslashreplace").decode()


def base_name(file: str) -> str:
    """The base name of a file, as ids and dead letters have it."""
    return os.path.basename(as_text(file))


def read_lines(files: Sequence[str]) -> Iterator[Line]:
    """Every line that is not empty, file by file; `.gz` files are unpacked.

    Raises:
        WeirError: a file cannot be read.
    """
    for number, file in enumerate(files):
        base = base_name(file)
        for position, value in _read(file):
            yield Line(file=number, base=base, number=position, value=value)


def read_records(files: Sequence[str]) -> Records:
    """All lines of files as one shard's records.

    Raises:
        WeirError: a file cannot be read.
    """
    return together(files, [records for records, _ in blocks(files)])


def blocks(files: Sequence[str]) -> Iterator[tuple[Records, float]]:
    """The lines of files that are not empty, some at a time, in their order; and which part is read.

    Raises:
        WeirError: a file cannot be read.
    """
    sizes = [_size(file) for file in files]
    for number, file in enumerate(files):
        for (lines, value, packs), part in (_columns if is_parquet(file) else _lines)(file):
            first = len(value)
            for pack in packs:
                pack.first = first
                first += len(pack)
            read = (sum(sizes[:number]) + part * sizes[number]) / max(1, sum(sizes))
            yield records_of(files, np.full(len(lines), number), lines, value, packs), read


def together(files: Sequence[str], parts: Sequence[Records]) -> Records:
    """Records of these files as one."""
    none = np.empty(0, dtype=np.int64)
    columns: list[Integers] = []
    for name in ("file", "offset"):
        own = [(np.asarray(getattr(part, name)), len(part.value)) for part in parts]
        pieces = [*(column[:single] for column, single in own), *(column[single:] for column, single in own)]
        columns.append(np.concatenate([none, *pieces]))
    values = [chunk for part in parts for chunk in part.value.chunks]  # type: ignore[union-attr]
    first = sum(len(part.value) for part in parts)
    packs = []
    for pack in (pack for part in parts for pack in part.packs):
        packs.append(Pack(first, pack.type, pack.rows, pack.number))
        first += len(pack)
    value = pa.chunked_array(values, pa.large_binary())
    return records_of(files, columns[0], columns[1], value, packs)


def is_parquet(file: str) -> bool:
    """Whether a file holds columns, by its name."""
    return file.endswith(".parquet")


def _opened(file: str) -> IO[bytes]:
    """A file's bytes, unpacked if its name says so; raises OSError."""
    if file.endswith(".gz"):
        return gzip.GzipFile(file)  # type: ignore[return-value]
    return Path(file).open("rb")


def records_of(
    files: Sequence[str], file: Integers, lines: Integers, value: pa.Array | pa.ChunkedArray,
    packs: list[Pack],
) -> Records:  # fmt: skip
    """Lines of files as records.

    Args:
        files: names of all files.
        file: number of each record's.
        lines: and of its line.
        value: those that stand alone, which come first.
        packs: the others.
    """
    if isinstance(value, pa.Array):
        value = pa.chunked_array([value])
    return Records(
        topic=NameColumn([base_name(name) for name in files], file),
        partition=np.zeros(len(lines), dtype=np.int64), offset=lines, ts=None, value=value, file=file,
        packs=packs,
    )  # fmt: skip


def _read(file: str) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of every line of a file that is not empty; of a Parquet file, of its rows' objects."""
    if is_parquet(file):
        for records, _ in blocks([file]):
            # Rows of a type stand together there.
            for i in np.argsort(records.offset).tolist():
                yield int(records.offset[i]), records.value_of(i)
        return
    number = 1
    try:
        with _opened(file) as stream:
            while line := _line(stream, number):
                value = line.removesuffix(b"\n")
                if value and not value.isspace():
                    yield number, value
                number += 1
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise WeirError(f"{file}: cannot be read: {error}") from error


def _line(stream: IO[bytes], number: int, begun: int = 0) -> bytes:
    """A line, or the rest of one.

    Args:
        stream: the file.
        number: of the line.
        begun: bytes of it that have been read.
    """
    line = stream.readline(LINE_MAX - begun)
    if begun + len(line) >= LINE_MAX and not line.endswith(b"\n"):
        raise ValueError(f"line {number}: a line is longer than {LINE_MAX} bytes")
    return line


def _size(file: str) -> int:
    """Bytes of a file; of what is none, 0."""
    return os.path.getsize(file) if os.path.isfile(file) else 0


def _lines(file: str) -> _Read:
    """Numbers and bytes of the lines of a file that are not empty, some at a time; as `_read`."""
    before = 0
    try:
        with _opened(file) as stream:
            while some := stream.read(READ_AT_ONCE):
                if not some.endswith(b"\n"):
                    begun = len(some) - some.rfind(b"\n") - 1
                    some += _line(stream, before + some.count(b"\n") + 1, begun)
                text = np.frombuffer(some, dtype=np.uint8)
                ends = np.flatnonzero(text == ord("\n"))
                if not some.endswith(b"\n"):
                    ends = np.append(ends, len(some))
                begins = np.append(0, ends[:-1] + 1)
                full = ends > begins
                # A line that begins with white space may be nothing else.
                for place in np.flatnonzero(full)[text[begins[full]] <= ord(" ")].tolist():
                    full[place] = not some[begins[place] : ends[place]].isspace()
                value = cut(text, begins[full], (ends - begins)[full], pa.large_binary())
                yield (before + 1 + np.flatnonzero(full), value, list[Pack]()), _part(stream, file)
                before += len(ends)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise WeirError(f"{file}: cannot be read: {error}") from error


def _part(stream: IO[bytes], file: str) -> float:
    """Which part of a file is read, in bytes on the disk."""
    raw: Any = stream.fileobj if isinstance(stream, gzip.GzipFile) else stream
    return min(1.0, raw.tell() / max(1, _size(file))) if os.path.isfile(file) else 0.0


def _columns(file: str) -> _Read:
    """The rows of a Parquet file, some at a time: those of a type are a pack, others their objects."""
    first = 1
    for rows, total in _batches(file):
        alone, value, packs = _by_type(rows, first)
        first += len(rows)
        lines = np.concatenate([alone, *(pack.number for pack in packs)])
        yield (lines, value, packs), (first - 1) / total


def _by_type(rows: pa.RecordBatch, first: int) -> _Some:
    """Rows of mixed types: numbers of those that stand alone, their objects, and packs of the others.

    Args:
        rows: some.
        first: number of the first one.
    """
    numbers = np.arange(first, first + len(rows))
    if "type" not in rows.schema.names or not is_text(rows["type"].type):
        return numbers, objects(None, rows), []
    types, others = rows["type"], rows.drop_columns("type")
    packs, alone = [], types.is_null()
    for type in types.unique().drop_null().to_pylist():
        own = pc.equal(types, type).fill_null(False)
        every = pc.all(own).as_py()
        which = numbers if every else numbers[own.to_numpy(zero_copy_only=False)]
        packs.append(Pack(0, type, others if every else others.filter(own), which))
    return numbers[alone.to_numpy(zero_copy_only=False)], objects(None, rows.filter(alone)), packs


def _batches(file: str) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The rows of a Parquet file, some at a time, in the forms of packed records; and how many all are."""
    try:
        with pq.ParquetFile(file, read_dictionary=_words(file)) as parquet:
            names = parquet.schema_arrow.names
            if len(set(names)) < len(names):
                raise BadEvent("a column stands there twice; columns of different names were expected")
            for field in parquet.schema_arrow:
                check_type(field.type, field.name)
            for batch in parquet.iter_batches(_rows_at_once(parquet.metadata)):
                # Arrow takes any bytes for text.
                batch.validate(full=True)
                rows = pa.RecordBatch.from_arrays([plain_form(column) for column in batch.columns], names)
                yield rows, parquet.metadata.num_rows
    except (OSError, ValueError, pa.ArrowException, BadEvent) as error:
        raise WeirError(f"{file}: cannot be read: {error}") from error


def _words(file: str) -> list[str]:
    """Columns of texts that repeat: they are written as dictionaries, and laws number them in any case."""
    schema = pq.read_schema(file)
    texts = (field.name for field in schema if pa.types.is_string(field.type))
    return [name for name in texts if name != "id"]


def _rows_at_once(metadata: Any) -> int:
    """Rows that take about as much as the lines that are read at once."""
    size = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    fits = READ_AT_ONCE * metadata.num_rows // max(1, size)
    return int(min(ROWS_AT_ONCE, max(_ROWS_MIN, fits)))
