"""The Spark engine of `weir replay`: the live job's operator over files, with the available-now trigger.

Same bytes as `streaming.replay.replay_local`; reader, timeline of policies and order of the output are its.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streaming.contract.errors import WeirError
from streaming.job import schemas
from streaming.job.operator import Input, decide
from streaming.job.routing import line_router
from streaming.job.sources import staged_lines
from streaming.job.spark.session import build_session, is_local_master, reason_of, stop_session
from streaming.job.spark.settings import JobSettings, Profile
from streaming.laws.law import StepContext
from streaming.log.reading import Line, base_name, read_lines
from streaming.policy.files import load_policies
from streaming.replay import ReplayResult, ordered, read_timeline, work_folder

QUERY_NAME = "weir-replay"
_LINES, _LINES_PER_FILE = "lines", 200_000
_STAGED = pa.schema([("file", pa.int32()), ("line", pa.int64()), ("value", pa.binary())])


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedInput:
    """A replay's input as Spark reads it.

    Attributes:
        work: folder of this replay.
        names: base names of the event files.
        initial: policies in force at the start.
        policies: the timeline of all policies, as JSON.
    """

    work: Path
    names: tuple[str, ...]
    initial: Mapping[str, Any]
    policies: tuple[bytes, bytes]


def replay_spark(
    policies: str, files: Sequence[str], *, jars: Path, as_decided: bool = False,
    given: JobSettings | None = None, near: str | None = None,
) -> ReplayResult:  # fmt: skip
    """Replay files in a Spark session of its own, which is stopped afterwards.

    Args:
        policies: file with the policies in force at the start.
        files: event files, in order.
        jars: folder with the jars of weir/jars/poms/spark.
        as_decided: see `replay_local`.
        given: the section `job:`, by which a cluster is used; None: this process alone.
        near: see `replay.room_near`; a cluster's executors share that folder with this process.

    Raises:
        ConfigError: the policies are wrong.
        WeirError: a file cannot be read, or Spark failed.
        OSError: there is no room.
    """
    given, cores = given or JobSettings(), os.cpu_count() or 1
    if is_local_master(given.master):
        given = given.model_copy(update={"shards": max(8, cores), "shuffle_partitions": cores})
    shards = given.shards or given.shuffle_partitions
    tuned = given.model_copy(update={"profile": Profile.THROUGHPUT})
    with work_folder(near) as folder:
        # First, since what is wrong with the files must not wait for a JVM.
        staged = stage(policies, files, folder)
        session = build_session(tuned, jars=jars, work_dir=staged.work, checkpoint=str(folder))
        try:
            return replay_staged(
                session.spark, staged, shards=shards, tasks=tuned.shuffle_partitions, as_decided=as_decided
            )
        finally:
            stop_session(session, tuned.stop_timeout_s)


def stage(policies: str, files: Sequence[str], work: Path) -> StagedInput:
    """Read the files of a replay.

    Args:
        policies: file with the policies in force at the start.
        files: event files, in order.
        work: an empty folder, on a file system that driver and executors share.

    Raises:
        ConfigError: the policies are wrong.
        WeirError: a file cannot be read.
    """
    initial = load_policies(policies)
    folder = work / _LINES
    folder.mkdir()
    timeline = read_timeline(initial, _staged(read_lines(files), folder))
    names = tuple(map(base_name, files))
    return StagedInput(work=work, names=names, initial=initial, policies=timeline.to_json())


def replay_staged(
    spark: SparkSession, staged: StagedInput, *, shards: int, tasks: int, as_decided: bool = False
) -> ReplayResult:
    """Decide what was staged; no decision depends on the number of shards.

    Raises:
        WeirError: the query failed.
    """
    router = line_router(staged.names, staged.policies, shards, tasks)
    lines = staged_lines(spark, staged.work / _LINES).mapInArrow(router, schemas.ROUTED)
    context = StepContext(initial=staged.initial, replay=True, fail_fast=True, as_decided=as_decided)
    output = decide(lines, Input(context=context, shards=shards, tasks=tasks, names=staged.names))
    written = staged.work / "output"
    try:
        query = (
            output.writeStream.queryName(QUERY_NAME)
            .outputMode("update")
            .option("checkpointLocation", str(staged.work / "checkpoint"))
            .trigger(availableNow=True)
            .foreachBatch(_writer(written))
            .start()
        )
        query.awaitTermination()
    except (PySparkException, Py4JError) as error:
        raise WeirError(f"the replay failed: {reason_of(error)}") from error
    return _collected(written)


def _staged(lines: Iterator[Line], folder: Path) -> Iterator[Line]:
    """Pass lines on while they are copied to files that Spark reads: it knows no line numbers by itself."""
    number = 0
    while chunk := list(islice(lines, _LINES_PER_FILE)):
        table = pa.table(
            {
                "file": [line.file for line in chunk],
                "line": [line.number for line in chunk],
                "value": [line.value for line in chunk],
            },
            schema=_STAGED,
        )
        pq.write_table(table, folder / f"part-{number:06d}.parquet")
        number += 1
        yield from chunk


def _writer(folder: Path) -> Callable[[DataFrame, int], None]:
    # Through files and not by collect(): the driver's JVM need not hold the output.
    def write(output: DataFrame, batch: int) -> None:
        output.write.mode("overwrite").parquet(str(folder / f"batch-{batch}"))

    return write


def _collected(folder: Path) -> ReplayResult:
    parts = [pq.read_table(file) for file in sorted(folder.rglob("*.parquet"))]
    return ordered(pa.concat_tables(parts)) if parts else ReplayResult()
