"""The operator in a real stream: chunks, restarts, a killed worker, a batch that is run again."""

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from law_kit import T0, policy, quota, request
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from spark_kit import LIVE, SHARDS, TASKS, TOPICS, write_records

from streaming.columns import outputs as outputs_module
from streaming.columns.records import Records
from streaming.contract.decisions import DECISIONS
from streaming.job import schemas
from streaming.job.blobs.local import FileBlobStore
from streaming.job.grouping_keys import grouping_keys_of
from streaming.job.operator import decide, group_function
from streaming.job.spark import arrow_serializer
from streaming.job.spark.arrow_serializer import Columns, takes_columns
from streaming.laws.law import StepContext
from streaming.laws.mutation import table as mutation_table
from streaming.laws.name_hashes import shard_of
from streaming.laws.shard import step

NUMBERS = grouping_keys_of(SHARDS, TASKS)["mutation"]
USERS = 25
LIMIT_S = 90
Row = dict[str, Any]
Sink = Callable[[DataFrame, int], None]


def row(shard: int, origin: int, offset: int, event: Row) -> Row:
    """A record as the routing step hands it over."""
    return {
        "grouping_key": NUMBERS[shard], "origin": origin, "partition": 0, "offset": offset, "ts": event["ts"],
        "sent": b"", "value": orjson.dumps(event),
    }  # fmt: skip


def traffic(batch: int, count: int = 300) -> list[Row]:
    """Requests of many users, all limited, with the policies before them in the first batch."""
    rows = []
    for user in range(USERS if batch == 0 else 0):
        change = policy(0, f"quotas[user=u{user}]", quota(2, 20))
        rows += [row(shard, schemas.POLICY, user, change) for shard in range(SHARDS)]
    for number in range(batch * count, (batch + 1) * count):
        subject = f"user=u{number % USERS}"
        event = request(f"r{number}", 10 + number * 7, number % 9, user=subject[5:], subject=subject)
        rows.append(row(shard_of(subject, SHARDS), schemas.EVENT, number, event))
    return rows


def decided_locally(*batches: list[Row]) -> dict[str, bytes]:
    """Decisions by id as the law's own step makes them, batch by batch and without Spark."""
    bodies: dict[int, bytes | None] = dict.fromkeys(range(SHARDS))
    decisions: dict[str, bytes] = {}
    for rows in batches:
        for shard in bodies:
            own = [found for found in rows if found["grouping_key"] == NUMBERS[shard]]
            records = Records(
                topic=[TOPICS[found["origin"]] for found in own], partition=[0] * len(own),
                offset=[found["offset"] for found in own], ts=[found["ts"] for found in own],
                value=[found["value"] for found in own],
            )  # fmt: skip
            bodies[shard], outputs = step(
                "mutation", shard, bodies[shard], records, StepContext(fail_fast=True)
            )
            assert set(outputs.listed("sink")) <= {DECISIONS}
            decisions |= zip(outputs.listed("id"), outputs.value, strict=True)
    return decisions


def run(output: DataFrame, checkpoint: Path, sink: Sink) -> None:
    """Run a stream until its input is read."""
    query = (
        output.writeStream.outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .foreachBatch(sink)
        .start()
    )
    assert query.awaitTermination(LIMIT_S)


def collector(into: dict[str, bytes]) -> Sink:
    """A sink that keeps decisions by id."""

    def collect(frame: DataFrame, _: int) -> None:
        for found in frame.collect():
            value = bytes(found.value)
            into[orjson.loads(value)["id"]] = value

    return collect


