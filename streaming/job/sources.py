"""Where records come from: Kafka for the live job, staged files for a replay."""

from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from streaming.contract.topics import Topics
from streaming.job import schemas
from streaming.job.spark.settings import JobSettings, Profile

_FETCH_WAIT_MS: Final = 20
"""How long a broker may hold an empty fetch; it delays the next batch."""
_FETCHES = {
    Profile.LATENCY: {},
    # Kafka's defaults suit readers of many partitions; here one partition may hold all.
    Profile.THROUGHPUT: {
        "kafka.max.partition.fetch.bytes": str(8 * 2**20),
        "kafka.max.poll.records": "20000",
        "kafka.receive.buffer.bytes": str(2**20),
    },
}


def kafka_requests(spark: SparkSession, settings: JobSettings, bootstrap: str, topics: Topics) -> DataFrame:
    """Stream of `weir.requests`, at most `max_events_per_batch` records a batch."""
    reader = _kafka(spark, settings, bootstrap, topics.requests)
    return _capped(reader, settings, settings.max_events_per_batch)


def kafka_usage(spark: SparkSession, settings: JobSettings, bootstrap: str, topics: Topics) -> DataFrame:
    """Stream of `weir.usage`, at most `max_usage_per_batch` records a batch: Spark cannot count bytes.

    A source of its own: its laws and those of the requests share nothing, and neither may starve the other.
    """
    reader = _kafka(spark, settings, bootstrap, topics.usage)
    return _capped(reader, settings, settings.max_usage_per_batch)


def kafka_policies(spark: SparkSession, settings: JobSettings, bootstrap: str, topics: Topics) -> DataFrame:
    """Stream of `weir.policies`, from its beginning and without a cap.

    A source of its own: sharing one cap with the requests, a job that catches up would decide old requests
    before it has read the policies that were in force. This way a batch holds every policy published
    before it was planned.
    """
    reader = _kafka(spark, settings, bootstrap, topics.policies).option("startingOffsets", "earliest")
    # Policies are written in transactions (kafka_io/policy_turn.py); those that were ended do not count.
    return reader.option("kafka.isolation.level", "read_committed").load()


def staged_lines(spark: SparkSession, folder: Path) -> DataFrame:
    """Stream of a replay's lines from Parquet files, all in one batch: no cap on files."""
    return spark.readStream.schema(schemas.STAGED).parquet(str(folder))


def _capped(reader: DataStreamReader, settings: JobSettings, records: int) -> DataFrame:
    if settings.profile is Profile.THROUGHPUT:
        # As many source tasks as there are for the state, however few partitions the topic has.
        reader = reader.option("minPartitions", settings.shuffle_partitions)
    return (
        reader.option("startingOffsets", settings.starting_offsets)
        .option("maxOffsetsPerTrigger", records)
        .load()
    )


def _kafka(spark: SparkSession, settings: JobSettings, bootstrap: str, topic: str) -> DataStreamReader:
    options = _FETCHES[settings.profile] | {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        # They say what is packed; a record without any costs nothing.
        "includeHeaders": "true",
        # Records that retention removed before they were read are lost either way; the quotas of what
        # comes after them must still be kept.
        "failOnDataLoss": "false",
        # A topic that is gone must not come back with the broker's settings because we read it.
        "kafka.allow.auto.create.topics": "false",
        # An executor's consumer prefetches: without new data its next poll would sit out the default 500 ms.
        "kafka.fetch.max.wait.ms": str(_FETCH_WAIT_MS),
    }
    return spark.readStream.format("kafka").options(**(options | settings.kafka_options))
