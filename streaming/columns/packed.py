"""Packed records: many events or decisions in one Kafka record, as an Arrow IPC stream (docs/contract.md 1).

Without Numba, which enforcers would wait for."""

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns.announced import announced
from streaming.contract.errors import BadEvent

HEADER: Final = "content-type"
CONTENT_TYPE: Final = "application/vnd.apache.arrow.stream"
TYPE: Final = b"weir.type"
"""Key of the schema's metadata that says of what `type` the rows are."""
RECORD_BYTES: Final = 900 * 1024
"""Of a packed record at most; a broker takes 1 MiB unless it is told otherwise."""
DECODED_BYTES: Final = 64 * 2**20
"""Of a packed record decompressed, dictionaries written out."""
ROWS_MAX: Final = 2**20
"""Of a packed record: rows of nulls take no bytes, but each one is an event."""
_SAMPLE: Final = 128
_LARGE: Final = 256 * 2**10
"""Bytes of rows for which it pays to write them twice."""
_TRIED: Final = 1024
"""Rows that show into how many bytes others go."""
_LZ4: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_ZSTD: Final = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
_PLAIN: Final = pa.ipc.IpcWriteOptions(use_threads=False)


def is_packed(headers: Iterable[tuple[str, str | bytes | None]] | None) -> bool:
    """Whether a record's headers, as Kafka's clients give them, say that it is packed."""
    told = (CONTENT_TYPE, CONTENT_TYPE.encode())
    return any(name == HEADER and value in told for name, value in headers or ())


