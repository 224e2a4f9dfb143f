"""The life of the job's process: take the checkpoint, start Spark and the query, watch, stop in time."""

import hashlib
import logging
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster
from streaming.job.checkpoint_name import checkpoint_path
from streaming.job.process.lease import GONE_S, SILENCE_S, Lease
from streaming.job.process.new_checkpoint import first_offsets, query_of, warn_of_new
from streaming.job.process.other_job import other_job, said_of
from streaming.job.process.progress import JobMetrics, ProgressReader
from streaming.job.process.stop import Stop, Stopped, stop_signals
from streaming.job.process.ticker import HostClock, Ticker
from streaming.job.process.whole_batches import go_back
from streaming.job.query import sources_of, start_query
from streaming.job.spark.counts import BatchCounts, CountsParam
from streaming.job.spark.session import (
    Session,
    build_session,
    log_warnings_only,
    reason_of,
    stop_session,
)
from streaming.job.spark.settings import JobSettings, local_folder
from streaming.kafka_io.threads import Threads
from streaming.kafka_io.topic_watch import TopicWatch
from streaming.kafka_io.weir_topics import TopicsSeen, admin_of, asked_until, look
from streaming.laws.law import CandidatePolicies
from streaming.metrics_server import serve_metrics

_LOG = logging.getLogger("weir.job")
TOPICS_LIMIT_S: Final = 120.0
"""For the cluster and Weir's topics to be there at the start; whoever looks after the job starts it again."""
_POLL_S = 1.0
_READY_POLL_S = 0.1
_PROMPT_S: Final = 3.0
"""A cluster that is there has answered by then, or refused; for one that is away Spark need not wait."""
_SAID_S, _SAID_MAX_S = 30.0, 900.0
"""How often a job that is not ready says what it waits for, and for how long: who starts it again sees that
it lives. Spark's clients of Kafka give up sooner, so what takes longer hangs."""
# What Spark says while a query has looked at its sources and found nothing new.
_IDLE = "Waiting for data to arrive"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """Where one job runs.

    Attributes:
        cluster: with Weir's topics.
        prepare: makes those that are missing, and waits for them and for the cluster within its limit.
        jars: folder with the jars of weir/jars/poms/spark.
        work_dir: for logs; created.
        metrics: host and port of /metrics, port 0 = any free one; None: not served.
        announce: gets `pid`, `jvm_pid` and `metrics` when the query works.
        candidates: policies that are tried beside those in force.
    """

    cluster: Cluster
    prepare: Callable[[], object]
    jars: Path
    work_dir: Path
    metrics: tuple[str, int] | None = None
    announce: Callable[[Mapping[str, object]], None] = lambda _note: None
    candidates: tuple[CandidatePolicies, ...] = ()


class _Patience:
    """Says now and then what is waited for."""

    def __init__(self) -> None:
        self._said_s = time.monotonic()
        self._until_s = self._said_s + _SAID_MAX_S

    def say(self, what: Callable[[], str]) -> None:
        """Say it, if it is time."""
        if self._said_s + _SAID_S <= (now_s := time.monotonic()) < self._until_s:
            self._said_s = now_s
            _LOG.info("not ready yet; %s", what())


def serve(settings: JobSettings, options: JobOptions) -> None:
    """Run the job until SIGTERM or SIGINT.

    Raises:
        WeirError: it could not start, or the query failed, which names Spark's log; or a topic that it reads
            was deleted and made again: started again it begins a checkpoint for that one.
    """
    stop = Stop()
    options.work_dir.mkdir(parents=True, exist_ok=True)
    with ExitStack() as started:
        topics = Threads().submit(_topics, options)
        with suppress(TimeoutError):
            topics.result(_PROMPT_S)
        # Before the lease, which is for who uses the checkpoint: this may take as long as all that follows.
        # As nothing is taken yet, a signal ends it at once.
        session = build_session(
            settings, jars=options.jars, work_dir=options.work_dir, checkpoint=settings.checkpoint_dir
        )
        started.callback(stop_session, session, settings.stop_timeout_s)
        # pyspark puts its own handler of SIGINT in place when it starts.
        with _signals(stop):
            patience = _Patience()
            with suppress(Stopped):
                while not topics.done():
                    stop.sleep(_READY_POLL_S)
                    patience.say(lambda: f"{options.cluster.bootstrap} does not tell of Weir's topics")
                _decide(settings, options, session, topics.result(), started, stop)


