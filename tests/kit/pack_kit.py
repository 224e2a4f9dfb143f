"""Packed records as the tests write them."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from streaming.columns.json_columns import columns_of
from streaming.columns.packed import TYPE, pack
from streaming.columns.records import NameColumn, Records, unpacked

Event = Mapping[str, Any]


def packed(events: Sequence[Event]) -> list[bytes]:
    """Events as packed records, in order: one for each stretch of events of one type."""
    return [value for type, rows in stretches(events) for value in pack(type, rows)]


def stretches(events: Sequence[Event]) -> list[tuple[str, pa.RecordBatch]]:
    """Stretches of events of one type as columns."""
    found = []
    for type, of_one_type in groupby(events, key=lambda event: str(event["type"])):
        rows = columns_of(list(of_one_type))
        found.append((type, rows.drop_columns("type")))
    return found


def stream_of(rows: pa.RecordBatch | pa.Table, type: str | None = "request", **options: Any) -> bytes:
    """Rows as a stream written by Arrow alone, a batch a chunk; `type` None: it does not say any."""
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    schema = table.schema.with_metadata(None if type is None else {TYPE: type.encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, **options) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    return bytes(sink.getvalue())


def records_with(
    values: Sequence[bytes], packs: Sequence[bool], ts: int = 0, topic: str = "weir.requests"
) -> Records:
    """Records of one partition, some of them packed."""
    count = len(values)
    return unpacked(
        topic=NameColumn([topic], np.zeros(count, dtype=np.int64)), partition=np.zeros(count, dtype=np.int64),
        offset=np.arange(count), ts=np.full(count, ts),
        value=pa.chunked_array([pa.array(values, pa.binary())]), broadcast=None,
        packed=np.array(packs, dtype=np.bool_),
    )  # fmt: skip


def json_of(events: Sequence[Event]) -> list[bytes]:
    """Events as JSON, an object a record."""
    return [orjson.dumps(event) for event in events]
