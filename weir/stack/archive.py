"""`python -m weir.stack.archive`, part of `make setup`: archives of the classes that Kafka and the job load.

Both spend most of their start on reading and checking the same thousands of classes. A broker and a job are
run once, on a few events; what they load is archived as they end.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery

from streaming.contract.errors import WeirError
from streaming.contract.printable import printable_lines
from streaming.contract.topics import Cluster
from streaming.job.query import start_query
from streaming.job.spark.class_archive import archiving, forget, keep
from streaming.job.spark.session import Session, build_session, reason_of, stop_session
from streaming.job.spark.settings import JobSettings
from streaming.kafka_io.writer import connected
from weir.jars.folders import jars_dir
from weir.stack.kafka import LocalKafka
from weir.stack.topics import ensure_topics

_END_LIMIT_S: Final = 120.0
"""For a JVM to end: it writes its archive then, which takes as long as a start."""
_BATCHES_LIMIT_S: Final = 120.0
_POLL_S: Final = 0.1
_QUICK: Final = "-XX:TieredStopAtLevel=1"
"""Compiled code is not archived, so the first compiler will do."""
_EVENTS: Final = (
    b'{"type":"request","id":"1","ts":0,"subject":"user=u","items":[{"name":"t","mutations":1}]}',
    b"not an event",
)


def main() -> int:
    """Write both archives; returns the exit status: 1 means that programs start as slowly as without."""
    folders = jars_dir("kafka"), jars_dir("spark")
    try:
        for jars in folders:
            forget(jars)
        _start_once(_run_job, options=tuple(archiving(folders[0])))
        missing = [str(jars) for jars in folders if not keep(jars)]
        if missing:
            raise WeirError(f"Java wrote none for {', '.join(missing)}")
        # Java ends at once on a file that was cut short, by a full disk for example.
        _start_once(_run_session)
    except WeirError as error:
        for jars in folders:
            forget(jars)
        print(printable_lines(f"archive: {error}"), file=sys.stderr)
        return 1
    return 0


def _start_once(then: Callable[[str, Path], None], options: tuple[str, ...] = ()) -> None:
    """A broker, and with its address and an empty folder whatever else is to be started."""
    with tempfile.TemporaryDirectory() as name:
        kafka = LocalKafka(Path(name) / "kafka", options=options)
        kafka.start()
        try:
            then(kafka.bootstrap, Path(name))
        finally:
            kafka.stop(_END_LIMIT_S)


def _run_session(bootstrap: str, folder: Path) -> None:
    """Spark alone."""
    os.environ["SPARK_SUBMIT_OPTS"] = _QUICK
    settings = JobSettings()
    stop_session(_session(settings, folder), settings.stop_timeout_s)


def _run_job(bootstrap: str, folder: Path) -> None:
    """The job's query, with its first batch and one with events, archived as it ends."""
    cluster = Cluster(bootstrap)
    ensure_topics(cluster)
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join((_QUICK, *archiving(jars_dir("spark"))))
    settings = JobSettings(checkpoint_dir=str(folder / "checkpoint"))
    session = _session(settings, folder)
    try:
        query = start_query(session.spark, settings, bootstrap=bootstrap, topics=cluster.topics)
        producer = connected(cluster.properties, {})
        for event in _EVENTS:
            producer.produce(cluster.topics.requests, event)
        producer.flush(_BATCHES_LIMIT_S)
        _wait(query, len(_EVENTS))
    finally:
        stop_session(session, _END_LIMIT_S)


def _session(settings: JobSettings, folder: Path) -> Session:
    return build_session(settings, jars=jars_dir("spark"), work_dir=folder, checkpoint=str(folder))


def _wait(query: StreamingQuery, events: int) -> None:
    """Until so many events were decided."""
    deadline = time.monotonic() + _BATCHES_LIMIT_S
    while sum(batch.numInputRows() for batch in query._jsq.recentProgress()) < events:
        if not query.isActive or time.monotonic() > deadline:
            raise WeirError(f"the job decided nothing: {reason_of(query.exception() or 'it is too slow')}")
        time.sleep(_POLL_S)


if __name__ == "__main__":
    sys.exit(main())
