"""What the job takes of a Kafka record."""

from datetime import UTC, datetime

from pyspark.sql import SparkSession

from streaming.columns.sent import SENT_HEADER, stamps
from streaming.job.transforms import routed_requests

KAFKA = (
    "key binary, value binary, partition int, offset bigint, timestamp timestamp,"
    " headers array<struct<key:string,value:binary>>"
)


def test_a_header_that_no_producer_of_ours_wrote_is_none(spark: SparkSession) -> None:
    """2,200 records with one of 1 MB each made a column of more than 2 GiB, which ended the job for good."""
    stamp, now = stamps(b"producer")(), datetime.now(UTC)
    said = [[(SENT_HEADER, value)] for value in (stamp, stamp * 2, b"", None)] + [[("other", stamp)], None]
    rows = [(b"", b"{}", 0, offset, now, headers) for offset, headers in enumerate(said)]
    found = routed_requests(spark.createDataFrame(rows, KAFKA), 1, 1).collect()
    assert [row.sent and bytes(row.sent) for row in found] == [stamp, *[None] * 5]
