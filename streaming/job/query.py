"""The live query: Kafka to Kafka, for ever."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from streaming.contract.topics import Topics
from streaming.job.operator import Input, decide
from streaming.job.settings import JobSettings
from streaming.job.sources import kafka_policies, kafka_requests, kafka_usage
from streaming.job.transforms import kafka_records, placed_usage, routed_policies, routed_requests
from streaming.laws import LAWS
from streaming.laws.records import StepContext

LAYOUT = 1
"""Version of what a checkpoint holds. Raise it, with a line in the changelog, when sources, subscribed
topics, grouping keys or the set of laws change; the new one is filled by reading the topics from their
start."""
QUERY_NAME = "weir"
EVENTS, DECISIONS = "events", "decisions"
"""Names of the metrics that a batch reports; their columns are in `observed_events`, `observed_decisions`."""


def checkpoint_path(settings: JobSettings) -> str:
    """Where this layout keeps its checkpoint.

    What Spark would silently take from an old checkpoint instead of the settings is part of the path.
    """
    base = settings.checkpoint_dir.rstrip("/")
    return f"{base}/v{LAYOUT}-shards{settings.shards}-partitions{settings.shuffle_partitions}"


def start_query(
    spark: SparkSession, settings: JobSettings, *, bootstrap: str, topics: Topics
) -> StreamingQuery:
    """Start deciding; the query runs until it is stopped or fails.

    Args:
        spark: session of `session.build_session`.
        settings: the section `job:`.
        bootstrap: `HOST:PORT` list of the cluster with Weir's topics.
        topics: their names; they exist.
    """
    requests = routed_requests(kafka_requests(spark, settings, bootstrap, topics), settings.shards)
    policies = routed_policies(kafka_policies(spark, settings, bootstrap, topics), settings.shards)
    usage = placed_usage(kafka_usage(spark, settings, bootstrap, topics), topics.usage, settings.shards)
    # By origin: schemas.EVENT, POLICY, USAGE, TICK.
    names = (topics.requests, topics.policies, topics.usage, topics.usage)
    given = Input(context=StepContext(fail_fast=settings.fail_fast), names=names)
    events = requests.unionByName(usage).transform(observed_events)
    output = decide(events.unionByName(policies), given)
    writer = (
        kafka_records(output.transform(observed_decisions), topics)
        .writeStream.format("kafka")
        .queryName(QUERY_NAME)
        .outputMode("update")
        .option("checkpointLocation", checkpoint_path(settings))
        .option("kafka.bootstrap.servers", bootstrap)
        .options(**settings.kafka_options)
    )
    if settings.trigger_interval_ms:
        writer = writer.trigger(processingTime=f"{settings.trigger_interval_ms} milliseconds")
    return writer.start()


def observed_events(records: DataFrame) -> DataFrame:
    """Count a batch's events per law, one column each."""
    return records.observe(EVENTS, *(F.count_if(F.col("law") == law).alias(law) for law in LAWS))


def observed_decisions(output: DataFrame) -> DataFrame:
    """Count a batch's decisions and dead letters, and find the oldest decision's age at the batch's start."""
    is_decision = F.col("sink") == "decisions"
    age_ms = F.unix_millis(F.current_timestamp()) - F.col("ts")
    return output.observe(
        DECISIONS,
        F.count_if(is_decision).alias("decisions"),
        F.count_if(~is_decision).alias("dead_letters"),
        F.max(F.when(is_decision, age_ms)).alias("age_ms"),
    )