def pack(
    type: str, rows: pa.RecordBatch, most: int = RECORD_BYTES, *, small: bool = False
) -> Iterator[bytes]:
    """Rows as packed records, in order, as many as needed; none for no rows.

    Args:
        type: of all of them.
        rows: columns in the order of docs/contract.md's example, without `type`.
        most: bytes of a record; one row alone may have more.
        small: two thirds of the bytes for twice the time (zstd, else lz4).
    """
    if not rows.num_rows:
        return
    if rows.num_rows > 1 and decoded_bytes(rows) > DECODED_BYTES // 2:
        # However few bytes it takes compressed, no reader takes a record that has more than twice as many.
        half = rows.num_rows // 2
        for part in (rows.slice(0, half), rows.slice(half)):
            yield from pack(type, part, most, small=small)
        return
    options = _ZSTD if small else _LZ4
    fits = rows.num_rows
    if rows.num_rows > 2 * _TRIED and rows.nbytes > most:
        # To compress all only to see that it is too much would double the work; some of them say it as well.
        tried = _written(type, rows.slice(rows.num_rows // 2, _TRIED), options)
        fits = most * _TRIED // len(tried)
    if fits >= rows.num_rows:
        value = _written(type, rows, options)
        if len(value) <= most or rows.num_rows == 1:
            yield value
            return
        fits = rows.num_rows * most // len(value)
    # Somewhat smaller pieces than fit on average, so that few must be cut again.
    step = max(1, min(rows.num_rows // 2, int(fits * 0.9)))
    for first in range(0, rows.num_rows, step):
        yield from pack(type, rows.slice(first, step), most, small=small)


def stream(type: str, rows: pa.RecordBatch) -> bytes:
    """Rows as one stream, neither compressed nor cut: from one process of the job to another."""
    return _stream(type, rows, _PLAIN)


def opened(value: bytes | pa.Buffer) -> tuple[str, pa.RecordBatch]:
    """The type and the rows of what `stream` wrote; nothing is looked at or copied."""
    with pa.ipc.open_stream(value) as reader:
        return reader.schema.metadata[TYPE].decode(), reader.read_next_batch()


@contextmanager
def _reading() -> Iterator[None]:
    """Have whatever bytes that are no stream make their reader raise as a BadEvent; a decorator, too."""
    try:
        yield
    except (pa.ArrowException, OSError, struct.error, UnicodeDecodeError, OverflowError) as error:
        raise BadEvent(f"not an Arrow IPC stream: {error}; {CONTENT_TYPE} was expected") from error


@_reading()
def unpack(value: bytes | pa.Buffer) -> tuple[str, pa.RecordBatch]:
    """The type and the rows of a packed record, all batches of its stream as one.

    Columns come in few forms: int64 (uint64 where a value needs it), float64, bool, string or dictionary of
    strings, list, map, struct, null.

    Raises:
        BadEvent: it is none, says no type, has no row or column, or is too large decompressed.
    """
    _check_size(value)
    with pa.ipc.open_stream(value) as reader:
        schema = reader.schema
        type = _type_in(schema)
        if len(set(schema.names)) < len(schema.names):
            raise BadEvent("a column stands there twice; columns of different names were expected")
        for field in schema:
            check_type(field.type, field.name)
        batches = list(reader)
    for batch in batches:
        # Offsets and numbers that point nowhere must not be followed.
        batch.validate(full=True)
    batches = [batch for batch in batches if batch.num_rows]
    if not batches:
        raise BadEvent("no row; at least one was expected")
    if len(batches) > 1:
        batches = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks().to_batches()
    rows = _of_one_type(type, batches[0])
    if not rows.num_columns:
        # Arrow takes what has no columns for no rows, and nobody would hear of them.
        raise BadEvent("no column; those of the events were expected")
    _check_decoded(decoded_bytes(rows))
    columns = [plain_form(column) for column in rows.columns]
    return type, pa.RecordBatch.from_arrays(columns, rows.schema.names)


@_reading()
def schema_of(value: bytes | pa.Buffer) -> tuple[str, pa.Schema]:
    """The type and the columns of a packed record's rows, of which nothing else is read.

    Raises:
        BadEvent: it is none, or says no type.
    """
    with pa.ipc.open_stream(value) as reader:
        return _type_in(reader.schema), reader.schema


def _type_in(schema: pa.Schema) -> str:
    named = (schema.metadata or {}).get(TYPE)
    if named is None:
        raise BadEvent("weir.type: missing in the schema's metadata; the type of the rows was expected")
    return str(named.decode())


@_reading()
def columns_in(
    value: bytes | pa.Buffer, type: str, names: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, pa.Array]:
    """Some columns of a packed record, in the forms of `unpack` but for dictionaries; no other is read.

    Raises:
        BadEvent: it is none of this type, is too large decompressed, or lacks one of `names`.
    """
    _check_size(value)
    with pa.ipc.open_stream(value) as reader:
        schema = reader.schema
    if (schema.metadata or {}).get(TYPE) != type.encode() or set(names) - set(schema.names):
        raise BadEvent(f"not of type {type} with the columns {', '.join(names)}")
    found = [*names, *(name for name in optional if name in schema.names)]
    places = [schema.get_field_index(name) for name in found]
    if -1 in places:
        raise BadEvent("a column stands there twice; columns of different names were expected")
    options = pa.ipc.IpcReadOptions(included_fields=places, use_threads=False)
    with pa.ipc.open_stream(value, options=options) as reader:
        table = reader.read_all()
    table.validate(full=True)
    # One batch is the rule; where there are more, theirs are put together.
    columns = [pa.concat_arrays(table[name].unify_dictionaries().chunks) for name in found]
    _check_decoded(sum(map(_bytes_of, columns)))
    return {name: _decoded(plain_form(column)) for name, column in zip(found, columns, strict=True)}


def _of_one_type(type: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows without a column that says their type again."""
    if "type" not in rows.schema.names:
        return rows
    if set(rows["type"].unique().to_pylist()) != {type}:
        raise BadEvent(f"type: a column of other types than weir.type, {type}; one type was expected")
    return rows.drop_columns("type")


def plain_form(column: pa.Array) -> pa.Array:
    """A column in one of the forms that `unpack` promises, of a type that `check_type` takes."""
    kind = column.type
    if pa.types.is_integer(kind):
        if kind == pa.uint64() and column.null_count < len(column):
            return column if max(column.drop_null().to_numpy()) > 2**63 - 1 else column.cast(pa.int64())
        return column.cast(pa.int64())
    if pa.types.is_floating(kind):
        return column.cast(pa.float64())
    if pa.types.is_dictionary(kind):
        # Arrow puts no two dictionaries together that hold a null.
        if not _is_text(kind.value_type) or column.dictionary.null_count:
            return plain_form(column.dictionary_decode())
        indices, texts = column.indices.cast(pa.int32()), plain_form(column.dictionary)
        return pa.DictionaryArray.from_arrays(indices, texts)
    if _is_text(kind):
        return column.cast(pa.string())
    if pa.types.is_map(kind):
        keys, items = (plain_form(part.slice(*stretch(column))) for part in (column.keys, column.items))
        return pa.MapArray.from_arrays(_ends(column), _decoded(keys), items, mask=_mask(column))
    if pa.types.is_struct(kind):
        parts = [plain_form(part) for part in column.flatten()]
        names = [kind.field(i).name for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, names, mask=column.is_null()) if names else column
    if _is_list(kind):
        if pa.types.is_fixed_size_list(kind):
            column = column.cast(pa.list_(kind.value_type))
        values = plain_form(column.values.slice(*stretch(column)))
        return pa.ListArray.from_arrays(_ends(column), values, mask=_mask(column))
    return column


def _mask(column: pa.Array) -> pa.Array | None:
    return column.is_null() if column.null_count else None


def stretch(column: pa.Array) -> tuple[int, int]:
    """First element and number of the elements that the lists of a column stand on."""
    if not len(column):
        # Of no lists the offsets may be left out, as in Java: what would be read instead is anything.
        return 0, 0
    first, last = column.offsets[0].as_py(), column.offsets[len(column)].as_py()
    return first, last - first


def _ends(column: pa.Array) -> pa.Array:
    """Where each list of a column begins and the last one ends, from 0 on."""
    offsets = column.offsets.to_numpy()
    return pa.array((offsets - offsets[0]).astype("int32"))


def _decoded(texts: pa.Array) -> pa.Array:
    return texts.dictionary_decode() if pa.types.is_dictionary(texts.type) else texts


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def check_type(kind: pa.DataType, name: str) -> None:
    """Refuse a column whose values no JSON value stands for; `name` is its own.

    Raises:
        BadEvent: it is one.
    """
    types = pa.types
    if types.is_dictionary(kind) and not types.is_nested(kind.value_type):
        check_type(kind.value_type, name)
    elif types.is_map(kind) and _is_text(kind.key_type):
        check_type(kind.item_type, name)
    elif types.is_struct(kind):
        for number in range(kind.num_fields):
            check_type(kind.field(number).type, f"{name}.{kind.field(number).name}")
    elif _is_list(kind):
        check_type(kind.value_type, name)
    elif not (
        types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_null(kind)
        or _is_text(kind)
    ):  # fmt: skip
        raise BadEvent(f"{name}: {kind}; a number, text, bool, list, map or struct was expected")


def decoded_bytes(rows: pa.RecordBatch) -> int:
    """Bytes of some rows with dictionaries written out, at least one a value."""
    return sum(map(_bytes_of, rows.columns))


def _bytes_of(column: pa.Array) -> int:
    """Bytes of a column with dictionaries written out, at least one a value."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        if not len(column.dictionary):
            return len(column)
        sizes = pc.binary_length(_texts(column.dictionary))
        return len(column) + int(pc.sum(sizes.take(column.indices)).as_py() or 0)
    if pa.types.is_struct(kind):
        return len(column) + sum(map(_bytes_of, column.flatten()))
    if pa.types.is_fixed_size_list(kind):
        # So many nulls take no memory here, but in lists they would.
        return len(column) * max(1, int(kind.list_size)) + _bytes_of(column.flatten())
    if _is_list(kind) or pa.types.is_map(kind):
        first, count = stretch(column)
        parts = (column.keys, column.items) if pa.types.is_map(kind) else (column.values,)
        return len(column) + sum(_bytes_of(part.slice(first, count)) for part in parts)
    return int(column.nbytes) + len(column)


def _texts(values: pa.Array) -> pa.Array:
    return values if _is_text(values.type) else values.cast(pa.string())


def _check_size(value: bytes | pa.Buffer) -> None:
    """Refuse a stream that says it is large, before anything of it is decompressed.

    Raises:
        BadEvent: it has too many bytes or rows.
    """
    count, size = announced(value)
    _check_decoded(size)
    if count > ROWS_MAX:
        raise BadEvent(f"{count} rows; at most {ROWS_MAX} were expected")


def _check_decoded(size: int) -> None:
    if size > DECODED_BYTES:
        raise BadEvent(f"{size} bytes decompressed; at most {DECODED_BYTES} was expected")


def _written(type: str, rows: pa.RecordBatch, options: pa.ipc.IpcWriteOptions) -> bytes:
    columns = [_narrow(column) for column in rows.columns]
    return _stream(type, pa.RecordBatch.from_arrays(columns, rows.schema.names), options)


def _stream(type: str, rows: pa.RecordBatch, options: pa.ipc.IpcWriteOptions) -> bytes:
    return stream_of(rows.replace_schema_metadata({TYPE: type.encode()}), options)


def stream_of(rows: pa.RecordBatch, options: pa.ipc.IpcWriteOptions) -> bytes:
    """Rows as an Arrow IPC stream with nothing more to their schema."""
    if options.compression is not None or rows.nbytes < _LARGE:
        sink = pa.BufferOutputStream()
        _write(sink, rows, options)
        return bytes(sink.getvalue())
    # Measured first: a large buffer that grows is copied at each step, and takes three times as long.
    size = pa.MockOutputStream()
    _write(size, rows, options)
    room = pa.allocate_buffer(size.size())
    _write(pa.FixedSizeBufferWriter(room), rows, options)
    return bytes(room)


def _write(sink: Any, rows: pa.RecordBatch, options: pa.ipc.IpcWriteOptions) -> None:
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_batch(rows)


def _has_empty_lists(column: pa.Array) -> bool:
    """Whether lists in a column are all empty: of such a slice Arrow writes where all texts of the whole end,
    and so no piece of a batch would fit into a record.
    """
    if pa.types.is_struct(column.type):
        return any(map(_has_empty_lists, column.flatten()))
    if not pa.types.is_map(column.type) and not _is_list(column.type):
        return False
    if pa.types.is_fixed_size_list(column.type):
        return _has_empty_lists(column.flatten())
    first, count = stretch(column)
    return not count or _has_empty_lists(column.values.slice(first, count))


def _narrow(column: pa.Array) -> pa.Array:
    """A column of texts as a dictionary where that is smaller; others as they are."""
    if _has_empty_lists(column):
        return column.take(pa.array(np.arange(len(column))))
    if pa.types.is_dictionary(column.type):
        if len(column.dictionary) <= len(column):
            return column
        # Of a few rows out of many: what no row says stays behind.
        column = column.dictionary_decode()
    if not _is_text(column.type):
        return column
    sample = column.slice(0, _SAMPLE)
    if 2 * len(sample.unique()) > len(sample):
        return column
    return column.dictionary_encode()
