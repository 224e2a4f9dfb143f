"""What a start on a checkpoint means: it goes on, or it begins anew beside one that is there, at a cost."""

import logging
import math
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any, Final

import orjson
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster
from streaming.job.checkpoint_name import NAME
from streaming.job.spark.session import reason_of
from streaming.kafka_io.reader import Reader, Span

_LOG = logging.getLogger("weir.job")
RECORDS_S: Final = 169_000
"""Single requests that a job in the profile throughput catches up with in a second (docs/operate.md)."""
_LIMIT_S: Final = 5.0
_PARTS: Final = ("layout of this Weir", "job.shards", "job.shuffle_partitions", "topics that are read")
"""What the parts of a checkpoint's name stand for."""


def told_of_new(path: str, others: Mapping[str, int], records: int | None, *, from_start: bool) -> str:
    """For people: what is there instead of a checkpoint, why it is not taken, what that costs.

    Args:
        path: where it will be.
        others: names of those that are there, each with the number of its last batch.
        records: on the topics that are read; None: not known.
        from_start: whether they are read from their start.
    """
    base, _, name = path.rpartition("/")
    there = "; ".join(f"{old} (batch {batch}: {_why(old, name)})" for old, batch in others.items())
    cost = "job.starting_offsets is latest, so what requests have used up so far is forgotten"
    if from_start:
        again = "All records of the topics are read again"
        if records is not None:
            again = (
                f"All {records:,} records of the topics are read again, about"
                f" {math.ceil(records / RECORDS_S):,} s on two cores and longer where they are packed"
            )
        cost = (
            f"{again}, what they led to is written a second time but for shares and limits."
            " Meanwhile new events wait and proxies go on as without a job: they decide mutations by"
            " themselves, those of strict quotas by proxy.on_late_decision, and of a share that ends"
            " without a new one the part proxy.expired_share stays"
        )
    return (
        f"BEGINS ANEW: {base} has no {name}, but {there}. Nothing of that is taken over. "
        f"{cost}. To go on with the other one, stop this job and set back what is named, or Weir itself"
    )


def warn_of_new(
    spark: SparkSession,
    checkpoint: str,
    *,
    cluster: Cluster,
    topics: Iterable[str],
    from_start: bool,
) -> None:
    """Say loudly if this start makes a checkpoint beside another; what cannot be found out stops nothing.

    Args:
        spark: the session, whose file systems are asked.
        checkpoint: folder or URI.
        cluster: that holds the topics.
        topics: names of those that are read.
        from_start: whether requests are read from their start.
    """
    try:
        others = _others(spark, checkpoint)
    except Py4JError as error:
        _LOG.warning("it cannot be seen what other checkpoints there are: %s", reason_of(error))
        return
    if others:
        records = _records(cluster, topics)
        _LOG.warning("%s", told_of_new(checkpoint, others, records, from_start=from_start))


def first_offsets(cluster: Cluster) -> dict[str, dict[str, int]]:
    """The first record that is there of the topics of events, by topic and partition; none: not known."""
    spans = _spans(cluster, (cluster.topics.requests, cluster.topics.usage))
    return {topic: {str(span.partition): span.start for span in each} for topic, each in spans.items()}


def query_of(spark: SparkSession, checkpoint: str) -> str:
    """The id that Spark keeps in a checkpoint for all queries on it; empty: none yet, or unreadable."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(checkpoint, "metadata")
    try:
        files = path.getFileSystem(spark._jsc.hadoopConfiguration())
        if not files.exists(path):
            return ""
        with closing(files.open(path)) as stream:
            return str(orjson.loads(stream.readAllBytes())["id"])
    # What is wrong with it Spark says, as the query starts.
    except (Py4JError, ValueError, LookupError, TypeError):
        return ""


def _why(other: str, name: str) -> str:
    theirs, ours = (NAME.fullmatch(each) for each in (other, name))
    if theirs is None or ours is None:
        return "of another kind"
    pairs = zip(_PARTS, theirs.groups(), ours.groups(), strict=True)
    return ", ".join(f"{part} {then}, now {now}" for part, then, now in pairs if then != now)


def _others(spark: SparkSession, checkpoint: str) -> dict[str, int]:
    """Checkpoints beside one that has no batch yet, with their last batches; none if it has one."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(checkpoint)
    files = path.getFileSystem(spark._jsc.hadoopConfiguration())
    if _last_batch(files, jvm, path) is not None or not files.exists(path.getParent()):
        return {}
    names = [status.getPath().getName() for status in files.listStatus(path.getParent())]
    found = {
        name: _last_batch(files, jvm, jvm.org.apache.hadoop.fs.Path(path.getParent(), name))
        for name in sorted(names)
        if NAME.fullmatch(name)
    }
    return {name: batch for name, batch in found.items() if batch is not None}


def _last_batch(files: Any, jvm: Any, checkpoint: Any) -> int | None:
    commits = jvm.org.apache.hadoop.fs.Path(checkpoint, "commits")
    if not files.exists(commits):
        return None
    names = [status.getPath().getName() for status in files.listStatus(commits)]
    return max((int(name) for name in names if name.isdigit()), default=None)


def _records(cluster: Cluster, topics: Iterable[str]) -> int | None:
    spans = _spans(cluster, topics)
    return sum(span.end - span.start for each in spans.values() for span in each) if spans else None


def _spans(cluster: Cluster, topics: Iterable[str]) -> dict[str, list[Span]]:
    """What each topic holds; none: the cluster does not say in time, for which no start waits long."""
    with closing(Reader(cluster.bootstrap, cluster.client)) as reader:
        try:
            return {topic: reader.spans(topic, limit_s=_LIMIT_S) for topic in topics}
        except WeirError:
            return {}
