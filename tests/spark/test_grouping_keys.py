"""Shards are spread evenly over the tasks, as Spark itself puts them."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming.job.grouping_keys import grouping_keys_of, law_of_key, task_of
from streaming.laws.registry import LAWS, NUMBERS


@pytest.mark.parametrize(("shards", "tasks"), [(4, 1), (4, 2), (8, 3), (3, 8), (64, 16)])
def test_every_task_has_its_shards(shards: int, tasks: int) -> None:
    """Shard s of every law is in task s modulo tasks; numbers are unique and tell their law."""
    found = grouping_keys_of(shards, tasks)
    assert len({place for own in found.values() for place in own}) == len(LAWS.by_name) * shards
    for number, law in enumerate(LAWS.by_name):
        own = found[law]
        assert [task_of(place, tasks) for place in own] == [shard % tasks for shard in range(shards)]
        assert {place % NUMBERS for place in own} == {number}
        told = [law_of_key(place, shards, tasks) for place in own]
        assert told == [(None, law, shard) for shard in range(shards)]


def test_spark_puts_them_there(spark: SparkSession) -> None:
    """The task of every number is the partition that Spark's shuffle by that number gives it."""
    tasks, keys = 3, [*(key for own in grouping_keys_of(16, 3).values() for key in own), 2**31 - 1]
    frame = spark.createDataFrame([(key,) for key in keys], "grouping_key int")
    spread = frame.repartition(tasks, "grouping_key")
    found = spread.select("grouping_key", F.spark_partition_id().alias("task")).collect()
    assert {row.grouping_key: row.task for row in found} == {key: task_of(key, tasks) for key in keys}
