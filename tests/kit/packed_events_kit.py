"""Packed events beside the same events as JSON, through a shard's step."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa
from pack_kit import json_of, records_with

from streaming.columns.json_columns import columns_of
from streaming.columns.packed import pack
from streaming.columns.records import Records
from streaming.contract.decisions import DEADLETTER
from streaming.laws.law import StepContext
from streaming.laws.registry import LAWS
from streaming.laws.shard import step

Event = dict[str, Any]
ARRIVED = 1_795_166_700_000 + 10**9
"""When all records came, ms."""


def rows_of(events: Sequence[Event]) -> pa.RecordBatch:
    """Events of one type as columns; flags among the samples of a list as 0 and 1."""
    written = [
        event | {"samples": [[one if one is None else int(one) for one in each] for each in event["samples"]]}
        if "samples" in event
        else event
        for event in events
    ]
    return columns_of(written).drop_columns("type")


def packed_records(packs: Sequence[pa.RecordBatch], type: str) -> Records:
    """Packed records of one partition."""
    return _records([value for rows in packs for value in pack(type, rows)], packed=True)


def json_records(events: Sequence[Event]) -> Records:
    """The same as JSON, a record each."""
    return _records(json_of(events), packed=False)


def _records(values: list[bytes], *, packed: bool) -> Records:
    return records_with(values, [packed] * len(values), ARRIVED, "weir.usage")


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
