"""What the tests of the Spark job share: a group's state, and records as frames and files."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import StructType

from streaming.job import schemas
from streaming.job.operator import Input
from streaming.job.spark.arrow_serializer import Columns
from streaming.laws.law import StepContext

TOPICS = ("weir.requests", "weir.policies")
SHARDS, TASKS = 4, 2
LIVE = Input(context=StepContext(fail_fast=True), shards=SHARDS, tasks=TASKS, names=TOPICS)


def group_state(processed_ts: int = 0) -> GroupState:
    """Spark's own, of a group that has none yet, in a micro-batch of this time, ms."""
    return GroupState(
        optionalValue=None, batchProcessingTimeMs=processed_ts, eventTimeWatermarkMs=0,
        timeoutConf=GroupStateTimeout.NoTimeout, hasTimedOut=False, watermarkPresent=False, defined=False,
        updated=False, removed=False, timeoutTimestamp=-1, keyAsUnsafe=b"", valueSchema=StructType(),
    )  # fmt: skip


def record_columns(
    events: Sequence[tuple[int, int, dict[str, Any]]], partition: int = 0, sent: Sequence[bytes] = ()
) -> Columns:
    """(origin, offset, event) as columns of the operator's input, of any place; the first ones `sent` so."""
    return [
        pa.array([0] * len(events), pa.int32()),
        pa.array([origin for origin, _, _ in events], pa.int32()),
        pa.array([partition] * len(events), pa.int32()),
        pa.array([offset for _, offset, _ in events], pa.int64()),
        pa.array([event["ts"] for _, _, event in events], pa.int64()),
        pa.array([*sent, *[None] * (len(events) - len(sent))], pa.binary()),
        pa.array([json.dumps(event).encode() for _, _, event in events], pa.binary()),
    ]


def output_rows(columns: Columns, schema: str = schemas.OUTPUT) -> list[dict[str, Any]]:
    """Columns that the operator gave, as rows."""
    names = [field.split()[0] for field in schema.split(", ")]
    return pa.table(columns, names=names).to_pylist()


def write_records(folder: Path, name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Drop a file of records (`schemas.RECORD_COLUMNS`) into a folder that a stream watches."""
    columns = {column: [row[column] for row in rows] for column in schemas.RECORD_COLUMNS}
    frame = pd.DataFrame(columns).astype({"grouping_key": "int32", "origin": "int32", "partition": "int32"})
    folder.mkdir(exist_ok=True)
    # Hidden while it grows: the file source skips names with a leading dot.
    hidden = folder / f".{name}.parquet"
    frame.to_parquet(hidden)
    hidden.rename(folder / f"{name}.parquet")
