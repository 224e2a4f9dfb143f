"""Files that appear whole or not at all: JSON lines, packed or not, and Parquet (docs/contract.md 4)."""

import gzip
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from streaming.columns.json_columns import Unlike, columns_of
from streaming.contract.errors import BadEvent, WeirError
from streaming.contract.events import load_object
from streaming.log.reading import is_parquet


def write_lines(file: str, lines: Iterable[bytes]) -> None:
    """Write JSON lines, whole or not at all; packed if the name ends with `.gz`, as columns with `.parquet`.

    Raises:
        WeirError: the file cannot be written.
    """
    if is_parquet(file):
        _write_rows(file, lines)
        return
    ended = (line + b"\n" for line in lines)
    try:
        with opened(file) as lines_to:
            lines_to.writelines(ended)
    except (OSError, ValueError) as error:
        raise WeirError(f"{file}: cannot be written: {error}") from error


@contextmanager
def opened(file: str) -> Iterator[IO[bytes]]:
    """Where to write the bytes of a file, whole or not at all; packed if the name ends with `.gz`.

    Raises:
        OSError: it cannot be written.
    """
    with whole(file) as draft, Path(draft).open("wb") as raw:
        if not file.endswith(".gz"):
            yield raw
            return
        # No name and no time in it: the same lines give the same file.
        with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
            yield cast(IO[bytes], packed)


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


@contextmanager
def whole(file: str) -> Iterator[str]:
    """Where to write a file that is to appear whole or not at all.

    A link stays, and what it leads to is written. A device or a pipe is written to as it is, never replaced.

    Raises:
        OSError: the file cannot be put in its place.
    """
    if not is_regular(file):
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


def is_regular(file: str) -> bool:
    """Whether it is a file or may become one: no device, no pipe."""
    return os.path.isfile(file) or not os.path.exists(file)
