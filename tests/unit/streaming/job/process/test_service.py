"""In which order a job takes what it needs; with Spark and Kafka: tests/spark/test_job.py."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from stack_kit import until

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster
from streaming.job.process import service
from streaming.job.process.lease import Lease
from streaming.job.process.service import JobOptions, serve
from streaming.job.process.stop import Stop
from streaming.job.spark.settings import JobSettings
from streaming.kafka_io.weir_topics import TopicsSeen

CLUSTER = Cluster("b:1")
NAMES = {name: f"id of {name}" for name in CLUSTER.topics.all()}
SEEN = TopicsSeen(faults=(), ids=NAMES, partitions=dict.fromkeys(NAMES, 1))
LIMIT_S = 10.0
TAKEN = service._taken


class Job:
    """What a start does, in order; Spark, the lease and the query are made up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.done: list[str] = []
        self.spark_is_up = threading.Event()
        self.prepare: Any = lambda: None
        self.lost = ""
        self._settings = JobSettings(checkpoint_dir=str(folder / "at"))
        self._folder = folder
        monkeypatch.setattr(service, "build_session", self._build)
        monkeypatch.setattr(service, "stop_session", lambda *_: self.done.append("Spark ended"))
        monkeypatch.setattr(service, "look", lambda *_: SEEN)
        monkeypatch.setattr(service, "_taken", self._taken)
        # What comes after the lease needs a query.
        monkeypatch.setattr(service, "JobMetrics", self._fail)

    def serve(self, *, fails: bool = True, why: str = ".") -> None:
        """Start it, as far as it comes."""
        options = JobOptions(cluster=CLUSTER, prepare=self.prepare, jars=self._folder, work_dir=self._folder)
        with pytest.raises(WeirError, match=why) if fails else nullcontext():
            serve(self._settings, options)

    def _build(self, *_: Any, **__: Any) -> Any:
        self.done.append("Spark")
        self.spark_is_up.set()
        return SimpleNamespace(jvm_pid=7, log="spark.log")

    @contextmanager
    def _taken(self, *_: Any) -> Iterator[Any]:
        self.done.append("lease")
        try:
            yield SimpleNamespace(lost=self.lost, restarts=0)
        finally:
            self.done.append("lease left")

    def _fail(self, *_: Any) -> None:
        raise WeirError("as far as it comes")


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Job:
    """One that is not started yet."""
    return Job(monkeypatch, tmp_path)


