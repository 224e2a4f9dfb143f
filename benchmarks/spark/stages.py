"""The job's query cut short after each stage: what a stage adds is the difference to the one before.

Every query reads the same requests from Kafka in the same batches and ends in Spark's `noop` sink. They are
built from the job's own parts, so that they change as the job does.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.load.events import POLICIES, T0, requests
from streaming.columns.records import Records
from streaming.contract.errors import WeirError
from streaming.contract.events import MAX_AHEAD_MS
from streaming.contract.topics import Topics
from streaming.job import schemas
from streaming.job.operator import Input, decide
from streaming.job.routing import live_router
from streaming.job.sources import kafka_requests
from streaming.job.spark.session import reason_of
from streaming.job.spark.settings import JobSettings
from streaming.job.transforms import routed_requests
from streaming.laws.law import StepContext
from streaming.laws.name_hashes import shard_of
from streaming.laws.registry import LAWS
from streaming.laws.shard import step
from streaming.state.body import decode, encode

_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What all queries read.

    Attributes:
        spark: the session.
        settings: of the job; its batch size holds here too.
        bootstrap: `HOST:PORT` of the cluster.
        topics: of which the requests are read.
        folder: for checkpoints.
    """

    spark: SparkSession
    settings: JobSettings
    bootstrap: str
    topics: Topics
    folder: Path

    def records(self) -> DataFrame:
        """The requests as Kafka has them."""
        return kafka_requests(self.spark, self.settings, self.bootstrap, self.topics)

    def rows(self) -> DataFrame:
        """The requests as the stateful operator takes them, with the shard that each belongs to."""
        shards, tasks = self.settings.shard_count, self.settings.shuffle_partitions
        requests = routed_requests(self.records(), shards, tasks)
        if shards == 1:
            return requests
        router = live_router((self.topics.requests,), shards, tasks, max_ahead_ms=MAX_AHEAD_MS)
        return requests.mapInArrow(router, schemas.ROUTED)

    def shuffled(self) -> DataFrame:
        """The same, each in the task that keeps its shard."""
        rows = self.rows()
        return rows.repartition(self.settings.shuffle_partitions, schemas.RECORD_COLUMNS[0])

    def decided(self) -> DataFrame:
        """Decisions as the stateful operator gives them."""
        given = Input(
            context=StepContext(fail_fast=True),
            shards=self.settings.shard_count,
            tasks=self.settings.shuffle_partitions,
            names=(self.topics.requests,),
        )
        return decide(self.rows(), given)


def stages(source: Source) -> dict[str, Callable[[], DataFrame]]:
    """What is measured, by name, each with all that the ones before it have."""
    return {"Kafka in": source.records, "routing key, shuffle": source.shuffled, "operator": source.decided}


def seconds_an_event(source: Source, name: str, make: Callable[[], DataFrame], limit_s: float) -> float:
    """Run one query over all there is; wall time per event of its batches after the first.

    Raises:
        WeirError: the query failed, or did not end in time.
    """
    query = (
        make()
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(source.folder / f"checkpoint-{name}"))
        .trigger(availableNow=True)
        .start()
    )
    finish(query, limit_s)
    batches = progress_of(query)
    # The first batch finds the JVM cold; where there is only one it has to do.
    warm = batches[1:] or batches
    return sum(took for took, _ in warm) / sum(count for _, count in warm)


def finish(query: StreamingQuery, limit_s: float) -> None:
    """Wait until a query has decided all there is.

    Raises:
        WeirError: it failed, or did not end in time.
    """
    deadline = time.monotonic() + limit_s
    while query.isActive:
        if time.monotonic() > deadline:
            query.stop()
            raise WeirError(f"a query took longer than {limit_s:.0f} s")
        time.sleep(_POLL_S)
    if query.exception() is not None:
        raise WeirError(f"a query failed: {reason_of(query.exception())}")


def idiom_seconds(
    decided: Callable[[DataFrame], DataFrame], spark: SparkSession, *, bootstrap: str, read: str, write: str,
    checkpoint: Path, limit_s: float, batch: int = 0,
) -> float:  # fmt: skip
    """Spark's own seconds for deciding what stands on a topic by an idiom.

    Args:
        decided: records to records of decisions (benchmarks.spark.idiom).
        spark: the session.
        bootstrap: `HOST:PORT` of the cluster.
        read, write: topics.
        checkpoint: folder of its own; started again on it, the query goes on.
        limit_s: for all of it.
        batch: records in one batch; 0: all there are.

    Raises:
        WeirError: the query failed, or did not end in time.
    """
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    source = source.option("subscribe", read).option("startingOffsets", "earliest")
    if batch:
        source = source.option("maxOffsetsPerTrigger", batch)
    writer = decided(source.load()).writeStream.format("kafka").outputMode("update")
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", write)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    finish(query, limit_s)
    return sum(seconds for seconds, _ in progress_of(query))


def progress_of(query: StreamingQuery) -> list[tuple[float, int]]:
    """Duration in s and events of every batch that had events."""
    found: list[tuple[float, int]] = []
    for report in query._jsq.recentProgress():
        fields = json.loads(report.json())
        if fields["numInputRows"]:
            found.append((fields["durationMs"]["triggerExecution"] / 1000, fields["numInputRows"]))
    return found


def step_alone(count: int, principals: int, shards: int) -> tuple[float, float]:
    """Processor time per event of the law's step in this process, without Spark: (all of it, its state).

    Args:
        count: events of a batch; a batch before it fills the tables.
        principals: of how many.
        shards: among which they are spread, as in the job.
    """
    spent = {"step": 0.0, "state": 0.0}
    context = StepContext(initial=POLICIES, processed_ts=T0, fail_fast=True)
    bodies: list[bytes | None] = [None] * shards
    for name in ("first", "second"):
        spent = {"step": 0.0, "state": 0.0}
        for shard, records in enumerate(_records_by_shard(name, count, principals, shards)):
            begun = time.process_time()
            bodies[shard], _ = step(LAWS.on_requests.name, shard, bodies[shard], records, context)
            spent["step"] += time.process_time() - begun
            begun = time.process_time()
            encode(decode(bodies[shard] or b""))
            spent["state"] += time.process_time() - begun
    return spent["step"] / count, spent["state"] / count


def _records_by_shard(name: str, count: int, principals: int, shards: int) -> list[Records]:
    values: list[list[bytes]] = [[] for _ in range(shards)]
    for key, value in requests(count, principals, name=name):
        values[shard_of(key.decode(), shards)].append(value)
    return [
        Records(
            topic=[Topics().requests] * len(own), partition=[0] * len(own), offset=list(range(len(own))),
            ts=[T0 + number // 10 for number in range(len(own))], value=own, broadcast=[False] * len(own),
        )
        for own in values
    ]  # fmt: skip
