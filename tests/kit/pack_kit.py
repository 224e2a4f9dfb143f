"""Packed records as the tests write them, beside the same events as JSON, and through a shard's step."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from streaming.columns.json_columns import columns_of
from streaming.columns.packed import TYPE, pack
from streaming.columns.records import NameColumn, Records, unpacked
from streaming.contract.decisions import DEADLETTER
from streaming.laws.law import StepContext
from streaming.laws.registry import LAWS
from streaming.laws.shard import step

Event = Mapping[str, Any]
ARRIVED = 1_795_166_700_000 + 10**9
"""When records of usage came, ms."""


def packed(events: Sequence[Event]) -> list[bytes]:
    """Events as packed records, in order: one for each stretch of events of one type."""
    return [value for type, rows in stretches(events) for value in pack(type, rows)]


def stretches(events: Sequence[Event]) -> list[tuple[str, pa.RecordBatch]]:
    """Stretches of events of one type as columns."""
    found = []
    for type, of_one_type in groupby(events, key=lambda event: str(event["type"])):
        found.append((type, rows_of(list(of_one_type))))
    return found


def rows_of(events: Sequence[Event]) -> pa.RecordBatch:
    """Events of one type as columns."""
    return columns_of(events).drop_columns("type")


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
    values: Sequence[bytes], packs: Sequence[bool], ts: int = 0, topic: str = "weir.requests",
    places: Sequence[tuple[int, int]] | None = None, broadcast: Sequence[bool] | None = None,
    cut: Sequence[bool] | None = None,
) -> Records:  # fmt: skip
    """Records, some of them packed, of one partition unless partitions and offsets are given."""
    numbers = np.arange(len(values))
    found = np.column_stack([0 * numbers, numbers]) if places is None else np.reshape(places, (-1, 2))
    flags = (None if each is None else np.array(each, dtype=np.bool_) for each in (packs, broadcast, cut))
    return unpacked(
        topic=NameColumn([topic], 0 * numbers), partition=found[:, 0].astype(np.int64),
        offset=found[:, 1].astype(np.int64), ts=np.full(len(values), ts),
        value=pa.chunked_array([pa.array(values, pa.binary())]),
        **dict(zip(("packed", "broadcast", "cut"), flags, strict=True)),
    )  # fmt: skip


def json_of(events: Sequence[Event]) -> list[bytes]:
    """Events as JSON, an object a record."""
    return [orjson.dumps(event) for event in events]


def packed_records(packs: Sequence[pa.RecordBatch], type: str) -> Records:
    """Packed records of one partition of usage."""
    values = [value for rows in packs for value in pack(type, rows)]
    return records_with(values, [True] * len(values), ARRIVED, "weir.usage")


def json_records(events: Sequence[Event]) -> Records:
    """The same as JSON, a record each."""
    return records_with(json_of(events), [False] * len(events), ARRIVED, "weir.usage")


def stepped(
    law: str, batches: Sequence[Records], policies: Mapping[str, Any], *, live: bool
) -> tuple[list[bytes], list[str]]:
    """Decisions of some batches, and the reasons of their dead letters."""
    body, decisions, reasons = None, list[bytes](), list[str]()
    processed_ts = ARRIVED if live else None
    context = StepContext(initial=policies, processed_ts=processed_ts, replay=not live, fail_fast=True)
    for records in batches:
        body, outputs = step(law, 0, body, records, context)
        for sink, value in zip(outputs.listed("sink"), outputs.value, strict=True):
            if sink == DEADLETTER:
                reasons.append(orjson.loads(value)["reason"])
            else:
                decisions.append(value)
    return decisions, reasons


def taken(law: str, records: Records) -> list[bool]:
    """Which records the law's intake reads in bulk."""
    flags: list[bool] = LAWS.by_name[law].intake(records, 60_000).scan().tolist()
    return flags
