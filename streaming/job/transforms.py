"""DataFrame to DataFrame: from Kafka records to the operator's rows."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.contract.events import ANONYMOUS
from streaming.job import schemas
from streaming.job.grouping_keys import grouping_keys_of
from streaming.job.routing import live_router
from streaming.laws.registry import LAWS


def routed_requests(kafka: DataFrame, shards: int, tasks: int) -> DataFrame:
    """Records of `weir.requests`, each with its law and shard.

    Only built-in functions: the value is parsed once, in Python, by the contract's own parser.

    Args:
        kafka: columns of Spark's Kafka source.
        shards: shards per law.
        tasks: of the stateful stage.
    """
    numbers = F.array(*map(F.lit, grouping_keys_of(shards, tasks).numbers[LAWS.on_requests.name]))
    place = F.element_at(numbers, _shard(_routing_key(), shards) + 1)
    return kafka.select(place.alias("grouping_key"), *_record_columns(schemas.EVENT))


def routed(
    usage: DataFrame, policies: DataFrame, topic: str, shards: int, tasks: int, *, max_ahead_ms: int
) -> DataFrame:
    """Records of `weir.usage` and `weir.policies` where they belong, in Python: reports of many groups are
    cut up by group, and policies go to the laws that ask for them.

    Args:
        usage, policies: columns of Spark's Kafka source.
        topic: name of the first, for the ids of events that have none.
        shards: shards per law.
        tasks: of the stateful stage.
        max_ahead_ms: how far an event may lie after its record's timestamp.
    """
    records = usage.select(*_record_columns(schemas.USAGE)).unionByName(
        policies.select(*_record_columns(schemas.POLICY))
    )
    router = live_router(topic, shards, tasks, max_ahead_ms=max_ahead_ms)
    return records.mapInArrow(router, schemas.ROUTED)


def _routing_key() -> Column:
    """Quota entity that a request belongs to; a record that names none belongs to nobody's default."""
    text = F.col("value").cast("string")
    key = F.when(F.length("key") > 0, F.col("key"))
    subject = F.get_json_object(text, "$.subject")
    user = F.concat(F.lit("user="), F.get_json_object(text, "$.user"))
    nobody = F.lit(f"user={ANONYMOUS}")
    stamped = F.when(F.length(subject) > 0, subject)
    return F.coalesce(key, F.coalesce(stamped, user, nobody).cast("binary"))


def _shard(routing_key: Column, shards: int) -> Column:
    # The same sum as streaming.laws.routing.shard_of.
    return F.pmod(F.crc32(routing_key), F.lit(shards)).cast("int")


def _record_columns(origin: int) -> tuple[Column, ...]:
    return (
        F.lit(origin).alias("origin"),
        F.col("partition"),
        F.col("offset"),
        F.unix_millis("timestamp").alias("ts"),
        # A tombstone is no event: as empty bytes it becomes a dead letter like any other text.
        F.coalesce(F.col("value"), F.lit(b"")).alias("value"),
    )
