"""A start that begins anew beside another checkpoint says what that means."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming.contract.topics import Cluster
from streaming.job.process.new_checkpoint import query_of, told_of_new, warn_of_new

OLD, NEW = "v7-shards1-partitions1-topicsa", "v7-shards2-partitions2-topicsb"


def test_what_is_there_and_what_differs_is_named() -> None:
    """By the names of the settings; and what it costs, by where requests are read from."""
    told = told_of_new(f"/c/{NEW}", {OLD: 41}, 1200, from_start=True)
    assert told.startswith(
        f"BEGINS ANEW: /c has no {NEW}, but {OLD} (batch 41: job.shards 1, now 2, job.shuffle_partitions 1,"
        " now 2, topics that are read a, now b). Nothing of that is taken over. All 1,200 records of the"
        " topics are read again, about 1 s on two cores and longer where they are packed, what"
    )
    assert "Meanwhile new events wait and proxies go on as without a job" in told
    told = told_of_new(f"/c/{NEW}", {OLD: 41}, None, from_start=False)
    assert "are read again" not in told
    assert "job.starting_offsets is latest" in told


def test_only_a_checkpoint_without_a_batch_begins_anew(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Silent where there is nothing else, and where it goes on; a cluster that is away stops nothing."""

    def said() -> list[str]:
        caplog.clear()
        warn_of_new(
            spark, str(tmp_path / NEW), cluster=Cluster("127.0.0.1:1", client={"log_level": "0"}),
            topics=["weir.requests"], from_start=True,
        )  # fmt: skip
        return [record.getMessage() for record in caplog.records]

    assert said() == []
    (tmp_path / NEW / "offsets").mkdir(parents=True)
    (tmp_path / OLD / "commits").mkdir(parents=True)
    assert said() == []
    for batch in (9, 10):
        (tmp_path / OLD / "commits" / str(batch)).touch()
    (line,) = said()
    assert f"{OLD} (batch 10:" in line
    (tmp_path / NEW / "commits").mkdir()
    (tmp_path / NEW / "commits" / "0").touch()
    assert said() == []


def test_the_id_of_a_checkpoints_queries_is_read_beforehand(spark: SparkSession, tmp_path: Path) -> None:
    """The one that each of them then has; none where there is none yet, or none to be read."""
    checkpoint = (tmp_path / NEW).as_uri()
    assert query_of(spark, checkpoint) == ""
    rates = spark.readStream.format("rate").load().writeStream.format("noop")
    query = rates.option("checkpointLocation", checkpoint).start()
    try:
        assert query_of(spark, checkpoint) == query.id != ""
    finally:
        query.stop()
    (tmp_path / NEW / "metadata").write_text("{")
    assert query_of(spark, checkpoint) == ""