def test_spark_starts_while_kafka_is_away(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its start takes as long as all that follows; others get the checkpoint once it is gone."""
    monkeypatch.setattr(service, "_PROMPT_S", 0.1)

    def away() -> None:
        if not job.spark_is_up.wait(LIMIT_S):
            raise WeirError("the cluster does not answer")
        job.done.append("topics")

    job.prepare = away
    job.serve()
    assert job.done == ["Spark", "topics", "lease", "Spark ended", "lease left"]


def test_a_cluster_that_refuses_needs_no_spark(job: Job) -> None:
    """It is said at once."""

    def refuse() -> None:
        raise WeirError("the topic has other settings")

    job.prepare = refuse
    job.serve()
    assert job.done == []


def test_a_cluster_that_refuses_late_ends_spark(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """No lease was taken."""
    monkeypatch.setattr(service, "_PROMPT_S", 0.1)

    def refuse() -> None:
        job.spark_is_up.wait(LIMIT_S)
        raise WeirError("the cluster does not answer")

    job.prepare = refuse
    job.serve()
    assert job.done == ["Spark", "Spark ended"]


@pytest.mark.parametrize("lost", ["", "another has taken the checkpoint over"])
def test_a_jvm_that_is_gone_as_the_query_starts_is_said(
    job: Job, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Also why, where the lease was lost meanwhile: it ended in a traceback."""

    def ask(*_: Any) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    job.lost = lost
    monkeypatch.setattr(service, "JobMetrics", ask)
    job.serve(why=lost or "the JVM is gone: .*Connection refused; see spark.log")
    assert job.done == ["Spark", "lease", "Spark ended", "lease left"]


def test_a_job_refuses_to_decide_beside_that_of_another_checkpoint(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Both decided all, each by its own state; where it cannot be seen the job starts, and says so."""
    monkeypatch.setattr(service, "other_job", lambda *_: "pid 7 on host far")
    with pytest.raises(WeirError, match=r"another job decides by weir\.usage on b:1 \(pid 7 on host far\)"):
        service._alone(CLUSTER, "q", Stop().sleep)

    def refuse(*_: Any) -> str:
        raise WeirError("no leader")

    monkeypatch.setattr(service, "other_job", refuse)
    service._alone(CLUSTER, "q", Stop().sleep)
    assert "it cannot be seen whether another job decides here: no leader" in caplog.text


@pytest.mark.parametrize("earlier", [True, False])
def test_a_job_that_ticks_listens_for_one_that_ticked_first(
    monkeypatch: pytest.MonkeyPatch, earlier: bool
) -> None:
    """Once, while it decides: two that started together heard nobody, and both went on."""
    stop, ticks, more, asked = Stop(), iter((None, None)), iter(range(3)), list[int]()

    def alone(since: int) -> None:
        asked.append(since)
        if earlier:
            raise WeirError("pid 7 on host far")

    def poll(_now_ms: float) -> None:
        ticker.since = next(ticks, 7)
        if asked and not earlier and next(more, None) is None:
            stop.ask()

    monkeypatch.setattr(service, "_POLL_S", 0.01)
    monkeypatch.setattr(service, "log_warnings_only", lambda _spark: None)
    ticker: Any = SimpleNamespace(poll=poll, since=None)
    query: Any = SimpleNamespace(isActive=True, status={"message": service._IDLE})
    reader: Any = SimpleNamespace(poll=lambda: False)
    watch: Any = SimpleNamespace(replaced=frozenset())
    session: Any = SimpleNamespace(spark=None)
    with pytest.raises(WeirError, match="pid 7 on host far") if earlier else nullcontext():
        service._watch(query, reader, session, stop, ticker, watch, (), None, lambda: None, alone)
    assert asked == [7] and stop.asked is not earlier


def test_a_stop_while_kafka_is_away_ends_spark(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Soon, however long Kafka may be away."""
    monkeypatch.setattr(service, "_PROMPT_S", 0.1)
    stop, over = Stop(), threading.Event()
    monkeypatch.setattr(service, "Stop", lambda: stop)

    def away() -> None:
        job.spark_is_up.wait(LIMIT_S)
        stop.ask()
        over.wait(LIMIT_S)

    job.prepare = away
    begun = time.monotonic()
    job.serve(fails=False)
    over.set()
    assert job.done == ["Spark", "Spark ended"]
    assert time.monotonic() - begun < LIMIT_S


def test_a_stop_while_another_job_has_the_checkpoint_ends_spark(
    job: Job, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Soon, and not after the half minute that the other one has to be gone."""
    stop = Stop()
    monkeypatch.setattr(service, "Stop", lambda: stop)
    monkeypatch.setattr(service, "_taken", TAKEN)
    monkeypatch.setattr(service, "checkpoint_path", lambda *_: str(tmp_path / "v1"))
    begun = time.monotonic()
    with Lease(tmp_path / "v1", 1, 15):
        threading.Timer(0.5, stop.ask).start()
        job.serve(fails=False)
    assert job.done == ["Spark", "Spark ended"]
    assert time.monotonic() - begun < LIMIT_S


def test_who_waits_for_kafka_says_so(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who starts it again sees that it lives (weir.stack.parts)."""
    monkeypatch.setattr(service, "_PROMPT_S", 0.1)
    monkeypatch.setattr(service, "_SAID_S", 0.1)
    job.prepare = lambda: until(lambda: bool(caplog.text), what="it has said something", limit_s=LIMIT_S)
    with caplog.at_level(logging.INFO, logger="weir.job"):
        job.serve()
    assert "not ready yet; b:1 does not tell of Weir's topics" in caplog.text


def test_who_waits_for_too_long_says_nothing_any_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It hangs: whoever looks after it starts it again."""
    seconds = iter(range(100, 4000))
    monkeypatch.setattr(service, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    patience = service._Patience()
    with caplog.at_level(logging.INFO, logger="weir.job"), pytest.raises(StopIteration):
        while True:
            patience.say(lambda: "Spark: Processing new data")
    assert len(caplog.records) == 29