def _decide(
    settings: JobSettings,
    options: JobOptions,
    session: Session,
    seen: TopicsSeen,
    started: ExitStack,
    stop: Stop,
) -> None:
    """Run the query until a stop; `started` ends the session, before others may have the checkpoint."""
    ids = {name: seen.ids[name] for name in sources_of(options.cluster.topics)}
    # A short name for the topics that are read: those that come after them get another checkpoint.
    sources = hashlib.sha256(" ".join(ids.values()).encode()).hexdigest()[:8]
    checkpoint = checkpoint_path(settings, sources)
    taken = _taken(checkpoint, session.jvm_pid, stop)
    with taken as held, ExitStack() as ended, started.pop_all(), _living(session, held):
        metrics = JobMetrics(held.restarts if held is not None else 0)
        address = options.metrics and serve_metrics(metrics.registry, *options.metrics)
        counts = session.spark.sparkContext.accumulator(BatchCounts(), CountsParam())
        _alone(options.cluster, query_of(session.spark, checkpoint), stop.sleep)
        warn_of_new(
            session.spark,
            checkpoint,
            cluster=options.cluster,
            topics=ids,
            from_start=settings.starting_offsets == "earliest",
        )
        # More partitions of decisions count from the next start on.
        partitions = seen.partitions[options.cluster.topics.decisions]
        first = first_offsets(options.cluster)
        try:
            query = start_query(
                session.spark, settings, bootstrap=options.cluster.bootstrap, topics=options.cluster.topics,
                partitions=partitions, counts=counts, checkpoint=checkpoint, candidates=options.candidates,
            )  # fmt: skip
        except (PySparkException, Py4JError, ConnectionError) as error:
            raise WeirError(f"the query did not start: {reason_of(error)}; see {session.log}") from error
        clock = HostClock(metrics.brokers_clock_ahead_seconds)
        ticker = Ticker(options.cluster, settings.tick_interval_ms, clock, said_of(query.id))
        # Its last tick says that nobody decides any more, and begins no batch.
        ended.callback(lambda: ticker.close(leaving=held is None or not held.lost))
        reader = ProgressReader(query, counts, metrics, first)
        watch = TopicWatch(options.cluster, metrics=metrics.topics, logger=_LOG, ids=ids)
        watch.start()
        try:
            announce = partial(_announce, session, options, address)
            alone = partial(_alone, options.cluster, query.id, time.sleep)
            _watch(query, reader, session, stop, ticker, watch, ids, held, announce, alone)
        finally:
            watch.stop()
        _LOG.info("stopping")


@contextmanager
def _taken(checkpoint: str, jvm_pid: int, stop: Stop) -> Iterator[Lease | None]:
    """The right to a checkpoint that is whole; of one that is no folder there is none."""
    folder = local_folder(checkpoint)
    if folder is None:
        yield None
        return
    with Lease(folder, GONE_S, SILENCE_S, jvm_pid, pause=stop.sleep) as lease:
        if torn := go_back(folder):
            _LOG.warning("%s", torn)
        yield lease


def _alone(cluster: Cluster, query: str, pause: Callable[[float], object], since: int | None = None) -> None:
    """Refuse to decide beside the job of another checkpoint; what cannot be found out stops nothing."""
    try:
        other = other_job(cluster, query, pause, _LOG.info, since)
    except WeirError as error:
        _LOG.warning("it cannot be seen whether another job decides here: %s", error)
        return
    if other:
        raise WeirError(
            f"another job decides by {cluster.topics.usage} on {cluster.bootstrap} ({other}), on another"
            " checkpoint; stop that one first, or start this one on its checkpoint when it is gone (two"
            " installations on one cluster need two kafka.topic_prefix)"
        )


@contextmanager
def _living(session: Session, lease: Lease | None) -> Iterator[None]:
    """As long as the JVM lives: whatever asks it afterwards is not to blame."""
    try:
        yield
    except (Py4JError, ConnectionError) as error:
        # It was killed for that; a call that finds it gone already raises the second.
        lost = lease.lost if lease is not None else ""
        raise WeirError(lost or f"the JVM is gone: {reason_of(error)}; see {session.log}") from error


def _topics(options: JobOptions) -> TopicsSeen:
    """The topics, once those that are read and that of decisions are there."""
    options.prepare()
    cluster, deadline = options.cluster, time.monotonic() + TOPICS_LIMIT_S
    connect = partial(admin_of, cluster.properties)
    while True:
        seen = asked_until(deadline, connect, lambda admin, left_s: look(admin, cluster, left_s))
        # They exist, but not every broker may know that yet.
        if seen.ids.keys() >= {*sources_of(cluster.topics), cluster.topics.decisions}:
            return seen
        if time.monotonic() > deadline:
            raise WeirError("; ".join(fault.text for fault in seen.faults))
        time.sleep(_POLL_S)


def _watch(
    query: StreamingQuery,
    reader: ProgressReader,
    session: Session,
    stop: Stop,
    ticker: Ticker,
    watch: TopicWatch,
    sources: Collection[str],
    lease: Lease | None,
    announce: Callable[[], None],
    alone: Callable[[int], None],
) -> None:
    ready, patience = False, _Patience()
    heard: Future[None] | None = None
    while not stop.wait(_POLL_S if ready else _READY_POLL_S):
        if lease is not None and lease.lost:
            raise WeirError(lease.lost)
        if not query.isActive:
            watch.look()
            also = "".join(f"; {each.text}" for each in watch.faults)
            raise WeirError(f"the query failed: {reason_of(query.exception())}{also}; see {session.log}")
        if replaced := watch.replaced.intersection(sources):
            # What was read of the old one says nothing of where to begin in the new one.
            names = ", ".join(sorted(replaced))
            raise WeirError(f"deleted and made again: {names}; start the job again to read what is there")
        counted = reader.poll()
        if ready:
            ticker.poll(time.monotonic() * 1000)
        if heard is None and ticker.since is not None:
            # Where no thread is left there may be one in a second.
            with suppress(RuntimeError):
                heard = Threads().submit(alone, ticker.since)
        if heard is not None and heard.done():
            heard.result()
        if not ready and (counted or query.status["message"] == _IDLE):
            ready = True
            log_warnings_only(session.spark)
            announce()
        if not ready:
            patience.say(lambda: f"Spark: {query.status['message']}")


def _announce(session: Session, options: JobOptions, metrics: str | None) -> None:
    _LOG.info("ready: kafka %s, jvm pid %d, log %s", options.cluster.bootstrap, session.jvm_pid, session.log)
    options.announce({"pid": os.getpid(), "jvm_pid": session.jvm_pid, "metrics": metrics})


@contextmanager
def _signals(stop: Stop) -> Iterator[None]:
    def handle(number: int, frame: FrameType | None) -> None:
        stop.ask()

    before = {number: signal.signal(number, handle) for number in stop_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
