"""DataFrame to DataFrame: from Kafka records to the operator's rows."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.columns.packed import CONTENT_TYPE, HEADER
from streaming.columns.sent import SENT_HEADER, STAMP_BYTES
from streaming.contract.events import ANONYMOUS
from streaming.job import schemas
from streaming.job.grouping_keys import candidate_key, grouping_keys_of
from streaming.job.routing import live_router
from streaming.laws.registry import LAWS, NUMBERS


def routed_requests(kafka: DataFrame, shards: int, tasks: int) -> DataFrame:
    """Records of `weir.requests`, each with its law and shard; where there are several shards, of one that is
    not packed its routing key.

    Only built-in functions: the value is parsed once, in Python, by the contract's own parser.

    Args:
        kafka: columns of Spark's Kafka source.
        shards: shards per law.
        tasks: of the stateful stage.
    """
    numbers = grouping_keys_of(shards, tasks)[LAWS.on_requests.name]
    place = F.lit(numbers[0]).alias("grouping_key")
    if shards > 1:
        # A null is no reason to leave it out: most records have no header.
        alone = ~F.coalesce(_is_packed(), F.lit(False))
        place = F.when(alone, _routing_key()).alias("routing_key")
    return kafka.select(place, *_record_columns(schemas.EVENT, schemas.PACKED_EVENT))


def routed(
    requests: DataFrame, usage: DataFrame, policies: DataFrame, names: tuple[str, ...], shards: int,
    tasks: int, *, max_ahead_ms: int,
) -> DataFrame:  # fmt: skip
    """All records where they belong, in Python: requests by their routing key, reports of many groups and
    packed records cut up where they are of several shards, and policies to the laws that ask for them.

    Args:
        requests: what `routed_requests` gave. Where there is one shard nothing is left to do for them.
        usage, policies: columns of Spark's Kafka source.
        names: topic of each origin.
        shards: shards per law.
        tasks: of the stateful stage.
        max_ahead_ms: how far an event may lie after its record's timestamp.
    """
    nowhere = F.lit(None).cast("binary").alias("routing_key")
    others = usage.select(nowhere, *_record_columns(schemas.USAGE, schemas.PACKED_USAGE)).unionByName(
        policies.select(nowhere, *_record_columns(schemas.POLICY))
    )
    router = live_router(names, shards, tasks, max_ahead_ms=max_ahead_ms)
    if shards > 1:
        return requests.unionByName(others).mapInArrow(router, schemas.ROUTED)
    return requests.unionByName(others.mapInArrow(router, schemas.ROUTED))


def also_for_candidates(records: DataFrame, candidates: int) -> DataFrame:
    """Routed records, each once more for every candidate, whatever shard it is for."""
    own, law = F.col("grouping_key"), F.pmod("grouping_key", F.lit(NUMBERS))
    keys = [(law + F.lit(candidate_key(number))).cast("int") for number in range(candidates)]
    return records.select(F.explode(F.array(own, *keys)).alias("grouping_key"), *records.columns[1:])


def _routing_key() -> Column:
    """Quota entity that a request belongs to; a record that names none belongs to nobody's default."""
    text = F.col("value").cast("string")
    key = F.when(F.length("key") > 0, F.col("key"))
    subject = F.get_json_object(text, "$.subject")
    user = F.concat(F.lit("user="), F.get_json_object(text, "$.user"))
    nobody = F.lit(f"user={ANONYMOUS}")
    stamped = F.when(F.length(subject) > 0, subject)
    return F.coalesce(key, F.coalesce(stamped, user, nobody).cast("binary"))


def _record_columns(origin: int, packed: int | None = None) -> tuple[Column, ...]:
    """Columns of RECORD_COLUMNS after the grouping key; `packed` is the origin of packed records."""
    return (
        (F.lit(origin) if packed is None else F.when(_is_packed(), packed).otherwise(origin)).alias("origin"),
        F.col("partition"),
        F.col("offset"),
        F.unix_millis("timestamp").alias("ts"),
        F.get(F.filter("headers", _says_sent), 0)["value"].alias("sent"),
        # A tombstone is no event: as empty bytes it becomes a dead letter like any other text.
        F.coalesce(F.col("value"), F.lit(b"")).alias("value"),
    )


def _says_sent(header: Column) -> Column:
    """Whether it is what a producer of ours writes; long ones of others may fit into no column of a batch."""
    return (header["key"] == SENT_HEADER) & (F.length(header["value"]) == STAMP_BYTES)


def _is_packed() -> Column:
    """Whether a record's headers say that it is packed, as columns.packed.is_packed; null: it has none."""
    says = F.struct(F.lit(HEADER).alias("key"), F.lit(CONTENT_TYPE.encode()).alias("value"))
    return F.array_contains("headers", says)
