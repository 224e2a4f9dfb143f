"""The state of many subjects: one Arrow table a shard, as bytes.

Spark keeps a shard's state as one opaque value, since a Spark row and a pandas frame for each principal
cost about a millisecond each (measured). Columns belong to the law; this module only turns them
into bytes and back, exactly.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from streaming.columns.packed import stream_of
from streaming.contract.errors import StateError

_NO_STATE: Final = (
    pa.ArrowException, AttributeError, LookupError, OSError, StopIteration, TypeError, ValueError
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A shard's state between two batches.

    Attributes:
        columns: one Arrow array a column, all of one length, a row per subject.
        notes: what belongs to the whole shard (policies, newest time), by name, as bytes.
    """

    columns: Mapping[str, pa.Array]
    notes: Mapping[str, bytes]


def encode(body: Body) -> bytes:
    """The body as Arrow IPC bytes, LZ4-compressed: empty windows then cost next to nothing."""
    schema = pa.schema(
        [pa.field(name, column.type) for name, column in body.columns.items()],
        metadata={name.encode(): value for name, value in body.notes.items()},
    )
    batch = pa.RecordBatch.from_arrays(list(body.columns.values()), schema=schema)
    return packed(batch, compression="lz4")


def note_in(raw: bytes | None, name: str) -> bytes:
    """One note of the body, of which nothing else is looked at; empty: there is none."""
    if raw is None:
        return b""
    with reading(), pa.ipc.open_stream(pa.py_buffer(raw)) as reader:
        return bytes((reader.schema.metadata or {}).get(name.encode(), b""))


@contextmanager
def reading() -> Iterator[None]:
    """Have whatever bytes that are no state make their reader raise as a StateError; a decorator, too."""
    try:
        yield
    except _NO_STATE as error:
        raise StateError(f"a shard's state cannot be read ({error}); the checkpoint is damaged") from error


@reading()
def decode(raw: bytes) -> Body:
    """The body that `encode` wrote.

    Raises:
        StateError: the bytes are not such a body, so the checkpoint is damaged or foreign.
    """
    batch = unpacked(pa.py_buffer(raw))
    # Nobody has digested these bytes, and Arrow follows a wrong length to wherever it leads.
    batch.validate(full=True)
    columns = {name: batch.column(number) for number, name in enumerate(batch.schema.names)}
    notes = {name.decode(): value for name, value in (batch.schema.metadata or {}).items()}
    return Body(columns=columns, notes=notes)


def packed(rows: pa.RecordBatch, compression: str | None = None) -> bytes:
    """Rows as Arrow IPC bytes; without compression they can be read in place."""
    return stream_of(rows, pa.ipc.IpcWriteOptions(compression=compression))


@reading()
def unpacked(content: pa.Buffer) -> pa.RecordBatch:
    """The rows that `packed` wrote, in place.

    Raises:
        StateError: the bytes are not such rows.
    """
    with pa.ipc.open_stream(content) as reader:
        return reader.read_next_batch()