@pytest.fixture
def records(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """A stream of the files in `in`."""
    (tmp_path / "in").mkdir()
    return spark.readStream.schema(schemas.ROUTED).parquet(str(tmp_path / "in"))


def test_restarts_and_chunks_decide_as_the_law_alone(
    spark: SparkSession, records: DataFrame, tmp_path: Path
) -> None:
    """Three runs on one checkpoint, groups cut into chunks of 7 rows: the bytes of the local step."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 7)
    batches = [traffic(number) for number in range(3)]
    seen: dict[str, bytes] = {}
    try:
        for number, rows in enumerate(batches):
            write_records(tmp_path / "in", str(number), rows)
            run(decide(records, LIVE), tmp_path / "checkpoint", collector(seen))
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 100_000)
    assert seen == decided_locally(*batches)


def test_much_of_a_group_comes_in_pieces(records: DataFrame, tmp_path: Path) -> None:
    """A row each, and the state in a batch without rows behind them."""
    own = group_function(LIVE)

    @takes_columns
    def in_pieces(key: Any, chunks: Iterable[Columns], state: GroupState) -> Iterator[Columns]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(outputs_module, "PIECE_BYTES", 1)
            patch.setattr(arrow_serializer, "_BYTES_AT_ONCE", 1)
            yield from own(key, chunks, state)

    batches, seen = [traffic(number, count=30) for number in range(2)], dict[str, bytes]()
    output = records.groupBy("grouping_key").applyInPandasWithState(
        in_pieces, schemas.OUTPUT, schemas.STATE, "update", GroupStateTimeout.NoTimeout
    )
    for number, rows in enumerate(batches):
        write_records(tmp_path / "in", str(number), rows)
        run(output, tmp_path / "checkpoint", collector(seen))
    assert seen == decided_locally(*batches)


@pytest.mark.parametrize("rests", [False, True])
def test_a_killed_worker_costs_nothing(records: DataFrame, tmp_path: Path, rests: bool) -> None:
    """Its task is tried again from the last state, so the decisions are those of an undisturbed run.

    Also where all rows rest after every batch: it dies when its segments are written but not committed, and
    they outlive restarts.
    """
    folder, mark = tmp_path / "segments", tmp_path / "killed"
    stores = FileBlobStore(folder, 1) if rests else None
    own = group_function(replace(LIVE, blob_stores=stores))

    @takes_columns
    def fragile(key: Any, chunks: Iterable[Columns], state: GroupState) -> Iterator[Columns]:
        if rests:
            mutation_table.WARM_ROWS = 0
        written = len(list(folder.rglob("*.arrow")))
        yield from own(key, chunks, state)
        if written >= SHARDS * rests and not mark.exists():
            assert not rests or len(list(folder.rglob("*.arrow"))) > written
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    batches, seen = [traffic(number) for number in range(4 if rests else 1)], dict[str, bytes]()
    for number, rows in enumerate(batches):
        write_records(tmp_path / "in", str(number), rows)
        output = records.groupBy("grouping_key").applyInPandasWithState(
            fragile, schemas.OUTPUT, schemas.STATE, "update", GroupStateTimeout.NoTimeout
        )
        run(output, tmp_path / "checkpoint", collector(seen))
    assert mark.exists()
    assert seen == decided_locally(*batches)


def test_a_batch_that_is_run_again_has_its_first_time(records: DataFrame, tmp_path: Path) -> None:
    """The sink fails after the batch was planned; the rerun says the same of what is late."""

    @takes_columns
    def times(_: Any, chunks: Iterable[Columns], state: GroupState) -> Iterator[Columns]:
        yield [pa.array([state.getCurrentProcessingTimeMs()])]

    write_records(tmp_path / "in", "0", traffic(0, count=1)[-1:])
    output = records.groupBy("grouping_key").applyInPandasWithState(
        times, "ms bigint", schemas.STATE, "update", GroupStateTimeout.NoTimeout
    )
    seen: list[int] = []

    def fails_once(frame: DataFrame, _: int) -> None:
        seen.extend(found.ms for found in frame.collect())
        if len(seen) == 1:
            raise OSError("the sink is gone")

    with pytest.raises(StreamingQueryException):
        run(output, tmp_path / "checkpoint", fails_once)
    run(output, tmp_path / "checkpoint", fails_once)
    assert len(seen) == 2
    assert seen[0] == seen[1] > T0 // 2
