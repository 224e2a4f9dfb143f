"""The live query: Kafka to Kafka, for ever."""

from pyspark.accumulators import Accumulator
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.contract.topics import Topics
from streaming.job.blobs.places import stores_of
from streaming.job.checkpoint_name import checkpoint_path
from streaming.job.operator import Input, decide
from streaming.job.output_columns import NEVER, PACK_MIN, PackRule
from streaming.job.sources import kafka_policies, kafka_requests, kafka_usage
from streaming.job.spark.counts import BatchCounts
from streaming.job.spark.settings import JobSettings, Profile
from streaming.job.transforms import also_for_candidates, routed, routed_requests
from streaming.laws.law import CandidatePolicies, StepContext

QUERY_NAME = "weir"
_SENDS = {
    Profile.LATENCY: {},
    # A task flushes at its end, so waiting for full requests delays nothing; they cost the broker less.
    Profile.THROUGHPUT: {
        "kafka.linger.ms": "20",
        "kafka.batch.size": str(256 * 2**10),
        "kafka.buffer.memory": str(64 * 2**20),
    },
}


def sources_of(topics: Topics) -> tuple[str, ...]:
    """The topics that the query reads."""
    return topics.requests, topics.usage, topics.policies


def names_of(topics: Topics) -> tuple[str, ...]:
    """The topic of each origin, from schemas.EVENT to CUT_USAGE."""
    requests, policies, usage = topics.requests, topics.policies, topics.usage
    return requests, policies, usage, usage, requests, usage, requests, usage


def start_query(
    spark: SparkSession,
    settings: JobSettings,
    *,
    bootstrap: str,
    topics: Topics,
    partitions: int | None = None,
    counts: Accumulator[BatchCounts] | None = None,
    checkpoint: str | None = None,
    candidates: tuple[CandidatePolicies, ...] = (),
) -> StreamingQuery:
    """Start deciding; the query runs until it is stopped or fails.

    Args:
        spark: session of `session.build_session`.
        settings: the section `job:`.
        bootstrap: `HOST:PORT` list of the cluster with Weir's topics.
        topics: their names; they exist.
        partitions: of the topic of decisions; None: not known, so that none leaves packed.
        counts: counts what is read and written.
        checkpoint: where its checkpoint is; None: `checkpoint_path` of the settings.
        candidates: policies that are tried beside those in force.
    """
    checkpoint = checkpoint or checkpoint_path(settings)
    shards, tasks = settings.shard_count, settings.shuffle_partitions
    requests = routed_requests(kafka_requests(spark, settings, bootstrap, topics), shards, tasks)
    usage = kafka_usage(spark, settings, bootstrap, topics)
    policies = kafka_policies(spark, settings, bootstrap, topics)
    ahead = settings.max_ahead_ms
    names = names_of(topics)
    records = routed(requests, usage, policies, names, shards, tasks, max_ahead_ms=ahead)
    if candidates:
        records = also_for_candidates(records, len(candidates))
    context = StepContext(fail_fast=settings.fail_fast, max_ahead_ms=ahead)
    batches_kept = int(spark.conf.get("spark.sql.streaming.minBatchesToRetain") or 0)
    blob_stores = stores_of(checkpoint, batches_kept, settings, spark)
    least = PACK_MIN if settings.pack_decisions else NEVER
    packing = None if partitions is None else PackRule(least=least, partitions=partitions)
    given = Input(
        context=context, shards=shards, tasks=tasks, names=names, topics=topics, counts=counts,
        blob_stores=blob_stores, packing=packing, candidates=candidates,
    )  # fmt: skip
    if tasks == 1:
        # It reads the sources itself: a batch is then one stage of one task. A shuffle to a single partition
        # would cost a second stage: files, their bookkeeping and another task.
        records = records.coalesce(1)
    writer = (
        decide(records, given)
        .writeStream.format("kafka")
        .queryName(QUERY_NAME)
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
        .option("kafka.bootstrap.servers", bootstrap)
        .options(**_SENDS[settings.profile] | settings.kafka_options)
    )
    return writer.start()
